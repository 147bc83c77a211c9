"""What a user id and a disk of its own cost a task and a layer, each beside the same work without one.

S6 task create and close with a disk of its own beside counted files, S6 a user id leased and returned beside task
create and close, S22 a tree of packages on a room's own disk: created, filled, sealed and copied to the home, beside
the same in a directory of the home.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Literal

from benchmarks._harness import Rounds, compare
from benchmarks._repositories import make
from sandbox import Workbench
from sandbox.files.disk_images import DiskSize
from sandbox.files.sealing import copy_sealed_tree, seal_tree
from sandbox.models import Limits
from sandbox.store.guest_users import GuestUsers
from sandbox.workspaces.own_disk import NewDisk, create_own_disk, find_files, remove_with_mounts

MIB = 1024**2
FILES, FILE_BYTES = 4000, 25 * 1024
"""Of a layer: 100 MB, which is one of about 40 packages."""
IDS = range(200_000, 210_000)
ROUNDS_OF_TREES = 9


@contextmanager
def repository_with(remote: Path, disk: Literal["image", "watch"]) -> Iterator[Callable[[], None]]:
    """Yields a function that creates a task and closes it, with or without a disk of its own."""
    with tempfile.TemporaryDirectory() as name:
        settings = {"workspaces": {"worktree": "overlay", "disk": disk}}
        with Workbench(Path(name) / "home", allow_file=True, environ=os.environ, settings=settings) as workbench:
            repo_id = workbench.clone(str(remote)).repository.id

            def create_and_close() -> None:
                task = workbench.create_task(repo_id)
                workbench.close_task(task.id, delete_worktree=True, discard=True)

            yield create_and_close


def measure_tasks(remote: Path, size: str) -> None:
    """The disk of a task, and its user id."""
    with repository_with(remote, "image") as owned, repository_with(remote, "watch") as watched:
        compare(
            f"S6 task create and close with a disk of its own, {size}", owned, watched,
            floor_name="the same, files counted", target="-", rounds=Rounds(40),
        )  # fmt: skip
        with tempfile.TemporaryDirectory() as name:
            users = GuestUsers(Path(name) / "users", IDS, Path(name) / "home")
            compare(
                f"S6 a user id leased and returned, {size}", lambda: lease_and_return(users), owned,
                floor_name="task create and close", target="-", rounds=Rounds(40),
            )  # fmt: skip


def lease_and_return(users: GuestUsers) -> None:
    users.release(users.lease("task-0", synced=True))


def measure_trees() -> None:
    """A layer's tree on a disk of its own, whose sealed files are copied to the home's disk."""
    with tempfile.TemporaryDirectory() as name:
        folder, numbers = Path(name), count()
        size = DiskSize(Limits().disk_bytes, Limits().disk_files)
        new = NewDisk(size, folder / "templates", is_required=True)

        def build(*, is_owned: bool) -> None:
            room = folder / f"room-{next(numbers)}"
            room.mkdir()
            if is_owned:
                create_own_disk(room, new, None)
            tree = find_files(room) / "built"
            fill(tree)
            seal_tree(tree, (os.geteuid(), os.getegid()))
            if is_owned:
                copy_sealed_tree(tree, room / "built")
            remove_with_mounts(room)

        compare(
            f"S22 room of a layer on its own disk, {FILES} files of {FILES * FILE_BYTES // MIB} MiB",
            lambda: build(is_owned=True), lambda: build(is_owned=False),
            floor_name="the same on the home's disk", target="-", rounds=Rounds(ROUNDS_OF_TREES),
        )  # fmt: skip
        shutil.rmtree(folder / "templates")


def fill(tree: Path) -> None:
    """Write files as packages have them: in directories of a hundred."""
    content = os.urandom(FILE_BYTES)
    for number in range(FILES):
        if number % 100 == 0:
            (tree / str(number)).mkdir(parents=True)
        (tree / str(number - number % 100) / f"f{number}").write_bytes(content)


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        measure_tasks(make(Path(name) / "remote.git", "small"), "small")
    measure_trees()


if __name__ == "__main__":
    main()
