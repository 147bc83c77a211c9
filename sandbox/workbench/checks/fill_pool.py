"""Use-cases: keep as many spare tasks as the settings say, with their containers started, or close all of them."""

from __future__ import annotations

import logging
import uuid
from collections import Counter
from datetime import UTC, datetime

from sandbox.checks.execute import CheckDirectories
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import Task, TaskStatus, WorkspaceKind
from sandbox.models.spare_pool import Pool
from sandbox.profiles import Profile
from sandbox.store.records import find_task, list_repositories, list_spares, list_tasks
from sandbox.workbench.checks import run as running
from sandbox.workbench.checks.check_order import order_checks
from sandbox.workbench.checks.git_facts import add_git_facts
from sandbox.workbench.checks.guest_setup import resolve_guest_setup
from sandbox.workbench.checks.layers import add_known_layers, find_last_tree, hold_layers
from sandbox.workbench.controller.guest_accounts import find_account
from sandbox.workbench.controller.services import Services
from sandbox.workbench.repositories import clone
from sandbox.workbench.repositories.commit_facts import profile_from_facts
from sandbox.workbench.tasks.branch_names import draw_task_id, name_branch
from sandbox.workbench.tasks.lifecycle import close_task, find_start, read_base, start_task
from sandbox.workbench.tasks.spare_tasks import digest_purpose
from sandbox.workbench.tasks.worktrees import ensure_site_mounted, locate_worktree
from sandbox.workspaces.own_disk import settle_disk

_log = logging.getLogger(__name__)

_LOCK = "pool"
_FIRST = "test"
"""The check that a task is most likely to run first."""


def fill_pool(services: Services) -> Pool:
    """Make and close spares until there are those that `pool.size` asks for, and start their containers.

    Raises: `conflict` while another process does it.
    """
    with services.home.locked(_LOCK, timeout_s=0):
        wanted = choose_repositories(services)
        closed, made, cold = list[str](), list[str](), dict[str, str]()
        for spare in list_spares(services.home):
            if wanted[spare.repo_id] > 0 and _is_current(services, spare):
                wanted[spare.repo_id] -= 1
            elif _close_spare(services, spare.id):
                closed.append(spare.id)
        for repo_id, count in wanted.items():
            try:
                made += [_make_spare(services, repo_id).id for _ in range(count)]
            except SandboxError as error:
                _log.info("no spare task for %s: %s", repo_id, error)
                cold[repo_id] = error.brief
        spares = list_spares(services.home)
        for spare in spares:
            try:
                _start_container(services, spare)
            except SandboxError as error:
                _log.info("the spare %s has no container: %s", spare.id, error)
                cold[spare.id] = error.brief
    return Pool(spares=spares, made=tuple(made), closed=tuple(closed), cold=cold)


def drain_pool(services: Services) -> Pool:
    """Close all spares. Raises: `conflict` while another process fills the pool."""
    with services.home.locked(_LOCK, timeout_s=10.0):
        closed = [spare.id for spare in list_spares(services.home) if _close_spare(services, spare.id)]
    return Pool(spares=list_spares(services.home), closed=tuple(closed))


def choose_repositories(services: Services) -> Counter[str]:
    """How many spares each repository gets: in turn, the one in which a task was created last first."""
    known = {repository.id for repository in list_repositories(services.home)}
    tasks = [task for task in list_tasks(services.home) if task.status is not TaskStatus.SPARE]
    recent = list(dict.fromkeys(task.repo_id for task in reversed(tasks) if task.repo_id in known))
    size = services.settings.pool.size if recent else 0
    return Counter(recent[place % len(recent)] for place in range(size))


def _make_spare(services: Services, repo_id: str) -> Task:
    """A new spare at the head of the default branch. Raises: as `create_task`."""
    repository, git = services.repositories.open(repo_id)
    commit, branch = find_start(services, repository, git, "HEAD")
    base_tree = clone.fetch_whole_tree(services, repository, git, commit)
    purpose = digest_purpose(services, git, repo_id, commit)
    task_id = draw_task_id(services.home, git)
    spare = Task(
        id=task_id,
        repo_id=repo_id,
        prompt="",
        base_branch=branch,
        branch=name_branch(task_id, f"spare {uuid.uuid4().hex[:8]}"),
        base_commit=commit,
        workspace_kind=WorkspaceKind.WORKTREE,
        worktree_path=services.home.worktree(repo_id, task_id),
        status=TaskStatus.SPARE,
        head_commit=commit,
        created_at=datetime.now(UTC),
    )
    made = start_task(services, git, spare, base_tree, None)
    services.home.spare_mark(task_id).write_text(purpose)
    return made


def _is_current(services: Services, spare: Task) -> bool:
    """Whether a caller who starts at the head of the default branch would get this spare now."""
    try:
        repository, git = services.repositories.open(spare.repo_id)
        commit, _ = find_start(services, repository, git, "HEAD")
        mark = services.home.spare_mark(spare.id).read_text()
    except (SandboxError, FileNotFoundError):
        return False
    return commit == spare.base_commit and mark == digest_purpose(services, git, spare.repo_id, commit)


def _close_spare(services: Services, task_id: str) -> bool:
    """Close a spare and delete what it has; False if it was taken over, or another operation holds it."""
    services.home.spare_mark(task_id).unlink(missing_ok=True)
    try:
        with services.home.locked(task_id, timeout_s=0):
            if find_task(services.home, task_id, allow_closed=True).status is not TaskStatus.SPARE:
                return False
        close_task(services, task_id, delete=True, discard=False)  # without its mark, it is taken over no more
    except SandboxError as error:
        if error.code not in {ErrorCode.CONFLICT, ErrorCode.NOT_FOUND}:
            raise
        return False
    return True


def _start_container(services: Services, spare: Task) -> None:
    """Start the container that the first check will find. Raises: errors of images, layers and the engine; `conflict`
    while the spare is taken over.
    """
    base = read_base(services, spare)
    profile = profile_from_facts(services, spare.repo_id, base.facts, None)
    profile = add_git_facts(profile, base.git, spare.head_commit)
    check = order_checks(profile, [_find_first(profile)], services.policies.container.container)[0]
    (part,) = profile.parts_of([check])
    tree = find_last_tree(services, spare)
    setup = add_known_layers(services, resolve_guest_setup(services, part), part, tree)
    container = running.build_task_container(services, setup, spare.id)
    with hold_layers(services, spare.id, setup), services.home.locked(spare.id, timeout_s=0):
        if find_task(services.home, spare.id, allow_closed=True).status is not TaskStatus.SPARE:
            return
        site = locate_worktree(services.home, services.policies, spare.repo_id, spare.id)
        root = ensure_site_mounted(services.home, spare, site)
        report = running.prepare_task_report(services.home, spare.id, site)
        account = find_account(services, site.owner)
        container.start(check, CheckDirectories(root, report, account, "", clean_room=False, task_id=spare.id))
        settle_disk(site.layers)  # the first time takes longer, and each check does it


def _find_first(profile: Profile) -> str:
    names = [check.id for check in profile.checks]
    return _FIRST if _FIRST in names or not names else names[0]
