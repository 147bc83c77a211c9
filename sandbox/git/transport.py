"""Network git: list, fetch, and what a push needs, for exactly one remote with exactly one credential.

The secret is in an anonymous memory file that only this git's children inherit. It is in no argv, environment, URL,
configuration or file on disk. The askpass script answers for one host only: prompts are text from the server.
"""

from __future__ import annotations

import io
import logging
import math
import os
import shlex
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from sandbox.credentials import Credential, remove_secret
from sandbox.errors import ErrorCode, SandboxError, describe_briefly
from sandbox.git.failures import NOT_GIT, classify, fetch_memory_error, is_moved_ref, is_transient, may_need_more_memory
from sandbox.git.local.local_remotes import local_path_of, require_local_repository
from sandbox.git.local.read_refs import NOTES, SHOWN
from sandbox.git.local.repository_layout import open_local_repository
from sandbox.git.local.view import read_refs_of_repository, view_local_repository
from sandbox.git.objects import is_object_id
from sandbox.git.process import Git, GitResult, NetworkAccess, ResourceLimits
from sandbox.git.refs import require_ref_name
from sandbox.git.shallow import is_shallow, keep_known_history, read_boundary
from sandbox.git.shutdown import Shutdown
from sandbox.git.stale_locks import run_despite_stale_locks
from sandbox.git.temporary_folders import ASKPASS_PREFIX, temporary_folder
from sandbox.git.throttle import Throttled, last_header, retry_after
from sandbox.git.unfinished_packs import remove_unfinished_packs
from sandbox.lazy_dataclass import dataclass
from sandbox.lazy_module import LazyModule
from sandbox.memory import TRANSFER_BUDGET, TRANSFER_BYTES
from sandbox.remotes import Remote
from sandbox.text import one_line

if TYPE_CHECKING:
    import tenacity

    from sandbox import retries
    from sandbox.git import refused_credentials, ssh_options
else:  # loaded by the first network command (docs/adr/0080)
    refused_credentials = LazyModule("sandbox.git.refused_credentials")
    retries = LazyModule("sandbox.retries")
    ssh_options = LazyModule("sandbox.git.ssh_options")

_progress = logging.getLogger("sandbox.progress")
"""A command prints its records as plain lines (`sandbox.cli.log_setup`)."""

NETWORK_DEADLINE_S = 900.0
_SILENCE_S = 10.0  # of a command that waits for a remote
MAX_FETCH_BYTES = 8 * 1024**3
MAX_MEMORY_BYTES = TRANSFER_BYTES
FIRST_MEMORY_BYTES = TRANSFER_BYTES // 2
"""Memory of the first attempt of a fetch: enough for 600,000 objects (270,000 over a local path). Reached: it is
repeated with the maximum, alone if that is as much as all fetches may use."""
_REFS_MEMORY_BYTES = 160 * 1024**2  # of `ls-remote`, if it needs more than it begins with
_FIRST_REFS_MEMORY_BYTES = 48 * 1024**2
MAX_REFS = 100_000  # a fetch takes 1 kB of memory for each
TASK_BRANCHES = "space-agent/"
_SHOWN_BRANCHES = 10
_PAGE_TYPES = ("text/html", "application/xhtml+xml")
_ANSWER_BYTES = 32 * 1024**2  # output of `ls-remote`: half a million ordinary refs
_TRACE_BYTES = 16 * 1024**2  # everything `ls-remote` writes to files: headers in memory, a line of known_hosts
_BRANCH_REFSPEC = "+refs/heads/*:refs/remotes/origin/*"
_TAG_REFSPEC = "+refs/tags/*:refs/tags/*"
_READ_AGAIN = {ErrorCode.UNSAFE_REPOSITORY, ErrorCode.REMOTE_BROKEN}
PROMISOR_REMOTE = "sandbox"
PROMISOR_CONFIG = {
    f"remote.{PROMISOR_REMOTE}.promisor": "true",
    f"remote.{PROMISOR_REMOTE}.partialCloneFilter": "blob:none",
}
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
class RemoteAccess:
    """All that a network command may use: the remote, its credential, our known_hosts, and the SSH agent if any."""

    remote: Remote
    credential: Credential | None
    known_hosts: Path
    environ: Mapping[str, str] = field(repr=False)
    progress: Callable[[str], None] | None = None
    timeout_s: float = NETWORK_DEADLINE_S
    git: str = ""  # the git that the operator configured
    proxy: str = ""  # for https and http
    max_fetch_bytes: int = MAX_FETCH_BYTES
    max_memory_bytes: int = MAX_MEMORY_BYTES
    shown: tuple[str, ...] = SHOWN  # places of refs that git sees of a local repository
    shutdown: Shutdown = field(default_factory=Shutdown, compare=False)


@dataclass(frozen=True)
class RemoteHead:
    """The remote's HEAD: its branch and the commit there.

    `branch_commit`: of the branch in the clone, after a fetch: another one if HEAD is detached. '' if it is not known.
    """

    branch: str
    commit: str
    branch_commit: str = field(default="", compare=False)


@contextmanager
def network_access(access: RemoteAccess) -> Iterator[NetworkAccess]:
    """Network access for a few commands. On exit everything that carried the secret is deleted."""
    if access.remote.protocol == "file":
        yield NetworkAccess("file", shutdown=access.shutdown)
        return
    refused_credentials.require_file(access.credential, access.remote.protocol)
    try:
        with _open_network(access) as network:
            yield network
    except SandboxError as error:
        explained = refused_credentials.explain_refusal(error, access.credential, access.remote.protocol)
        if explained is error:
            raise
        raise explained from error


@contextmanager
def _open_network(access: RemoteAccess) -> Iterator[NetworkAccess]:
    if access.remote.protocol == "ssh":
        yield NetworkAccess("ssh", env=_ssh_environment(access), shutdown=access.shutdown)
        return
    with _askpass(access) as network:
        yield replace(network, redact=lambda text: remove_secret(text, access.credential), shutdown=access.shutdown)


@contextmanager
def open_for_reading(git: Git, access: RemoteAccess) -> Iterator[RemoteAccess]:
    """Access to the remote; for a local path, to our view of it. Raises: `remote_not_found`, `unsafe_repository`."""
    require_local_repository(access.remote)
    path = local_path_of(access.remote)
    if path is None:
        yield access
        return
    with view_local_repository(git, path, MAX_REFS, access.shown) as view:
        yield replace(access, remote=replace(access.remote, url=view.url))


def is_partial_source(git: Git, access: RemoteAccess) -> bool:
    """Whether the remote is a partial clone on this host. Raises: as `open_for_reading`."""
    require_local_repository(access.remote)
    path = local_path_of(access.remote)
    return path is not None and open_local_repository(git, path).is_partial


def _ssh_environment(access: RemoteAccess) -> dict[str, str]:
    command = ["ssh", "-F", "/dev/null", "-a", "-x", "-T"]
    options = {
        "BatchMode": "yes",
        "StrictHostKeyChecking": "accept-new",
        "UserKnownHostsFile": ssh_options.quote_path(access.known_hosts),
        "GlobalKnownHostsFile": "/dev/null",
        "PermitLocalCommand": "no",
        "ProxyCommand": "none",
        "ConnectTimeout": "20",
        "ServerAliveInterval": "15",
    }
    if access.credential is not None and access.credential.ssh_key is not None:
        options["IdentityFile"] = ssh_options.quote_path(access.credential.ssh_key)
        options["IdentitiesOnly"] = "yes"
    for name, value in options.items():
        command += ["-o", f"{name}={value}"]
    environment = {"GIT_SSH_COMMAND": shlex.join(command), "GIT_SSH_VARIANT": "ssh"}
    if access.environ.get("SSH_AUTH_SOCK"):
        environment["SSH_AUTH_SOCK"] = access.environ["SSH_AUTH_SOCK"]
    return environment


@contextmanager
def _askpass(access: RemoteAccess) -> Iterator[NetworkAccess]:
    credential, remote = access.credential, access.remote
    config: tuple[str, ...] = (f"http.proxy={access.proxy}",) if access.proxy else ()
    if credential is not None and credential.ca_file is not None:
        config += (f"http.sslCAInfo={credential.ca_file}",)
    if credential is None or not credential.secret.get_secret_value():
        yield NetworkAccess(remote.protocol, config=config)
        return
    authority = remote.url.split("/")[2]  # as in git's prompt, with the brackets of an IPv6 address
    secret = os.memfd_create("sandbox-credential", os.MFD_CLOEXEC)
    try:
        lines = (authority, credential.username, credential.secret.get_secret_value(), "")
        os.write(secret, "\n".join(lines).encode())
        with temporary_folder(ASKPASS_PREFIX) as folder:
            script = folder / "askpass"
            script.write_text(_ASKPASS)
            script.chmod(0o700)
            env = {"GIT_ASKPASS": str(script), "SANDBOX_SECRET_FD": str(secret)}
            yield NetworkAccess(remote.protocol, env=env, config=config, fds=(secret,))
    finally:
        os.close(secret)


def _read_remote(access: RemoteAccess, once: Callable[[NetworkAccess], GitResult]) -> GitResult:
    """Run a command that only reads. While the network fails, repeat it with growing and jittered pauses."""
    attempts = retries.build_retrying(is_transient, _retry_after_s, _announce_retry)
    with network_access(access) as network:
        try:
            return attempts(once, replace(network, progress=access.progress))
        except SandboxError as error:
            made = attempts.statistics.get("attempt_number", 1)
            if made > 1:
                raise error.with_details(f"{error.details}\n(tried {made} times)") from error
            raise


@contextmanager
def _announce_wait(hostname: str) -> Iterator[None]:
    """Say once that a remote is slow to answer: where there is no status line, a command would be silent."""
    timer = threading.Timer(_SILENCE_S, _progress.warning, ("still waiting for %s", one_line(hostname or "the remote")))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _retry_after_s(error: BaseException) -> float:
    return error.wait_s if isinstance(error, Throttled) else 0.0


def _announce_retry(state: tenacity.RetryCallState) -> None:
    error = state.outcome.exception() if state.outcome else None
    what = "" if error is None else describe_briefly(error)
    pause_s = state.next_action.sleep if state.next_action else 0.0
    _progress.warning("trying again in %d s: %s", math.ceil(pause_s), what)


@dataclass(frozen=True)
class RemoteRefs:
    """The remote's HEAD, and the object ids of its branches and tags by full name."""

    head: RemoteHead
    refs: Mapping[str, str]


def read_remote_refs(git: Git, access: RemoteAccess, default: str = "") -> RemoteRefs:
    """Ask the remote for its default branch, and count its refs: each becomes a file in the fetch that follows.
    `default`: the branch to take for it if the remote's HEAD names none that is there.

    The list is free: git requests all refs anyway. Raises: network errors; `not_found` for an empty remote,
    and for one of several branches without a default branch; `quota_exceeded` for too many refs; `unsafe_repository`
    for a default branch with a name that is not supported.
    """
    branch, commit, refs = "", "", dict[str, str]()
    for value, name in list_refs(git, access, "--symref", patterns=("HEAD", "refs/heads/*", "refs/tags/*")):
        if name == "HEAD" and value.startswith("ref: refs/heads/"):
            branch = value.removeprefix("ref: refs/heads/")
        elif name == "HEAD" and is_object_id(value):
            commit = value
        if name.startswith(("refs/heads/", "refs/tags/")) and not name.endswith("^{}"):
            refs[name] = value
    if len(refs) > MAX_REFS:
        raise _too_many_refs_error(len(refs))
    if not commit:
        branch = _choose_branch(refs, default)
        commit = refs[f"refs/heads/{branch}"]
    return RemoteRefs(RemoteHead(_require_default_branch(branch) if branch else "", commit), refs)


def _require_default_branch(branch: str) -> str:
    try:
        return require_ref_name(branch)
    except SandboxError as error:
        raise SandboxError(
            ErrorCode.UNSAFE_REPOSITORY,
            "The remote's default branch has a name that is not supported",
            details=error.details,
            hint="Choose another default branch where it is hosted, or rename it, with letters, digits and . _ - + @ # "
            "% = / only. Other branches may have any name.",
        ) from error


def _choose_branch(refs: Mapping[str, str], default: str) -> str:
    """The default branch of a remote with a HEAD that names a branch which was never pushed, such as a new bare
    repository that got `main` while git's default is `master`. Branches of tasks do not count.
    """
    branches = sorted(name.removeprefix("refs/heads/") for name in refs if name.startswith("refs/heads/"))
    branches = [name for name in branches if not name.startswith(TASK_BRANCHES)]
    if default in branches:
        return default
    if len(branches) == 1:
        return branches[0]
    if branches:
        raise SandboxError(
            ErrorCode.NOT_FOUND,
            "The remote repository has no default branch: its HEAD names one that it does not have",
            details=f"{len(branches)} branches: {', '.join(name[:100] for name in branches[:_SHOWN_BRANCHES])}",
            hint="Choose one where it is hosted, or with `git symbolic-ref HEAD refs/heads/BRANCH` in it.",
        )
    raise SandboxError(
        ErrorCode.NOT_FOUND,
        "The remote repository has no commits yet",
        hint="Push a first commit to it, or commit in it if it is a directory of this host.",
    )


def read_local_refs(git: Git, access: RemoteAccess) -> RemoteRefs | None:
    """The refs of a local remote as its files say, also of objects that are missing there, without a process of git.

    None for a remote on the network. Raises: `remote_not_found`, `unsafe_repository`, `quota_exceeded`.
    """
    require_local_repository(access.remote)
    path = local_path_of(access.remote)
    if path is None:
        return None
    found = read_refs_of_repository(git, path, MAX_REFS)
    branch = found.head.removeprefix("refs/heads/") if found.head.startswith("refs/heads/") else ""
    shared = {name: oid for name, oid in found.values.items() if not name.startswith(f"{NOTES}/")}
    return RemoteRefs(RemoteHead(branch, found.values.get(found.head, "")), shared)


def list_refs(git: Git, access: RemoteAccess, *options: str, patterns: Sequence[str]) -> list[tuple[str, str]]:
    """Value and name of each line of `ls-remote`. Reads the server's `Retry-After`: this is the first request."""
    with open_for_reading(git, access) as readable:
        answer = _ask_for_refs(git, readable, (*options, "--", readable.remote.url, *patterns))
    if answer.count(b"\n") > 2 * MAX_REFS + 2:  # a tag has two lines; HEAD has two
        raise _too_many_refs_error(answer.count(b"\n") // 2)
    lines = (line.decode("utf-8", errors="replace").rstrip("\n") for line in io.BytesIO(answer))
    return [(value, name) for value, _, name in (line.partition("\t") for line in lines)]


def _too_many_refs_error(number: int) -> SandboxError:
    return SandboxError(
        ErrorCode.QUOTA_EXCEEDED,
        f"The remote has {number} branches and tags or more; at most {MAX_REFS} can be fetched",
        hint="Such a repository cannot be used.",
    )


def _require_git_answer(result: GitResult, trace: str) -> None:
    """A page for people is no empty repository, which git takes it for if it has one line, and no failure of ours; of a
    redirect say where it leads, without the query, which may hold a secret of a sign-in. Raises: `network_error`.
    """
    is_other = NOT_GIT.search(result.stderr) is not None if result.code else not result.stdout.strip()
    if is_other and last_header(trace, "content-type").lower().startswith(_PAGE_TYPES):
        raise SandboxError(
            ErrorCode.NETWORK_ERROR,
            "The server answered with a web page instead of a repository",
            hint="It may be a sign-in page (single sign-on, a proxy), or the URL of something else. Open the URL in a "
            "browser; a credential that the server takes for git, or the ssh URL, avoids the page.",
        )
    target = last_header(trace, "location").partition("?")[0] if result.code != 0 else ""
    error = classify("ls-remote", result.code, result.stderr) if target else None
    if error is not None and "redirect" in error.brief:
        raise error.with_details(f"{error.details}\nit leads to {one_line(target)[:300]}")


def _ask_for_refs(git: Git, access: RemoteAccess, question: Sequence[str]) -> bytes:
    deadline_s = min(120.0, access.timeout_s)

    def attempt(network: NetworkAccess, memory_bytes: int) -> GitResult:
        limited = replace(network, limits=ResourceLimits(_TRACE_BYTES, memory_bytes))
        with TRANSFER_BUDGET.reserve(memory_bytes, deadline_s):
            return git.attempt(
                "ls-remote", *question, network=limited, deadline_s=deadline_s, output_limit=_ANSWER_BYTES
            )

    def once(network: NetworkAccess) -> GitResult:
        with _trace_headers() as trace:
            traced = replace(network, fds=(*network.fds, trace.fd), env={**network.env, **trace.env})
            result = attempt(traced, min(_FIRST_REFS_MEMORY_BYTES, _REFS_MEMORY_BYTES))
            if result.code != 0 and may_need_more_memory(result.stderr):
                result = attempt(traced, _REFS_MEMORY_BYTES)
            said = network.redact(os.pread(trace.fd, _TRACE_BYTES, 0).decode(errors="replace"))
        _require_git_answer(result, said)
        wait_s = retry_after(said, datetime.now(UTC)) if result.code != 0 else None
        if wait_s is not None:
            raise Throttled(classify("ls-remote", result.code, result.stderr), wait_s)
        return result.raise_for_status("ls-remote")

    with _announce_wait(access.remote.hostname):
        return _read_remote(access, once).stdout


class _HeaderTrace(NamedTuple):
    """The memory file that git writes headers to, and the environment that makes it do so."""

    fd: int
    env: dict[str, str]


@contextmanager
def _trace_headers() -> Iterator[_HeaderTrace]:
    """Let git trace HTTP headers, which it shows nowhere else, to anonymous memory that is freed after the command.

    git redacts our credentials in it. What is read from it: `throttle`.
    """
    fd = os.memfd_create("sandbox-headers", os.MFD_CLOEXEC)
    try:
        trace = {"GIT_TRACE_CURL": f"/proc/self/fd/{fd}", "GIT_TRACE_CURL_NO_DATA": "1", "GIT_TRACE_REDACT": "1"}
        yield _HeaderTrace(fd, trace)
    finally:
        os.close(fd)


def fetch(git: Git, access: RemoteAccess, *, partial: bool = False, head_ref: str = "") -> str:
    """Fetch all branches and tags into the cache and prune those that the remote deleted; returns git's stderr.

    `partial`: commits and trees only (`git.partial`). `head_ref`: where the clone keeps the remote's HEAD, which may be
    on no branch; '' for nowhere. Raises: `quota_exceeded` past `max_fetch_bytes`, or if git needs
    more than `max_memory_bytes`; `timeout` if other fetches use the memory of all.
    """
    refspecs = (_BRANCH_REFSPEC, _TAG_REFSPEC, *((f"+HEAD:{head_ref}",) if head_ref else ()))
    return _fetch(git, access, ("--prune",), refspecs, partial=partial)


def fetch_ref(git: Git, access: RemoteAccess, source: str, target: str, *, partial: bool) -> None:
    """Fetch one ref of the remote, by its full name, into a ref of the cache. Raises: as `fetch`, `not_found`."""
    _fetch(git, access, (), (f"+{source}:{target}",), partial=partial)


def fetch_tracking_refs(git: Git, access: RemoteAccess, place: str, *, partial: bool) -> None:
    """Fetch all remote-tracking refs that a local repository has, to below `place`. Raises: as `fetch`."""
    _fetch(git, access, ("--prune",), (f"+refs/remotes/*:{place}/*",), partial=partial)


def fetch_blobs(git: Git, access: RemoteAccess, oids: Sequence[str]) -> None:
    """Fetch exactly these objects, in one pack. Raises: `not_found`, `quota_exceeded`, network errors."""
    wanted = "".join(f"{oid}\n" for oid in oids).encode()
    _fetch(git, access, ("--stdin",), (), partial=True, stdin=wanted)


def _fetch(
    git: Git,
    access: RemoteAccess,
    options: Sequence[str],
    refspecs: Sequence[str],
    *,
    partial: bool,
    stdin: bytes = b"",
) -> str:
    """A local repository is read a second time if an object was missing: its owner's `git gc` may have moved objects
    into a pack since we listed the files. So is any, if a ref of the clone moved meanwhile: a push moves the
    remote-tracking branch. The caller holds the repository's lock.
    """

    def fetch() -> str:
        with open_for_reading(git, access) as readable:
            view = local_path_of(readable.remote)
            if view is None:
                return _fetch_readable(git, readable, options, refspecs, partial=partial, stdin=stdin)
            depth = _choose_depth_options(git, view)
            with keep_known_history(git, read_boundary(view)):
                return _fetch_readable(git, readable, (*depth, *options), refspecs, partial=partial, stdin=stdin)

    try:
        return run_despite_stale_locks(git.git_dir, fetch)
    except SandboxError as error:
        is_read_again = local_path_of(access.remote) is not None and error.code in _READ_AGAIN
        if not is_read_again and not is_moved_ref(error):
            raise
    return fetch()


def _choose_depth_options(git: Git, view: Path) -> tuple[str, ...]:
    """Fetch a shallow history as it is; into a clone that is shallow, as much of it as there is now."""
    return (
        *(("--update-shallow",) if is_shallow(view) else ()),
        *(("--unshallow",) if is_shallow(git.git_dir) else ()),
    )


def _fetch_readable(
    git: Git,
    access: RemoteAccess,
    options: Sequence[str],
    refspecs: Sequence[str],
    *,
    partial: bool,
    stdin: bytes,
) -> str:
    talk = "--progress" if access.progress else "--quiet"
    config = {**_ONE_PACK, "fetch.negotiationAlgorithm": "noop"} if stdin else _ONE_PACK
    source = access.remote.url
    is_local = access.remote.protocol == "file"
    if partial:
        source, options = PROMISOR_REMOTE, (*options, "--filter=blob:none")
        config = {**config, **PROMISOR_CONFIG, f"remote.{PROMISOR_REMOTE}.url": access.remote.url}

    def attempt(network: NetworkAccess, memory_bytes: int, threads: int) -> GitResult:
        limits = ResourceLimits(access.max_fetch_bytes, memory_bytes)
        words = (*network.config, *(f"{k}={v}" for k, v in config.items()), f"pack.threads={threads}")
        limited = replace(network, limits=limits, config=words)
        share = (f"--upload-pack=ulimit -d {memory_bytes * 3 // 4096}; git-upload-pack",) if is_local else ()
        with TRANSFER_BUDGET.reserve(min(memory_bytes, TRANSFER_BUDGET.total_bytes), access.timeout_s):
            return git.attempt(
                "fetch", talk, *_QUIET, *share, *options, "--", source, *refspecs,
                stdin=stdin, network=limited, deadline_s=access.timeout_s,
            )  # fmt: skip

    def once(network: NetworkAccess) -> GitResult:
        with remove_unfinished_packs(git.git_dir, access.max_fetch_bytes):
            result = attempt(network, min(FIRST_MEMORY_BYTES, access.max_memory_bytes), 2)
            if result.code != 0 and may_need_more_memory(result.stderr):
                result = attempt(network, access.max_memory_bytes, 1)  # a thread's stack counts 8 MiB
                if result.code != 0 and is_local and may_need_more_memory(result.stderr):
                    raise fetch_memory_error(result.stderr)  # the server is a process of ours, with our limit
            return result.raise_for_status("fetch")

    return _read_remote(access, once).stderr


def find_remote_branch(git: Git, access: RemoteAccess, branch: str) -> str | None:
    """The commit that a branch of the remote points to now, or None."""
    ref = f"refs/heads/{require_ref_name(branch)}"
    for oid, name in list_refs(git, access, patterns=(ref,)):
        if name == ref and is_object_id(oid):
            return oid
    return None
