"""The hints of workspaces that come from a repository: `REPO` or `REPO@BRANCH`."""

from __future__ import annotations

from dataclasses import dataclass

from sandbox.errors import ErrorCode, SandboxError
from sandbox.git.refs import require_ref_name

HINT_FORMAT = "REPO or REPO@BRANCH: the id of a registered repository, and a branch of it"


@dataclass(frozen=True)
class RepositoryHint:
    """`branch`: None for the default one."""

    repo_id: str
    branch: str | None


def parse_repository_hint(hint: str | None) -> RepositoryHint:
    """Raises: `invalid_input` for a hint without a repository, or for text that no branch is named."""
    repo_id, at, branch = (hint or "").partition("@")
    if not repo_id:
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            "The hint of this kind of workspace must name a repository",
            hint=f"Its format: {HINT_FORMAT}.",
        )
    return RepositoryHint(repo_id, require_ref_name(branch) if at else None)
