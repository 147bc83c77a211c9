"""Use-cases on what a repository suggests for its checks: show it, trust a reviewed version, withdraw the trust."""

from __future__ import annotations

from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.tree import sha256_of
from sandbox.git.cache_clones import resolve_commit
from sandbox.models import Suggestion
from sandbox.profiles import SUGGESTIONS
from sandbox.profiles.suggested_checks import add_suggested_file, read_suggested_projects
from sandbox.store import trust as store
from sandbox.workbench.controller.services import Services
from sandbox.workbench.repositories.commit_facts import load_facts
from sandbox.workbench.repositories.commit_settings import complete_settings
from sandbox.workbench.repositories.repository_settings import choose_profile, read_settings
from sandbox.workbench.repositories.suggested import read_suggested_parts


def read_suggestion(services: Services, repo_id: str) -> Suggestion:
    """What the default branch suggests. Raises: `not_found`, `invalid_input` for an invalid file of checks."""
    repository, git = services.repositories.open(repo_id)
    facts = load_facts(
        services.home, services.policies, repo_id, git, resolve_commit(git, "HEAD", repository.default_branch)
    )
    recorded = read_settings(services.home, services.policies, repo_id)
    chosen = complete_settings(services.home, services.policies, repo_id, facts, recorded)
    profile, content = choose_profile(services.policies, facts, chosen), facts.marker(SUGGESTIONS)
    extended = profile if content is None else add_suggested_file(profile, content, services.policies.workspace)
    sha256 = None if content is None else sha256_of(content)
    others = read_suggested_parts(services, repo_id, facts)
    return Suggestion(
        repo_id=repo_id,
        path=SUGGESTIONS,
        sha256=sha256,
        trusted=sha256 is not None and store.is_trusted(services.home, repo_id, sha256),
        profile=profile.name,
        checks=extended.checks[len(profile.checks) :],
        packages=extended.packages[len(profile.packages) :],
        services=extended.services[len(profile.services) :],
        projects={} if content is None else read_suggested_projects(content),
        parts=others.parts,
        notes=others.notes,
    )


def trust(services: Services, repo_id: str, sha256: str, by: str) -> Suggestion:
    """Use what has this hash: the file of checks, or a part of another file.

    Raises: `stale_hash` if no suggestion has this hash now; `not_found` if there are none.
    """
    suggestion = read_suggestion(services, repo_id)
    known = [suggestion.sha256, *(part.sha256 for part in suggestion.parts)]
    if not any(known):
        raise SandboxError(
            ErrorCode.NOT_FOUND,
            f"{repo_id} has no suggestions for its checks",
            details=f"no {SUGGESTIONS} on its default branch, and no CI workflow or other file with suggestions",
            hint=f"`sandbox repo clone` fetches new commits; docs/profiles.md describes {SUGGESTIONS}.",
        )
    whole = [full for full in known if full and full.startswith(sha256)]
    if whole and sha256 not in known:
        raise SandboxError(
            ErrorCode.INVALID_INPUT, "This is only the beginning of a hash", hint=f"Give all of it: {', '.join(whole)}"
        )
    if sha256 not in known:
        raise SandboxError(
            ErrorCode.STALE_HASH,
            f"What {repo_id} suggests has changed since you reviewed it",
            details=f"expected {sha256}, current {', '.join(filter(None, known))}",
            hint=f"Review it again: sandbox trust {repo_id}",
        )
    store.trust_content(services.home, repo_id, sha256, by)
    return read_suggestion(services, repo_id)


def distrust(services: Services, repo_id: str) -> Suggestion:
    """Stop using what the repository suggests."""
    services.repositories.open(repo_id)
    store.revoke_trust(services.home, repo_id)
    return read_suggestion(services, repo_id)
