"""Cache clones that should be packed again, and clones that a repair set aside long ago."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from sandbox.byte_sizes import format_bytes
from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.checkout import remove_tree
from sandbox.git.cache_clones import open_cache
from sandbox.git.maintenance import DAY_S, ObjectFiles, is_repack_due, repack
from sandbox.git.process import Git
from sandbox.git.pull_request_refs import REQUEST_REFS
from sandbox.workbench.controller.disk_admission import Demand, Writer
from sandbox.workbench.controller.services import Services
from sandbox.workbench.reconciling.reconciler import Finding, Reconciler, list_folder

_SET_ASIDE = re.compile(r"^\.(.+)\.corrupt-(\d+)\Z")
_KEPT = "a repair set it aside; delete it when it is no longer needed"


def find_unpacked_clones(reconciler: Reconciler) -> Iterator[Finding]:
    """Clones that are packed now; objects that no ref has led to for a day are deleted (`git.maintenance`)."""
    services = reconciler.services
    repack_s = services.settings.keep.repack_days * DAY_S
    for clone in list_folder(services.home.clone("any").parent):
        complete = not clone.name.startswith(".") and (clone / "HEAD").is_file()
        if complete and is_repack_due(clone, time.time(), repack_s):
            lock = (f"repository-{clone.name}",)
            yield Finding("clone objects", clone.name, partial(repack_clone, services, clone), locks=lock)


def repack_clone(services: Services, clone: Path) -> str | None:
    """Pack a clone; the caller holds the repository's lock.

    Needs room for a second copy of all objects, which is not taken from the reserve.

    Commits of pull requests are fetched again whenever they are asked for, so their refs go first. Who uses one now has
    the day that the packing leaves to objects without a ref, and a task has a branch of its own.
    """
    git = open_cache(clone, services.settings.git.executable)
    size = ObjectFiles.of(clone).bytes
    try:
        with services.disk.admit(Writer.PACKING, Demand(size, 8)):
            _delete_request_refs(git)
            freed = repack(git, services.settings.remotes.max_fetch_memory_bytes)
    except SandboxError as error:
        if error.code is not ErrorCode.QUOTA_EXCEEDED:
            raise
        raise SandboxError(  # what needs room can wait; `gc` has not failed
            ErrorCode.DIRTY_WORKSPACE, "It was not packed", details=f"{error.brief}: {error.details}"
        ) from error
    return f"packed: {format_bytes(size)} before, {format_bytes(size - freed)} now"


def _delete_request_refs(git: Git) -> None:
    names = git.run("for-each-ref", "--format=%(refname)", REQUEST_REFS).decode().splitlines()
    if names:
        git.run("update-ref", "--no-deref", "--stdin", stdin="".join(f"delete {name}\n" for name in names).encode())


def find_clones_set_aside(reconciler: Reconciler) -> Iterator[Finding]:
    """Clones that a repair set aside: named, and removed after `keep.quarantine_days` if the new clone has all refs of
    ours that can still be read in them.
    """
    services = reconciler.services
    keep_s = services.settings.keep.quarantine_days * DAY_S
    for path in list_folder(services.home.clone("any").parent):
        if found := _SET_ASIDE.match(path.name):
            old = bool(keep_s) and time.time() - int(found[2]) / 1e9 > keep_s
            if old and _has_all_refs(services, path, services.home.clone(found[1])):
                remedy = partial(_remove, path)
                yield Finding("clone", path.name, remedy, locks=(f"repository-{found[1]}",), note="set aside long ago")
            else:
                yield Finding("clone", path.name, note=_KEPT)


def _remove(path: Path) -> str:
    remove_tree(path)
    return ""


def _has_all_refs(services: Services, aside: Path, clone: Path) -> bool:
    """Whether refs of the new clone lead to each commit that refs of ours lead to in the old one. False if unknown."""
    executable = services.settings.git.executable
    try:
        listed = Git(aside, executable).run("for-each-ref", "--format=%(objectname)", "refs/heads/", "refs/sandbox/")
        return not open_cache(clone, executable).run(
            "rev-list", "--max-count=1", "--stdin", "--not", "--all", stdin=listed
        )
    except SandboxError:
        return False
