"""Which commits are snapshots or rescued work. Both are kept on this host only: no task starts there, and no push sends
one.

If the ref of a snapshot was deleted, the end of its message tells.
"""

from __future__ import annotations

from sandbox.errors import ErrorCode, SandboxError
from sandbox.git.process import Git
from sandbox.workbench.controller.commit_identity import SANDBOX

BASE_KEY = "Sandbox-Base"
"""The trailer in the message of each snapshot."""

_PLACES = ("refs/sandbox/*/snapshots/*", "refs/sandbox/*/rescued-*")
_BRANCH_OF_WORKSPACE = "/snapshots/branch"
"""The end of the ref for commits of a workspace of kind `tree`, which are no snapshots."""


def find_kept_commits(git: Git, head: str, *without: str) -> frozenset[str]:
    """The snapshots and rescued work among the commits on `head`. `without`: more arguments of `rev-list`, which choose
    the commits to leave out. Raises: `not_found`.
    """
    listed = git.run("for-each-ref", "--format=%(objectname) %(refname)", *_PLACES).decode().splitlines()
    kept = {line.partition(" ")[0] for line in listed if not line.endswith(_BRANCH_OF_WORKSPACE)}
    reached = frozenset(git.run("rev-list", head, *without).decode().split())
    message = (f"--author={SANDBOX.email}", f"--committer={SANDBOX.email}", f"--grep=^{BASE_KEY}: [0-9a-f]*$")
    return reached & (kept | frozenset(git.run("rev-list", *message, head, *without).decode().split()))


def require_possible_start(git: Git, name: str, commit: str) -> None:
    """Raises: `invalid_input` if a task was to start at a snapshot. `name`: of the start, as the caller gave it."""
    if find_kept_commits(git, commit, f"^{commit}^@"):
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            f"'{name[:100]}' is the commit of a snapshot, or of rescued work, which no push may send",
            hint="`sandbox task create REPO --from-snapshot SNAPSHOT` makes a task with the files of a snapshot.",
        )
