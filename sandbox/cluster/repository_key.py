"""The key of a repository in the name of a queue: the same for every spelling of its URL."""

from __future__ import annotations

import hashlib

from sandbox.errors import SandboxError
from sandbox.remotes import parse_remote


def make_repository_key(url: str) -> str:
    """16 hexadecimal digits; empty for a URL that cannot be parsed, of which no worker has a clone.

    Case is folded, because whether a server tells it apart is a setting that callers and workers need not share. Two
    repositories with one key are no harm: a worker that has the clone of one is asked first for the other.
    """
    try:
        remote = parse_remote(url, allow_file=True, allow_http=True)
    except SandboxError:
        return ""
    identity = "/".join((remote.hostname, remote.owner, remote.name))  # as of clones: not protocol, user and port
    return hashlib.sha256(identity.lower().encode(errors="surrogateescape")).hexdigest()[:16]
