"""What it means that an agent wants another profile for a new task: the lines of the question, and their digest."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterator

from sandbox.git.cache_clones import resolve_commit
from sandbox.models import Check
from sandbox.profiles import Profile
from sandbox.text import escape_invisible
from sandbox.workbench.controller.services import Services
from sandbox.workbench.repositories.commit_facts import load_profile


def describe_choice(services: Services, repo_id: str, name: str) -> tuple[str, ...]:
    """What the gate asks of a task with this profile, and no longer asks. As of the repository's default branch.

    Raises: `not_found`, `invalid_input` for a profile that cannot be used.
    """
    repository, git = services.repositories.open(repo_id)
    commit = resolve_commit(git, "HEAD", repository.default_branch)
    usual, chosen = (load_profile(services, repo_id, git, commit, given) for given in (None, name))
    return (
        f"profile: {chosen.full_name} instead of {usual.full_name}, as of commit {commit[:12]} of the default branch",
        "before a push or pull request of this task the gate asks for the checks of this profile only",
        *compare_checks(usual, chosen),
    )


def compare_checks(usual: Profile, chosen: Profile) -> Iterator[str]:
    """The checks that a task with `chosen` has not, or has with another definition, and those it has. Pure."""
    found = {check.id: check for check in chosen.checks}
    missing = [check for check in usual.checks if check.id not in found]
    others = [check for check in usual.checks if check.id in found and check != found[check.id]]
    yield f"leaves out: {len(missing)} of {len(usual.checks)} check(s) of {usual.full_name}"
    yield from (f"  {_describe(check)}" for check in missing)
    yield f"runs another check of the same name: {len(others)}"
    for check in others:
        yield f"  {_describe(check)}"
        yield f"  now {_describe(found[check.id])}"
    if usual.launch is not None and usual.launch != chosen.launch:
        yield "leaves out: the launch of the application" if chosen.launch is None else "launches it in another way"
    yield f"has: {len(chosen.checks)} check(s)"
    yield from (f"  {_describe(check)}" for check in chosen.checks)


def digest_choice(services: Services, repo_id: str, name: str) -> str:
    """What a person approves with a profile: another digest once it leaves out another check. Raises: as
    `describe_choice`.
    """
    return hashlib.sha256("\n".join(describe_choice(services, repo_id, name)).encode()).hexdigest()


def _describe(check: Check) -> str:
    return escape_invisible(f"{check.id}: {shlex.join(check.argv)}")
