"""Use-cases: keep as many spare tasks as the settings say, with their containers started, or close all of them."""

from __future__ import annotations

import logging
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from sandbox.checks.execute import CheckDirectories
from sandbox.errors import ErrorCode, SandboxError
from sandbox.lazy_dataclass import dataclass
from sandbox.models import Task, TaskStatus
from sandbox.models.spare_pool import Pool
from sandbox.profiles import Profile
from sandbox.store.home import write_atomically
from sandbox.store.lockfile import remove_abandoned
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
from sandbox.workbench.tasks.lifecycle import (
    close_task,
    draft_task,
    find_local_branch,
    find_start,
    read_base,
    start_task,
)
from sandbox.workbench.tasks.spare_tasks import digest_purpose, undo_rename
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
        tasks = list_tasks(services.home)
        spares, made, closed, problems = list[Task](), list[str](), list[str](), dict[str, str]()
        wanted = _choose_repositories(services, tasks)
        starts = dict[str, _SpareStart]()
        for repo_id in wanted:
            with _noting(problems, repo_id):
                starts[repo_id] = _find_start(services, repo_id)
        for spare in (task for task in tasks if task.status is TaskStatus.SPARE):
            start = starts.get(spare.repo_id)
            if start is not None and wanted[spare.repo_id] > 0 and start.fits(services, spare):
                wanted[spare.repo_id] -= 1
                spares.append(spare)
            elif _close_spare(services, spare.id):
                closed.append(spare.id)
        for repo_id, start in starts.items():
            with _noting(problems, repo_id):
                for _ in range(wanted[repo_id]):
                    spares.append(_make_spare(services, repo_id, start))
                    made.append(spares[-1].id)
        for spare in spares:
            with _noting(problems, spare.id):
                _start_container(services, spare)
    return Pool(spares=tuple(spares), made=tuple(made), closed=tuple(closed), problems=problems)


@contextmanager
def _noting(problems: dict[str, str], name: str) -> Iterator[None]:
    """Go on with the others if one repository or spare fails."""
    try:
        yield
    except SandboxError as error:
        _log.info("the pool of spare tasks, %s: %s", name, error.brief)
        problems[name] = error.brief


def drain_pool(services: Services) -> Pool:
    """Close all spares. Raises: `conflict` while another process fills the pool."""
    with services.home.locked(_LOCK, timeout_s=10.0):
        closed = [spare.id for spare in list_spares(services.home) if _close_spare(services, spare.id)]
    return Pool(spares=list_spares(services.home), closed=tuple(closed))


def _choose_repositories(services: Services, tasks: Sequence[Task]) -> Counter[str]:
    """How many spares each repository gets: in turn, the one in which a task was created last first."""
    known = {repository.id for repository in list_repositories(services.home)}
    used = (task.repo_id for task in reversed(tasks) if task.status is not TaskStatus.SPARE)
    recent = [repo_id for repo_id in dict.fromkeys(used) if repo_id in known]
    size = services.settings.pool.size if recent else 0
    return Counter(recent[place % len(recent)] for place in range(size))


@dataclass(frozen=True)
class _SpareStart:
    """What a task at the head of a repository's default branch would be now."""

    commit: str
    branch: str
    purpose: str

    def fits(self, services: Services, spare: Task) -> bool:
        """Whether a caller who starts there would get this spare."""
        try:
            mark = services.home.spare_mark(spare.id).read_text()
        except FileNotFoundError:
            return False
        return (spare.base_commit, mark) == (self.commit, self.purpose)


def _find_start(services: Services, repo_id: str) -> _SpareStart:
    repository, git = services.repositories.open(repo_id)
    commit, branch = find_start(services, repository, git, "HEAD")
    return _SpareStart(commit, branch, digest_purpose(services, git, repo_id, commit))


def _make_spare(services: Services, repo_id: str, start: _SpareStart) -> Task:
    """Raises: as `create_task`."""
    repository, git = services.repositories.open(repo_id)
    base_tree = clone.fetch_whole_tree(services, repository, git, start.commit)
    task_id = draw_task_id(services.home, git)
    draft = draft_task(services, repo_id, task_id, "", (start.commit, start.branch))
    branch = name_branch(task_id, f"spare {uuid.uuid4().hex[:8]}")  # of no prompt, so that it can be renamed
    own = {"branch": branch, "base_on_remote": True, "status": TaskStatus.SPARE, "session": ""}
    spare = draft.model_copy(update=own)
    made = start_task(services, git, spare, base_tree, None)
    write_atomically(services.home.spare_mark(task_id), start.purpose.encode(), synced=False)
    return made


def _close_spare(services: Services, task_id: str) -> bool:
    """Close a spare and delete what it has; False if it was taken over, or another operation holds it."""
    services.home.spare_mark(task_id).unlink(missing_ok=True)
    try:
        with services.home.locked(task_id, timeout_s=0):
            spare = find_task(services.home, task_id, allow_closed=True)
            if spare.status is not TaskStatus.SPARE:
                return False
            undo_rename(services.repositories.open(spare.repo_id)[1], spare)
        closed = close_task(services, task_id, delete=True, discard=False)  # without its mark, taken over no more
        _forget_spare(services, closed)
    except SandboxError as error:
        if error.code not in {ErrorCode.CONFLICT, ErrorCode.NOT_FOUND}:
            raise
        return False
    return True


def _forget_spare(services: Services, closed: Task) -> None:
    """Delete the record of a closed spare: no person made it, and the branch moves often. Kept, until `gc` removes
    closed tasks, if its files or its branch are. The caller closed it: it has no journal and no runs.
    """
    if closed.worktree_path is None and find_local_branch(services, closed) is None:
        services.home.task(closed.id).unlink(missing_ok=True)
        for lock in (closed.id, f"mount-{closed.id}"):
            with suppress(OSError):
                remove_abandoned(services.home.lock_path(lock))


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
