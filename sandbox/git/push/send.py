"""Send one commit to one branch of a remote, and make sure that it is there."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from sandbox.credentials import without_secret
from sandbox.errors import ErrorCode, SandboxError
from sandbox.git.objects import absent, check_ref_name, peel
from sandbox.git.process import Git
from sandbox.git.push.reasons import PushReason, PushRejected
from sandbox.git.push.receiving import receiver
from sandbox.git.push.rejection import rejection
from sandbox.git.transport import Access, granted, remote_branch

_PAGE = re.compile(r"^remote:.*?(https://[!-~]{1,1000})")
_ASK_AGAIN = "Push again: that asks the remote first, and sends nothing twice."


def push(git: Git, access: Access, commit: str, branch: str, expected: str | None) -> str | None:
    """Send exactly `commit` to one branch, which must still be at `expected` (None: not exist), and verify.

    Returns the page where the server says a pull request can be opened, if it is on its own host.

    Raises: `push_rejected` (`PushRejected`) and network errors; `conflict` when the remote ends up elsewhere.
    """
    check_ref_name(branch)
    if peel(git, commit, "commit") != commit:
        raise absent(f"Commit {commit[:12]} is not in the cache clone")
    try:
        page = page_of(_send(git, access, commit, f"refs/heads/{branch}", expected), access.remote.hostname)
    except PushRejected as error:
        if error.reason is not PushReason.BRANCH_MOVED:
            raise
        _require_arrived(git, access, commit, branch, expected, error)
        return None
    except SandboxError as error:
        if error.code in {ErrorCode.NETWORK_ERROR, ErrorCode.TIMEOUT}:
            error.hint = f"{error.hint} It may have arrived all the same. {_ASK_AGAIN}".lstrip()
        raise
    _verify(git, access, commit, branch)
    return page


def page_of(said: str, hostname: str) -> str | None:
    """The first address on the server's own host among its words, which git shows after `remote:`. Pure."""
    for line in said.splitlines():
        found = _PAGE.match(line)
        if found is not None and _is_on(found[1], hostname):
            return found[1]
    return None


def _is_on(url: str, hostname: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:  # no address after all
        return False
    return parts.hostname == hostname and "@" not in parts.netloc


def _send(git: Git, access: Access, commit: str, ref: str, expected: str | None) -> str:
    with granted(access) as grant:
        result = git.attempt(
            "push", "--porcelain", "--no-verify", "--no-follow-tags", f"--force-with-lease={ref}:{expected or ''}",
            *receiver(git, access.remote), "--", access.remote.url, f"{commit}:{ref}",
            grant=grant, deadline_s=access.timeout_s,
        )  # fmt: skip
    if result.code != 0:
        said = (without_secret(t, access.credential) for t in (result.stderr, result.stdout.decode(errors="replace")))
        raise rejection(ref, result.code, *said)
    return without_secret(result.stderr, access.credential)


def _require_arrived(
    git: Git, access: Access, commit: str, branch: str, expected: str | None, error: PushRejected
) -> None:
    """A lost lease is none if the branch is where we wanted it: curl sends a request again whose answer was lost.

    Raises: the rejection with what the remote has instead; as it was when that cannot be asked, or changed back.
    """
    try:
        found = remote_branch(git, access, branch)
    except SandboxError:
        raise error from None
    if found == expected:
        raise error
    if found != commit:
        reason = PushReason.BRANCH_MOVED if expected else PushReason.BRANCH_EXISTS
        seen = f"{branch}: expected {expected or 'no such branch'}, found {found or 'no such branch'}"
        raise PushRejected(reason if found else PushReason.BRANCH_DELETED, said=f"{seen}\n{error.said}") from None


def _verify(git: Git, access: Access, commit: str, branch: str) -> None:
    try:
        found = remote_branch(git, access, branch)
    except SandboxError as error:
        brief = "The remote took the push, and could not be asked afterwards whether it is there"
        raise SandboxError(error.code, brief, details=f"{error.brief}\n{error.details}", hint=_ASK_AGAIN) from error
    if found != commit:
        raise SandboxError(
            ErrorCode.CONFLICT,
            f"The remote took the push, and its {branch} is something else now",
            details=f"sent {commit}\nfound {found or 'no such branch'}",
            hint="A hook of the server or somebody else changed it at once: look at the branch there. "
            "Where a server's copies lag behind one another, push again: that asks once more.",
        )
