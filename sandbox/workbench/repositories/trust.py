"""Use-cases on the checks that a repository suggests: show them, trust a reviewed version, withdraw the trust."""

from __future__ import annotations

from pathlib import PurePosixPath

from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.tree import sha256_of
from sandbox.git.cache_clones import resolve_commit
from sandbox.models import Suggestion
from sandbox.profiles import SUGGESTIONS, detect, with_suggestions
from sandbox.store import trust as store
from sandbox.workbench.controller.services import Parts
from sandbox.workbench.repositories.clone import cache_of
from sandbox.workbench.repositories.commit_facts import facts_of


def suggestion(services: Parts, repo_id: str) -> Suggestion:
    """The checks that the default branch suggests. Raises: `not_found`, `invalid_input` for an invalid file."""
    repository, git = cache_of(services, repo_id)
    facts = facts_of(services, repo_id, git, resolve_commit(git, "HEAD", repository.default_branch))
    profile, content = detect(services.profiles, facts.marker), facts.marker(SUGGESTIONS)
    if content is None:
        return Suggestion(
            repo_id=repo_id, path=SUGGESTIONS, sha256=None, trusted=False, profile=profile.name, checks=()
        )
    found = with_suggestions(profile, content, PurePosixPath(services.shipped_policy.container.mounts.workspace))
    sha256 = sha256_of(content)
    return Suggestion(
        repo_id=repo_id,
        path=SUGGESTIONS,
        sha256=sha256,
        trusted=store.is_trusted(services.home, repo_id, sha256),
        profile=profile.name,
        checks=found.checks[len(profile.checks) :],
    )


def trust(services: Parts, repo_id: str, sha256: str, by: str) -> Suggestion:
    """Use the suggested checks if their file has this hash. Raises: `stale_hash` if it has another one by now."""
    found = suggestion(services, repo_id)
    if found.sha256 is None:
        raise SandboxError(
            ErrorCode.NOT_FOUND,
            f"{repo_id} suggests no checks",
            details=f"no {SUGGESTIONS} on its default branch",
            hint=f"`sandbox repo clone` fetches new commits; docs/profiles.md describes {SUGGESTIONS}.",
        )
    if found.sha256 != sha256:
        raise SandboxError(
            ErrorCode.STALE_HASH,
            f"{SUGGESTIONS} of {repo_id} has changed since you reviewed it",
            details=f"expected {sha256}, current {found.sha256}",
            hint=f"Review it again: sandbox trust {repo_id}",
        )
    store.trust(services.home, repo_id, found.sha256, by)
    return found.model_copy(update={"trusted": True})


def distrust(services: Parts, repo_id: str) -> Suggestion:
    """Stop using the checks that the repository suggests."""
    cache_of(services, repo_id)
    store.distrust(services.home, repo_id)
    return suggestion(services, repo_id)
