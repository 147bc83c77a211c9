"""Network git: list, fetch, and what a push needs, for exactly one remote with exactly one credential.

The secret is in an anonymous memory file that only this git's children inherit. It is in no argv, environment, URL,
configuration or file on disk. The askpass script answers for one host only: prompts are text from the server.
"""

from __future__ import annotations

import logging
import os
import shlex
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import tenacity

from sandbox.credentials import Credential, without_secret
from sandbox.errors import ErrorCode, SandboxError
from sandbox.git.failures import classify, is_transient
from sandbox.git.local_remotes import require_repository
from sandbox.git.objects import check_ref_name, is_object_id
from sandbox.git.process import Ceiling, Git, Grant, Result
from sandbox.git.shutdown import Ending
from sandbox.git.throttle import Throttled, retry_after
from sandbox.git.unfinished_packs import sweep
from sandbox.remotes import Remote
from sandbox.retries import build_retrying

_log = logging.getLogger(__name__)

NETWORK_DEADLINE_S = 900.0
MAX_FETCH_BYTES = 8 * 1024**3
MEMORY_BYTES = 4 * 1024**3
MAX_REFS = 250_000
_ANSWER_BYTES = 64 * 1024**2  # output of `ls-remote`: a million ordinary refs
_TRACE_BYTES = 16 * 1024**2  # everything `ls-remote` writes to files: headers in memory, a line of known_hosts
_BRANCHES = "+refs/heads/*:refs/remotes/origin/*"
_TAGS = "+refs/tags/*:refs/tags/*"
PROMISER = "sandbox"
PROMISE = {f"remote.{PROMISER}.promisor": "true", f"remote.{PROMISER}.partialCloneFilter": "blob:none"}
_QUIET = ("--no-tags", "--no-write-fetch-head", "--no-recurse-submodules", "--no-auto-maintenance", "--force")
_ONE_PACK = {"fetch.unpackLimit": "1"}  # never loose files: then the limit on one file limits the whole fetch
_ASKPASS = """#!/bin/sh
# Answers git's two questions for one host; anything else fails.
exec 0<"/proc/self/fd/$SANDBOX_SECRET_FD"
IFS= read -r authority; IFS= read -r username; IFS= read -r secret
case "$1" in
  "Username for 'https://$authority': ") printf '%s\\n' "$username" ;;
  "Password for 'https://"*"@$authority': ") printf '%s\\n' "$secret" ;;
  *) exit 1 ;;
esac
"""


@dataclass(frozen=True)
class Access:
    """All that a network command may use: the remote, its credential, our known_hosts, and the SSH agent if any."""

    remote: Remote
    credential: Credential | None
    known_hosts: Path
    environ: Mapping[str, str]
    progress: Callable[[str], None] | None = None
    timeout_s: float = NETWORK_DEADLINE_S
    git: str = ""  # the git that the operator configured
    max_fetch_bytes: int = MAX_FETCH_BYTES
    ending: Ending = field(default_factory=Ending, compare=False)


@dataclass(frozen=True)
class RemoteHead:
    """The remote's HEAD: its branch and the commit there."""

    branch: str
    commit: str


@contextmanager
def granted(access: Access) -> Iterator[Grant]:
    """Network access for a few commands. On exit everything that carried the secret is deleted."""
    protocol = access.remote.protocol
    if protocol == "file":
        yield Grant("file", ending=access.ending)
    elif protocol == "ssh":
        yield Grant("ssh", env=_ssh_environment(access), ending=access.ending)
    else:
        with _askpass(access) as grant:
            yield replace(grant, redact=lambda text: without_secret(text, access.credential), ending=access.ending)


def _ssh_environment(access: Access) -> dict[str, str]:
    command = ["ssh", "-F", "/dev/null", "-a", "-x", "-T"]
    options = {
        "BatchMode": "yes",
        "StrictHostKeyChecking": "accept-new",
        "UserKnownHostsFile": str(access.known_hosts),
        "GlobalKnownHostsFile": "/dev/null",
        "PermitLocalCommand": "no",
        "ProxyCommand": "none",
        "ConnectTimeout": "20",
        "ServerAliveInterval": "15",
    }
    if access.credential is not None and access.credential.ssh_key is not None:
        command += ["-i", str(access.credential.ssh_key)]
        options["IdentitiesOnly"] = "yes"
    for name, value in options.items():
        command += ["-o", f"{name}={value}"]
    environment = {"GIT_SSH_COMMAND": shlex.join(command), "GIT_SSH_VARIANT": "ssh"}
    if access.environ.get("SSH_AUTH_SOCK"):
        environment["SSH_AUTH_SOCK"] = access.environ["SSH_AUTH_SOCK"]
    return environment


@contextmanager
def _askpass(access: Access) -> Iterator[Grant]:
    credential, remote = access.credential, access.remote
    config: tuple[str, ...] = ()
    if credential is not None and credential.ca_file is not None:
        config = (f"http.sslCAInfo={credential.ca_file}",)
    if credential is None or not credential.secret.get_secret_value():
        yield Grant(remote.protocol, config=config)
        return
    authority = remote.url.split("/")[2]  # as in git's prompt, with the brackets of an IPv6 address
    secret = os.memfd_create("sandbox-credential", os.MFD_CLOEXEC)
    try:
        lines = (authority, credential.username, credential.secret.get_secret_value(), "")
        os.write(secret, "\n".join(lines).encode())
        with tempfile.TemporaryDirectory(prefix="sandbox-askpass-") as folder:
            script = Path(folder) / "askpass"
            script.write_text(_ASKPASS)
            script.chmod(0o700)
            env = {"GIT_ASKPASS": str(script), "SANDBOX_SECRET_FD": str(secret)}
            yield Grant(remote.protocol, env=env, config=config, fds=(secret,))
    finally:
        os.close(secret)


def _read_remote(access: Access, once: Callable[[Grant], Result]) -> Result:
    """Run a command that only reads. While the network fails, repeat it with growing and jittered pauses."""
    attempts = build_retrying(is_transient, _retry_after_s, _log_retry)
    with granted(access) as plain:
        try:
            return attempts(once, replace(plain, progress=access.progress))
        except SandboxError as error:
            made = attempts.statistics.get("attempt_number", 1)
            if made > 1:
                error.details += f"\n(tried {made} times)"
            raise


def _retry_after_s(error: BaseException) -> float:
    return error.wait_s if isinstance(error, Throttled) else 0.0


def _log_retry(state: tenacity.RetryCallState) -> None:
    error = state.outcome.exception() if state.outcome else None
    _log.warning("attempt %d failed, trying again: %s", state.attempt_number, error)


def remote_head(git: Git, access: Access) -> RemoteHead:
    """Ask the remote for its default branch, and count its refs: each becomes a file in the fetch that follows.

    The list is free: git requests all refs anyway. Raises: network errors; `not_found` for an empty remote,
    `quota_exceeded` for too many refs.
    """
    branch, commit, refs = "", "", 0
    for value, name in _listed(git, access, "--symref", "--", access.remote.url, "HEAD", "refs/heads/*", "refs/tags/*"):
        if name == "HEAD" and value.startswith("ref: refs/heads/"):
            branch = value.removeprefix("ref: refs/heads/")
        elif name == "HEAD" and is_object_id(value):
            commit = value
        refs += name.startswith(("refs/heads/", "refs/tags/")) and not name.endswith("^{}")
    if refs > MAX_REFS:
        brief = f"The remote has {refs} branches and tags, more than {MAX_REFS}"
        raise SandboxError(ErrorCode.QUOTA_EXCEEDED, brief, hint="Such a repository cannot be used.")
    if not commit:
        raise SandboxError(
            ErrorCode.NOT_FOUND, "The remote repository has no commits yet", hint="Push a first commit to it."
        )
    return RemoteHead(check_ref_name(branch) if branch else "", commit)


def _listed(git: Git, access: Access, *question: str) -> list[tuple[str, str]]:
    """Value and name of each line of `ls-remote`. Reads the server's `Retry-After`: this is the first request."""
    require_repository(access.remote)
    ceiling = Ceiling(_TRACE_BYTES, MEMORY_BYTES)
    deadline_s = min(120.0, access.timeout_s)

    def once(plain: Grant) -> Result:
        with _headers() as trace:
            env = {**plain.env, **trace.env}
            grant = replace(plain, ceiling=ceiling, fds=(*plain.fds, trace.fd), env=env)
            result = git.attempt("ls-remote", *question, grant=grant, deadline_s=deadline_s, output_limit=_ANSWER_BYTES)
            wait_s = retry_after(os.pread(trace.fd, _TRACE_BYTES, 0).decode(errors="replace"), datetime.now(UTC))
        if result.code != 0 and wait_s is not None:
            raise Throttled(classify("ls-remote", result.code, result.stderr), wait_s)
        return result.required("ls-remote")

    lines = _read_remote(access, once).stdout.decode("utf-8", errors="replace").splitlines()
    return [(value, name) for value, _, name in (line.partition("\t") for line in lines)]


class _HeaderTrace(NamedTuple):
    """The memory file that git writes headers to, and the environment that makes it do so."""

    fd: int
    env: dict[str, str]


@contextmanager
def _headers() -> Iterator[_HeaderTrace]:
    """Let git trace HTTP headers, which it shows nowhere else, to anonymous memory that is freed after the command.

    git redacts our credentials in it. Only one number is read from it.
    """
    fd = os.memfd_create("sandbox-headers", os.MFD_CLOEXEC)
    try:
        trace = {"GIT_TRACE_CURL": f"/proc/self/fd/{fd}", "GIT_TRACE_CURL_NO_DATA": "1", "GIT_TRACE_REDACT": "1"}
        yield _HeaderTrace(fd, trace)
    finally:
        os.close(fd)


def fetch(git: Git, access: Access, *, promised: bool = False) -> str:
    """Fetch all branches and tags into the cache and prune those that the remote deleted; returns git's stderr.

    `partial`: commits and trees only (`git.partial`). Raises: `quota_exceeded` past `max_fetch_bytes`.
    """
    return _fetch(git, access, ("--prune",), (_BRANCHES, _TAGS), promised=promised)


def fetch_blobs(git: Git, access: Access, oids: Sequence[str]) -> None:
    """Fetch exactly these objects, in one pack. Raises: `not_found`, `quota_exceeded`, network errors."""
    wanted = "".join(f"{oid}\n" for oid in oids).encode()
    _fetch(git, access, ("--stdin",), (), promised=True, stdin=wanted)


def _fetch(
    git: Git, access: Access, options: Sequence[str], refspecs: Sequence[str], *, promised: bool, stdin: bytes = b""
) -> str:
    talk = "--progress" if access.progress else "--quiet"
    config = {**_ONE_PACK, "fetch.negotiationAlgorithm": "noop"} if stdin else _ONE_PACK
    source = access.remote.url
    if promised:
        source, options = PROMISER, (*options, "--filter=blob:none")
        config = {**config, **PROMISE, f"remote.{PROMISER}.url": access.remote.url}

    def once(plain: Grant) -> Result:
        ceiling = Ceiling(access.max_fetch_bytes, MEMORY_BYTES)
        grant = replace(plain, ceiling=ceiling, config=(*plain.config, *(f"{k}={v}" for k, v in config.items())))
        with sweep(git.git_dir, access.max_fetch_bytes):
            return git.attempt(
                "fetch", talk, *_QUIET, *options, "--", source, *refspecs,
                stdin=stdin, grant=grant, deadline_s=access.timeout_s,
            ).required("fetch")  # fmt: skip

    return _read_remote(access, once).stderr


def remote_branch(git: Git, access: Access, branch: str) -> str | None:
    """The commit that a branch of the remote points to now, or None."""
    ref = f"refs/heads/{check_ref_name(branch)}"
    for oid, name in _listed(git, access, "--", access.remote.url, ref):
        if name == ref and is_object_id(oid):
            return oid
    return None
