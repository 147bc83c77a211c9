"""Use-cases on the checks that a repository suggests: show them, trust a reviewed version, withdraw the trust."""

from __future__ import annotations

from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.tree import sha256_of
from sandbox.git.cache_clones import resolve_commit
from sandbox.models import Suggestion
from sandbox.profiles import SUGGESTIONS, add_suggested_checks, detect_profile
from sandbox.store import trust as store
from sandbox.workbench.controller.services import Services
from sandbox.workbench.repositories.commit_facts import load_facts


def read_suggestion(services: Services, repo_id: str) -> Suggestion:
    """The checks that the default branch suggests. Raises: `not_found`, `invalid_input` for an invalid file."""
    repository, git = services.repositories.open(repo_id)
    facts = load_facts(
        services.home, services.policies, repo_id, git, resolve_commit(git, "HEAD", repository.default_branch)
    )
    profile, content = detect_profile(services.policies.profiles, facts.marker), facts.marker(SUGGESTIONS)
    if content is None:
        return Suggestion(
            repo_id=repo_id, path=SUGGESTIONS, sha256=None, trusted=False, profile=profile.name, checks=(), services=()
        )
    extended = add_suggested_checks(profile, content, services.policies.workspace)
    sha256 = sha256_of(content)
    return Suggestion(
        repo_id=repo_id,
        path=SUGGESTIONS,
        sha256=sha256,
        trusted=store.is_trusted(services.home, repo_id, sha256),
        profile=profile.name,
        checks=extended.checks[len(profile.checks) :],
        services=extended.services[len(profile.services) :],
    )


def trust(services: Services, repo_id: str, sha256: str, by: str) -> Suggestion:
    """Use the suggested checks if their file has this hash. Raises: `stale_hash` if it has another one by now."""
    suggestion = read_suggestion(services, repo_id)
    if suggestion.sha256 is None:
        raise SandboxError(
            ErrorCode.NOT_FOUND,
            f"{repo_id} suggests no checks",
            details=f"no {SUGGESTIONS} on its default branch",
            hint=f"`sandbox repo clone` fetches new commits; docs/profiles.md describes {SUGGESTIONS}.",
        )
    if suggestion.sha256 != sha256:
        raise SandboxError(
            ErrorCode.STALE_HASH,
            f"{SUGGESTIONS} of {repo_id} has changed since you reviewed it",
            details=f"expected {sha256}, current {suggestion.sha256}",
            hint=f"Review it again: sandbox trust {repo_id}",
        )
    store.trust_content(services.home, repo_id, suggestion.sha256, by)
    return suggestion.model_copy(update={"trusted": True})


def distrust(services: Services, repo_id: str) -> Suggestion:
    """Stop using the checks that the repository suggests."""
    services.repositories.open(repo_id)
    store.revoke_trust(services.home, repo_id)
    return read_suggestion(services, repo_id)
