"""Push one commit to one branch of a remote, and verify that it arrived."""

from __future__ import annotations

import re
from dataclasses import replace
from urllib.parse import urlsplit

from sandbox.credentials import remove_secret
from sandbox.errors import ErrorCode, SandboxError
from sandbox.git.blobs import missing_object_error
from sandbox.git.failures import memory_error
from sandbox.git.local.local_remotes import local_path_of, require_local_repository
from sandbox.git.local.publishing import publish_branch
from sandbox.git.local.remote_hooks import require_no_deciding_hook
from sandbox.git.local.view import view_local_repository
from sandbox.git.notes import NOTES_REF
from sandbox.git.objects import peel
from sandbox.git.process import Git, ResourceLimits
from sandbox.git.push.reasons import PushReason, PushRejected
from sandbox.git.push.receiving import MAX_PACK_BYTES, receive_pack_options
from sandbox.git.push.rejection import classify_rejection
from sandbox.git.refs import require_ref_name
from sandbox.git.transport import MAX_REFS, RemoteAccess, find_remote_branch, list_refs, network_access
from sandbox.memory import TRANSFER_BUDGET, TRANSFER_BYTES

_PAGE = re.compile(r"^remote:.*?(https://[!-~]{1,1000})")
MEMORY_BYTES = TRANSFER_BYTES
"""Of each git process of a push: of pack-objects, and over a local path of the git that receives. Reached:
`quota_exceeded`."""
_PUSH_AGAIN = "Push again: this first checks the remote, and does not send the commit twice."


def push(git: Git, access: RemoteAccess, commit: str, branch: str, expected: str | None) -> str | None:
    """Push exactly `commit` to one branch, which must still be at `expected` (None: must not exist), and verify.

    Returns the page that the server names for opening a pull request, if the page is on the server's host.

    Raises: `push_rejected` (`PushRejected`) and network errors; `conflict` if the branch then has another commit;
    `quota_exceeded` if git may not use as much memory as the objects need; `policy_violation` for a local path with
    hooks that may decline a push.
    """
    require_ref_name(branch)
    if peel(git, commit, "commit") != commit:
        raise missing_object_error(f"Commit {commit[:12]} is not in the cache clone")
    try:
        page = find_pull_request_page(
            _send(git, access, commit, f"refs/heads/{branch}", expected), access.remote.hostname
        )
    except PushRejected as error:
        if error.reason is not PushReason.BRANCH_MOVED:
            raise
        _require_arrived(git, access, commit, branch, expected, error)
        return None
    except SandboxError as error:
        if error.code in {ErrorCode.NETWORK_ERROR, ErrorCode.TIMEOUT}:
            raise error.with_hint(f"{error.hint} The commit may have arrived. {_PUSH_AGAIN}".lstrip()) from error
        raise
    _verify_arrived(git, access, commit, branch)
    return page


def push_notes(git: Git, access: RemoteAccess, commit: str, expected: str | None) -> None:
    """Push the ref of receipts, which must still be at `expected` (None: must not exist), and verify.

    Raises: as `push`.
    """
    _send(git, access, commit, NOTES_REF, expected)
    found = [oid for oid, name in list_refs(git, access, patterns=(NOTES_REF,)) if name == NOTES_REF]
    if found != [commit]:
        raise SandboxError(
            ErrorCode.CONFLICT,
            f"The remote accepted the push, but {NOTES_REF} now has another commit",
            details=f"sent {commit}\nfound {found}",
            hint="Fetch the receipts to see whether yours is among them.",
        )


def find_pull_request_page(output: str, hostname: str) -> str | None:
    """The first URL on the server's own host in its text, which git prints after `remote:`. Pure."""
    for line in output.splitlines():
        found = _PAGE.match(line)
        if found is not None and _is_on_host(found[1], hostname):
            return found[1]
    return None


def _is_on_host(url: str, hostname: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:  # not a URL
        return False
    return parts.hostname == hostname and "@" not in parts.netloc


def _send(git: Git, access: RemoteAccess, commit: str, ref: str, expected: str | None) -> str:
    require_local_repository(access.remote)
    path = local_path_of(access.remote)
    if path is None:
        return _send_to(git, access, commit, ref, expected)
    with view_local_repository(git, path, MAX_REFS) as view:
        require_no_deciding_hook(view.repository)
        inside = replace(access, remote=replace(access.remote, url=view.url))
        said = _send_to(git, inside, commit, ref, expected)
        if not publish_branch(view, ref, commit, MAX_REFS):
            raise PushRejected(PushReason.BRANCH_MOVED)
        return said


def _send_to(git: Git, access: RemoteAccess, commit: str, ref: str, expected: str | None) -> str:
    limits = ResourceLimits(MAX_PACK_BYTES, MEMORY_BYTES)
    with network_access(access) as network, TRANSFER_BUDGET.reserve(MEMORY_BYTES, access.timeout_s):
        result = git.attempt(
            "push", "--porcelain", "--no-verify", "--no-follow-tags", f"--force-with-lease={ref}:{expected or ''}",
            *receive_pack_options(git, access.remote), "--", access.remote.url, f"{commit}:{ref}",
            network=replace(network, limits=limits), deadline_s=access.timeout_s,
        )  # fmt: skip
    if result.code != 0:
        if error := memory_error("push", remove_secret(result.stderr, access.credential)):
            raise error
        said = (remove_secret(t, access.credential) for t in (result.stderr, result.stdout.decode(errors="replace")))
        raise classify_rejection(ref, result.code, *said)
    return remove_secret(result.stderr, access.credential)


def _require_arrived(
    git: Git, access: RemoteAccess, commit: str, branch: str, expected: str | None, error: PushRejected
) -> None:
    """A failed lease is no failure if the branch is at our commit: curl repeats a request if the answer was lost.

    Raises: the rejection with what the remote has instead; `error` itself if the remote cannot be asked, or if the
    branch is at `expected` again.
    """
    try:
        found = find_remote_branch(git, access, branch)
    except SandboxError:
        raise error from None
    if found == expected:
        raise error
    if found != commit:
        reason = PushReason.BRANCH_MOVED if expected else PushReason.BRANCH_EXISTS
        seen = f"{branch}: expected {expected or 'no such branch'}, found {found or 'no such branch'}"
        raise PushRejected(reason if found else PushReason.BRANCH_DELETED, output=f"{seen}\n{error.output}") from None


def _verify_arrived(git: Git, access: RemoteAccess, commit: str, branch: str) -> None:
    try:
        found = find_remote_branch(git, access, branch)
    except SandboxError as error:
        brief = "The remote accepted the push, but it could not be verified"
        raise SandboxError(error.code, brief, details=f"{error.brief}\n{error.details}", hint=_PUSH_AGAIN) from error
    if found != commit:
        raise SandboxError(
            ErrorCode.CONFLICT,
            f"The remote accepted the push, but {branch} now has another commit",
            details=f"sent {commit}\nfound {found or 'no such branch'}",
            hint="A server hook or another user changed the branch: check it there. "
            "If the server's replicas lag behind, push again: this checks once more.",
        )
