"""Run checks of any commit of a repository as `run` would, so that both share cached verdicts."""

from __future__ import annotations

from sandbox.models import BisectQuery, CheckRun
from sandbox.profiles import Profile
from sandbox.workbench.checks.callbacks import Watch
from sandbox.workbench.checks.check_order import order_checks
from sandbox.workbench.checks.clean_rooms import VerifyRequest, run_in_rooms
from sandbox.workbench.checks.git_facts import add_git_facts
from sandbox.workbench.checks.verify_options import VerifyOptions
from sandbox.workbench.controller.services import Services
from sandbox.workbench.repositories.clone import fetch_whole_tree
from sandbox.workbench.repositories.commit_facts import TreeSource, load_facts, profile_with_settings
from sandbox.workbench.repositories.commit_settings import complete_settings
from sandbox.workbench.repositories.repository_settings import read_settings


def load_commit_profile(services: Services, repo_id: str, commit: str) -> Profile:
    """The profile of a commit, with its facts. Raises: `not_found`; `invalid_input` for a mistake in it."""
    _, git = services.repositories.open(repo_id)
    chosen = read_settings(services.home, services.policies, repo_id)
    facts = load_facts(services.home, services.policies, repo_id, git, commit, chosen.folders)
    chosen = complete_settings(services.home, services.policies, repo_id, facts, chosen)
    profile = profile_with_settings(services, repo_id, facts, chosen, strict=True)
    return add_git_facts(profile, git, commit)


def run_commit_check(
    services: Services, repo_id: str, commit: str, query: BisectQuery, watch: Watch, options: VerifyOptions
) -> tuple[CheckRun, ...]:
    """Run the check of a query on a commit, after those it requires. Raises: as `order_checks` and `run_in_rooms`."""
    profile = load_commit_profile(services, repo_id, commit)
    repository, git = services.repositories.open(repo_id)
    tree = fetch_whole_tree(services, repository, git, commit)
    checks = order_checks(profile, [query.check_id], services.policies.container.container)
    source = TreeSource(repo_id, git, tree, commit)
    request = VerifyRequest(profile, checks, repo_id, tests_of=() if query.test is None else [query.check_id])
    return run_in_rooms(services, source, request, watch, options)
