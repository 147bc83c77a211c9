"""Which submodules a tree has: its gitlinks, and the addresses that `.gitmodules` gives them.

git parses the file, as a blob, without includes; no submodule command ever runs. What the file says is used only where
the tree has a gitlink at exactly this path (THREATS C07).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from sandbox.errors import ErrorCode, SandboxError
from sandbox.git.entries import EXECUTABLE, GITLINK, REGULAR
from sandbox.git.objects import list_named_entries
from sandbox.git.process import Git
from sandbox.policy.paths import is_dotgit

GITMODULES = b".gitmodules"
_MAX_BYTES = 256 * 1024
_MAX_SUBMODULES = 100  # of one tree
_PATH_BYTES = 4096  # PATH_MAX: no longer path can be laid out, and each is an argument of git, which has a limit, too


@dataclass(frozen=True)
class Gitlink:
    """A submodule of a tree. `url`: as written, untrusted text."""

    path: bytes
    commit: str
    url: str


def list_submodules(git: Git, tree: str) -> tuple[Gitlink, ...]:
    """The gitlinks of a tree that have an address, by path; others stay empty folders, as with git.

    Raises: `unsafe_repository` for a file that git cannot read, and for paths that must not exist; `quota_exceeded`.
    """
    named = list_named_entries(git, tree, [GITMODULES])
    if not named or named[0].mode not in {REGULAR, EXECUTABLE}:
        return ()
    if (named[0].size or 0) > _MAX_BYTES:
        raise _refuse(f"it is larger than {_MAX_BYTES} bytes")
    urls = _read_urls(git, named[0].oid)
    found = list_named_entries(git, tree, list(urls)) if urls else []
    return tuple(Gitlink(e.path, e.oid, urls[e.path]) for e in sorted(found, key=lambda e: e.path) if e.mode == GITLINK)


def _read_urls(git: Git, blob: str) -> dict[bytes, str]:
    """The address of each path in a `.gitmodules` file."""
    listed = git.attempt("config", "--no-includes", "-z", "--list", "--blob", blob)
    if listed.code != 0:
        raise _refuse("git cannot read it")
    fields: dict[bytes, dict[bytes, bytes]] = defaultdict(dict)
    for record in listed.stdout.split(b"\0")[:-1]:
        key, _, value = record.partition(b"\n")
        section, _, rest = key.partition(b".")
        name, _, field = rest.rpartition(b".")
        if section == b"submodule" and field in {b"path", b"url"}:
            fields[name][field] = value
    urls: dict[bytes, str] = {}
    for one in fields.values():
        if b"path" not in one or b"url" not in one:
            continue
        path = one[b"path"].removesuffix(b"/")
        _require_safe(path)
        if path in urls:
            raise _refuse("two submodules have the same path")
        urls[path] = one[b"url"].decode("utf-8", errors="surrogateescape")
    if len(urls) > _MAX_SUBMODULES:
        raise SandboxError(ErrorCode.QUOTA_EXCEEDED, f"The tree has more than {_MAX_SUBMODULES} submodules")
    return urls


def _require_safe(path: bytes) -> None:
    if len(path) > _PATH_BYTES or any(
        name in {b"", b".", b".."} or is_dotgit(name) or b"\r" in name for name in path.split(b"/")
    ):
        raise _refuse(f"a submodule has the path {ascii(path.decode('utf-8', errors='replace'))[:200]}")


def _refuse(why: str) -> SandboxError:
    return SandboxError(
        ErrorCode.UNSAFE_REPOSITORY,
        "The file .gitmodules of the tree cannot be used",
        details=why,
        hint="Without submodules (`sandbox repo set REPO --unset submodules`) their folders stay empty.",
    )
