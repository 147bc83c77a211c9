"""Worktrees of tasks and clean rooms: their paths, and how to create, mount, open and remove them."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sandbox.errors import ErrorCode, SandboxError, translate_shortage
from sandbox.files.checkout import FILE_TIME_NS
from sandbox.files.tree import WorktreeFiles
from sandbox.git.objects import EMPTY_TREES, list_tree
from sandbox.git.process import Git
from sandbox.lazy_module import LazyModule
from sandbox.models import Check, Task, TaskStatus, WorkspaceKind
from sandbox.store.home import GIT_MASK, Home
from sandbox.store.records import find_task
from sandbox.workbench.controller.disk_admission import NO_DEMAND, RECORD_DEMAND, Demand, Writer
from sandbox.workbench.controller.disk_demands import demand_of_checkout, demand_of_difference
from sandbox.workbench.controller.guest_accounts import lease_user, release_user
from sandbox.workbench.controller.policies_in_force import Policies
from sandbox.workbench.controller.services import Services
from sandbox.workspaces.added_trees import name_checkout
from sandbox.workspaces.layout import WorktreePaths
from sandbox.workspaces.layout_choice import choose_layout, layout_of
from sandbox.workspaces.lfs_objects import LfsObjects
from sandbox.workspaces.overlay_layout import OverlayLayout, checkout_of
from sandbox.workspaces.own_disk import find_files, has_failed, remove_with_mounts
from sandbox.workspaces.pristine import ensure_pristine, remove_unused
from sandbox.workspaces.restore import RestoreSource, restore_tree
from sandbox.workspaces.statcache import StatCacheFiles

if TYPE_CHECKING:
    from sandbox import durable
    from sandbox.config import Settings
    from sandbox.models import Check
    from sandbox.workbench.controller import disk_space
    from sandbox.workbench.repositories import commit_facts, submodules
    from sandbox.workbench.repositories import lfs as lfs_files
    from sandbox.workbench.repositories.repository_settings import AddedFiles
else:  # loaded at first use (docs/adr/0080)
    durable = LazyModule("sandbox.durable")
    lfs_files = LazyModule("sandbox.workbench.repositories.lfs")
    commit_facts = LazyModule("sandbox.workbench.repositories.commit_facts")
    disk_space = LazyModule("sandbox.workbench.controller.disk_space")
    submodules = LazyModule("sandbox.workbench.repositories.submodules")

_log = logging.getLogger(__name__)


def locate_worktree(home: Home, policies: Policies, repo_id: str, task_id: str) -> WorktreePaths:
    """The directories of a task's worktree. Its owner is read from the directories: no guest can change it."""
    root, layers = home.worktree(repo_id, task_id), home.layers(repo_id, task_id)
    return WorktreePaths(
        root=root,
        layers=layers,
        pristines=home.pristines(repo_id),
        owner=None if policies.pristine_owner is None else read_owner(root, layers),
        pristine_owner=policies.pristine_owner,
        mask=GIT_MASK,
        stat_cache=StatCacheFiles(home.stat_index(task_id), home.guest_mark(task_id)),
    )


def locate_new_worktree(services: Services, repo_id: str, task_id: str, checks: Sequence[Check]) -> WorktreePaths:
    """The directories of a task's worktree that is about to be created, for a user of its own, with a disk for these
    checks.

    Raises: `quota_exceeded` when no uid is free, `internal`.
    """
    site = locate_worktree(services.home, services.policies, repo_id, task_id)
    disk = disk_space.choose_disk(services, checks, is_room=False)
    return replace(site, owner=lease_user(services, task_id), new_disk=disk)


def list_checks_at(
    services: Services, git: Git, repo_id: str, commit: str, profile: str | None = None
) -> tuple[Check, ...]:
    """The checks that a worktree at this base commit is for; none if its profile cannot be used."""
    try:
        return commit_facts.load_profile(services, repo_id, git, commit, profile).checks
    except SandboxError as error:
        _log.info("the checks of %s at %s are unknown: %s", repo_id, commit, error.brief)
        return ()


def create_worktree(services: Services, repo_id: str, git: Git, tree: str, site: WorktreePaths) -> None:
    """Create a worktree that holds `tree`, its submodules and its files of Git LFS, in the layout that the settings and
    this host allow.

    Raises: `quota_exceeded` for a full disk, or a tree past the limits of a checkout; as `find_submodules` and
    `find_large_files`.
    """
    added = submodules.find_submodules(services, repo_id, git, tree)
    large = lfs_files.find_large_files(services, repo_id, git, [tree])
    _create_with(services, repo_id, git, tree, replace(site, added=added, large=large))


def _create_with(services: Services, repo_id: str, git: Git, tree: str, site: WorktreePaths) -> None:
    """Create a worktree that holds `tree` and what the site says."""
    home = services.home
    layout = choose_layout(services.settings.workspaces.worktree, home.repositories, site.id_mapping)
    is_overlay = layout.kind == "overlay"
    with home.locked(f"pristine-{repo_id}") if is_overlay else nullcontext():
        has_checkout = is_overlay and (site.pristines / name_checkout(tree, site.added, site.large)).is_dir()
        demand = NO_DEMAND if has_checkout else _demand_of_files(git, tree, site)
        with services.disk.admit(Writer.CHECKOUT, demand + RECORD_DEMAND):
            layout.create(git, tree, site)


def _demand_of_files(git: Git, tree: str, site: WorktreePaths) -> Demand:
    total = demand_of_checkout(replace(entry, size=site.large.size_of(entry)) for entry in list_tree(git, tree))
    for one in site.added:
        total += demand_of_checkout(one.entries())
    return total


@contextmanager
def clean_room(
    services: Services,
    repo_id: str,
    git: Git,
    trees: tuple[str, str],
    wanted: AddedFiles,
    checks: Sequence[Check] = (),
) -> Iterator[WorktreePaths]:
    """A fresh worktree for these checks that holds the first tree, for a user of its own. It is removed afterwards,
    also after an error.

    If the pristine checkout of the second tree exists, it is shared. No pristine checkout is created: the first tree
    may not be needed again. `wanted`: what the key of what is made in the room says; no setting is read again.
    """
    tree, similar_tree = trees
    large = lfs_files.find_large_files(services, repo_id, git, [tree], wanted=wanted.lfs)
    added = submodules.find_submodules(services, repo_id, git, tree, wanted)
    site = replace(_locate_room(services, repo_id, f"room-{services.presence.new_id()}"), added=added, large=large)
    try:
        if (site.pristines / name_checkout(similar_tree, added, large)).is_dir():
            site = replace(site, new_disk=disk_space.choose_disk(services, checks, is_room=True))
            _create_worktree_over(services, repo_id, RestoreSource(git, large), (similar_tree, tree), site)
        else:
            site = _create_full_room(services, repo_id, git, tree, (site, checks))
        yield site
    finally:
        remove_worktree(services, site)


def _create_full_room(
    services: Services, repo_id: str, git: Git, tree: str, room: tuple[WorktreePaths, Sequence[Check]]
) -> WorktreePaths:
    """Fill a room with files of its own, as an overlay only for the sake of a disk of its own.

    Raises: as `choose_layout`.
    """
    site, checks = room
    demand = _demand_of_files(git, tree, site)
    site = replace(site, new_disk=disk_space.choose_disk(services, checks, is_room=True, content=demand))
    setting = "plain" if site.new_disk is None else services.settings.workspaces.worktree
    layout = choose_layout(setting, services.home.repositories, site.id_mapping)
    with services.disk.admit(Writer.CHECKOUT, demand):
        if isinstance(layout, OverlayLayout):
            with services.home.locked(f"pristine-{repo_id}"):
                ensure_pristine(git, (), site.pristines / EMPTY_TREES[len(tree)], site.pristine_owner)
            layout.create_apart(git, tree, site)
        else:
            layout.create(git, tree, site)
    return site


def _locate_room(services: Services, repo_id: str, user_of: str) -> WorktreePaths:
    """The directories of a new room. `user_of`: id of the task or room that its user is for."""
    root = services.home.clean_room(f"room-{services.presence.new_id()}")
    return WorktreePaths(
        root=root,
        layers=root.with_name(f"{root.name}.layers"),
        pristines=services.home.pristines(repo_id),
        owner=lease_user(services, user_of),
        pristine_owner=services.policies.pristine_owner,
        mask=GIT_MASK,
    )


def _create_worktree_over(
    services: Services, repo_id: str, source: RestoreSource, trees: tuple[str, str], site: WorktreePaths
) -> None:
    """Create a worktree over the checkout of the first tree and of what the site says, and restore the second tree.

    No build has run in it, so all its files get the time of a checkout.
    """
    below, tree = trees
    _create_with(services, repo_id, source.git, below, site)
    demand = demand_of_difference(source.git, below, tree, source.large)
    with services.disk.admit(Writer.CHECKOUT, demand), WorktreeFiles(site.root, FILE_TIME_NS) as files:
        restore_tree(source, files, below, tree, site.owner)


def replace_worktree(services: Services, git: Git, task: Task, trees: tuple[str, str]) -> None:
    """Replace a task's worktree by a new one, over the checkout of the first tree, holding the second.

    The caller holds the task's lock, and no check runs in it. The new one is created in a room first, so a kill leaves
    the old one, the new one, or, for a moment, none.
    """
    site = locate_worktree(services.home, services.policies, task.repo_id, task.id)
    checks = list_checks_at(services, git, task.repo_id, task.base_commit, task.profile)
    disk = disk_space.choose_disk(services, checks, is_room=False)
    added = submodules.find_submodules(services, task.repo_id, git, trees[0])
    large, of_both = (lfs_files.find_large_files(services, task.repo_id, git, some) for some in (trees[:1], trees))
    room = replace(_locate_room(services, task.repo_id, task.id), new_disk=disk, added=added, large=large)
    try:
        _create_worktree_over(services, task.repo_id, RestoreSource(git, of_both), trees, room)
        make_durable(room)  # before the old one is deleted
        with lock_mount(services.home, task.id):
            unmount_worktree(room)
            delete_worktree(services, site)
            for new, place in ((room.layers, site.layers), (room.root, site.root)):
                if new.exists():
                    place.parent.mkdir(mode=0o700, exist_ok=True)  # missing for the first of a repository
                    new.rename(place)
                    durable.sync_all((place.parent,))
    except BaseException:
        remove_worktree(services, room)
        raise


def make_durable(site: WorktreePaths) -> None:
    """Sync a new worktree, before it has a record. Else a power failure could leave empty files, which count as changes
    of the task. Raises: `quota_exceeded` for a full disk.
    """
    try:
        layout_of(site).make_durable(site)
    except OSError as error:
        raise translate_shortage(error) or error from error


def remove_worktree(services: Services, site: WorktreePaths) -> None:
    """Remove a worktree and the directories that belong to it, and return its user."""
    layout_of(site).remove(site)
    release_user(services, site.owner)


def delete_worktree(services: Services, site: WorktreePaths) -> None:
    """Delete a task's worktree and return its user. The caller holds the task's lock, and no guest uses it."""
    delete_files(site)
    release_user(services, site.owner)


def delete_files(site: WorktreePaths) -> None:
    """Delete a task's worktree, whose user stays leased. The caller holds the task's lock, and no check runs in it.

    Each directory is renamed first, so a kill leaves a complete directory or one with a name that is not a worktree's;
    `gc` removes the latter.
    """
    unmount_worktree(site)
    for folder in (site.root, site.layers):  # root first: without layers it would be a worktree without files
        if folder.exists():
            aside = folder.with_name(f".{folder.name}.removed-{secrets.token_hex(8)}")
            folder.rename(aside)
            remove_with_mounts(aside)
    if site.stat_cache:
        site.stat_cache.forget()


def unmount_worktree(site: WorktreePaths) -> None:
    """Unmount a worktree that is no longer used."""
    layout_of(site).unmount(site)


def collect_unused_checkouts(home: Home, settings: Settings, repo_id: str) -> list[str]:
    """Remove pristine checkouts without a worktree above them that were unused for days; return their names.

    Removes none while another process creates one, or when their use cannot be determined; a later call does.
    """
    unused_s = settings.workspaces.keep_unused_days * 86_400
    try:
        with home.locked(f"pristine-{repo_id}", timeout_s=0.0):
            LfsObjects(home.lfs_objects(repo_id)).remove_unused(unused_s)
            return remove_unused(home.pristines(repo_id), list_checkouts_in_use(home, repo_id), unused_s)
    except SandboxError as error:
        _log.info("unused checkouts of %s are kept for now: %s", repo_id, error.brief)
        return []


def list_checkouts_in_use(home: Home, repo_id: str) -> set[str]:
    """Names of the pristine checkouts of a repository with a worktree or a room above them. The caller holds the lock
    of its checkouts. Raises: `internal` if that cannot be determined.
    """
    in_use = {checkout_of(layers) for layers in home.layers(repo_id, "any").parent.glob("[!.]*/")}
    return in_use | _list_trees_below_rooms(home)


def find_pristine(home: Home, policies: Policies, task: Task) -> Path | None:
    """The immutable checkout below a task's worktree; None if there is none."""
    site = locate_worktree(home, policies, task.repo_id, task.id)
    return layout_of(site).find_pristine(site)


def _list_trees_below_rooms(home: Home) -> set[str]:
    """Checkouts below the clean rooms of all repositories. A room that is just created or removed may have no record;
    rooms of our repository are created under the lock that the caller holds.
    """
    trees = set()
    for layers in home.clean_room("any").parent.glob("*.layers/"):
        with suppress(SandboxError):
            trees.add(checkout_of(layers))
    return trees


def read_owner(root: Path, layers: Path) -> tuple[int, int] | None:
    """uid and gid of an existing worktree's files; None without one."""
    files = find_files(layers)
    mount_point = (files,) if files != layers else ()  # has the same owner, also while it is unmounted
    for folder in (files / "upper", *mount_point, root):
        with suppress(OSError):
            seen = folder.lstat()
            return seen.st_uid, seen.st_gid
    return None


def has_worktree(site: WorktreePaths) -> bool:
    """Whether the worktree exists, mounted or not."""
    return site.root.is_dir() or site.layers.is_dir()


def is_without_files(task: Task, site: WorktreePaths) -> bool:
    """Whether a task of kind `tree` has no worktree yet."""
    return task.workspace_kind is WorkspaceKind.TREE and not has_worktree(site)


def ensure_task_mounted(home: Home, policies: Policies, task: Task) -> Path:
    """Root of a task's worktree, mounted again if a reboot removed the mount. Raises: `not_found`.

    A closed task's worktree stays unmounted: its changes can be read without the mount.
    """
    return ensure_site_mounted(home, task, locate_worktree(home, policies, task.repo_id, task.id))


def ensure_site_mounted(home: Home, task: Task, site: WorktreePaths) -> Path:
    """As `ensure_task_mounted`, where the worktree was located."""
    _require_worktree(site, task)
    if task.status is not TaskStatus.CLOSED and not layout_of(site).is_mounted(site):
        with lock_mount(home, task.id):
            _require_worktree(site, task)  # another process may have closed the task and removed it meanwhile
            if find_task(home, task.id, allow_closed=True).status is not TaskStatus.CLOSED:
                layout_of(site).ensure_mounted(site)
    return site.root


def require_writable_disk(home: Home, task: Task) -> None:
    """Raises: `quota_exceeded` when the task's own disk failed. Its files can still be read and saved, perhaps only
    until it is unmounted. They are not committed: what the kernel could not write may be missing, so `task clean`
    keeps them as a snapshot, and the caller looks at it first.
    """
    if has_failed(home.layers(task.repo_id, task.id)):
        raise SandboxError(
            ErrorCode.QUOTA_EXCEEDED,
            f"The disk of {task.id} can no longer be written: the disk of the home was full",
            hint=f"Free space there, then `sandbox task clean {task.id}`: it saves the changes, and creates a new "
            "worktree with them. Look at them before you commit: what was written last may be missing.",
        )


_KEPT = "Its commits and snapshots were kept"
_CLOSED = (
    "The task is closed and its files were deleted: create a new task. If it has snapshots, `sandbox task fork TASK "
    "--snapshot S` continues from one."
)


def _require_worktree(site: WorktreePaths, task: Task) -> None:
    if not has_worktree(site):
        raise SandboxError(
            ErrorCode.NOT_FOUND,
            "The task's worktree is gone",
            details=task.id,
            hint=_CLOSED
            if task.status is TaskStatus.CLOSED
            else f"{_KEPT}: `sandbox task clean {task.id}` creates a new worktree.",
        )


def lock_mount(home: Home, task_id: str) -> AbstractContextManager[None]:
    """The lock for mounting and unmounting a task's worktree. Operations that only read need it, too."""
    return home.locked(f"mount-{task_id}")


@contextmanager
def open_files(home: Home, policies: Policies, task: Task) -> Iterator[WorktreeFiles]:
    """Safe access to the files of a task."""
    with WorktreeFiles(ensure_task_mounted(home, policies, task)) as files:
        yield files
