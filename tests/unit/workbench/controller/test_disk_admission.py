"""The admission of writers to the disk: floors, the reserve, demands in flight, the spare file."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from sandbox.config import DiskSettings
from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.disk_usage import FreeSpace
from sandbox.git.contents import content_of
from sandbox.git.entries import GITLINK, REGULAR, TreeChange, TreeEntry
from sandbox.store.home import Home
from sandbox.workbench.controller.disk_admission import SPARE_BYTES, SPARE_FILES, Demand, DiskAdmission, Writer
from sandbox.workbench.controller.disk_demands import demand_of_checkout, demand_of_contents, demand_of_objects
from tests.unit.conftest import refused

MIB = 1024**2
SETTINGS = DiskSettings(min_free_bytes=100 * MIB, min_free_files=100, reserve_bytes=10 * MIB, reserve_files=10)
LARGE = [Writer.FETCH, Writer.CHECKOUT, Writer.CHECK, Writer.ARTIFACT, Writer.IMAGE, Writer.LAYER]
SMALL = sorted(set(Writer) - set(LARGE))


class Disk:
    """A disk with a chosen amount of free space."""

    def __init__(self, root: Path, settings: DiskSettings = SETTINGS) -> None:
        self.free_bytes, self.free_files = 1000 * MIB, 1000
        self.home = Home(root)
        self.home.prepare()
        self.admission = DiskAdmission(self.home, lambda: settings, self.room_of)

    def room_of(self, _folder: Path) -> FreeSpace:
        return FreeSpace(0, 0, self.free_bytes, self.free_files)

    def ask(self, writer: Writer, demand: Demand = Demand()) -> None:  # noqa: B008 - frozen
        with self.admission.admit(writer, demand):
            pass


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path / "home")


@pytest.mark.parametrize("writer", LARGE, ids=lambda w: w.name)
def test_a_large_writer_leaves_free_what_the_host_needs(disk: Disk, writer: Writer) -> None:
    disk.free_bytes = 130 * MIB
    disk.ask(writer, Demand(30 * MIB))
    with refused(ErrorCode.QUOTA_EXCEEDED):
        disk.ask(writer, Demand(30 * MIB + 1))
    disk.free_files = 99
    with refused(ErrorCode.QUOTA_EXCEEDED):
        disk.ask(writer)


@pytest.mark.parametrize("writer", SMALL, ids=lambda w: w.name)
def test_a_small_writer_leaves_the_reserve(disk: Disk, writer: Writer) -> None:
    disk.free_bytes, disk.free_files = 15 * MIB, 12
    disk.ask(writer, Demand(5 * MIB, 2))
    for demand in (Demand(5 * MIB + 1), Demand(0, 3)):
        with refused(ErrorCode.QUOTA_EXCEEDED):
            disk.ask(writer, demand)


def test_what_frees_space_may_use_the_reserve_but_not_more_than_is_free(disk: Disk) -> None:
    disk.free_bytes, disk.free_files = 5 * MIB, 1
    with disk.admission.use_reserve():
        disk.ask(Writer.RECORD, Demand(MIB, 1))
        disk.ask(Writer.CHECKOUT, Demand(5 * MIB))  # cleaning makes a new worktree before it deletes the old one
        for writer in (Writer.PACKING, Writer.SNAPSHOT):
            with refused(ErrorCode.QUOTA_EXCEEDED):
                disk.ask(writer)
        with refused(ErrorCode.QUOTA_EXCEEDED):
            disk.ask(Writer.RECORD, Demand(5 * MIB + 1))
    with refused(ErrorCode.QUOTA_EXCEEDED):
        disk.ask(Writer.RECORD)


def test_the_reserve_is_for_the_thread_that_frees_space_only(disk: Disk) -> None:
    disk.free_bytes = 5 * MIB
    told: list[ErrorCode] = []

    def edit() -> None:
        try:
            disk.ask(Writer.EDIT)
        except SandboxError as error:
            told.append(error.code)

    with disk.admission.use_reserve():
        thread = threading.Thread(target=edit)
        thread.start()
        thread.join()
    assert told == [ErrorCode.QUOTA_EXCEEDED]


def test_demands_in_flight_count_together_until_they_are_written(disk: Disk) -> None:
    disk.free_bytes = 30 * MIB
    with disk.admission.admit(Writer.EDIT, Demand(15 * MIB, 1)):
        with refused(ErrorCode.QUOTA_EXCEEDED) as caught:
            disk.ask(Writer.EDIT, Demand(6 * MIB, 1))
        disk.ask(Writer.EDIT, Demand(5 * MIB, 1))
    disk.ask(Writer.EDIT, Demand(20 * MIB, 1))
    assert "15 MiB" in caught.value.details


def test_a_writer_that_fails_gives_its_demand_back(disk: Disk) -> None:
    with pytest.raises(OSError, match="full"), disk.admission.admit(Writer.EDIT, Demand(980 * MIB)):
        raise OSError(errno.ENOSPC, "full")
    disk.ask(Writer.EDIT, Demand(980 * MIB))


def test_many_threads_are_never_promised_more_than_is_free(disk: Disk) -> None:
    disk.free_bytes = 20 * MIB
    admitted, done = threading.Semaphore(0), threading.Event()
    counts: list[bool] = []

    def edit() -> None:
        try:
            with disk.admission.admit(Writer.EDIT, Demand(MIB)):
                counts.append(True)
                admitted.release()
                done.wait(10)
        except SandboxError:
            counts.append(False)
            admitted.release()

    threads = [threading.Thread(target=edit) for _ in range(16)]
    for thread in threads:
        thread.start()
    for _ in threads:
        admitted.acquire(timeout=10)
    done.set()
    for thread in threads:
        thread.join()
    assert counts.count(True) == 10


def test_a_transfer_gets_half_of_what_may_be_used(disk: Disk) -> None:
    with disk.admission.admit_transfer(10_000 * MIB) as limit:
        assert limit == 450 * MIB
        with disk.admission.admit_transfer(10_000 * MIB) as second:
            assert second == 225 * MIB
    with disk.admission.admit_transfer(7) as limit:
        assert limit == 7
    disk.free_bytes = 100 * MIB
    with refused(ErrorCode.QUOTA_EXCEEDED), disk.admission.admit_transfer(7):
        pass


def test_a_transfer_that_fills_its_share_is_told_about_the_disk_not_the_setting(disk: Disk) -> None:
    limit_reached = SandboxError(ErrorCode.QUOTA_EXCEEDED, "limit", details="evidence", reason="fetch_limit")
    with refused(ErrorCode.QUOTA_EXCEEDED) as caught, disk.admission.admit_transfer(10_000 * MIB):
        raise limit_reached
    assert (caught.value.reason, "evidence" in caught.value.details) == ("disk", True)
    with refused(ErrorCode.QUOTA_EXCEEDED) as caught, disk.admission.admit_transfer(7):
        raise limit_reached
    assert caught.value is limit_reached
    other = SandboxError(ErrorCode.QUOTA_EXCEEDED, "too many refs")
    with refused(ErrorCode.QUOTA_EXCEEDED) as caught, disk.admission.admit_transfer(10_000 * MIB):
        raise other
    assert caught.value is other


def test_a_refusal_says_what_is_missing_and_what_to_do(disk: Disk) -> None:
    disk.free_bytes = 12 * MIB
    with refused(ErrorCode.QUOTA_EXCEEDED) as caught:
        disk.ask(Writer.COMMIT, Demand(4 * MIB, 3))
    error = caught.value
    assert "a commit" in error.brief
    assert all(text in error.details for text in ("4 MiB", "12 MiB", "10 MiB", str(disk.home.root)))
    assert "sandbox gc" in error.hint
    assert error.data == {
        "writer": "commit",
        "needed_bytes": 4 * MIB,
        "free_bytes": 12 * MIB,
        "reserved_bytes": 10 * MIB,
    }


def test_the_spare_has_blocks_and_files_and_goes_only_when_the_disk_is_full(disk: Disk) -> None:
    disk.ask(Writer.EDIT)
    spare = disk.home.spare
    assert (spare / "blocks").stat().st_blocks * 512 >= SPARE_BYTES
    assert len(list(spare.iterdir())) == SPARE_FILES + 1
    with disk.admission.use_reserve():
        assert spare.exists()
    disk.free_bytes = SPARE_BYTES - 1
    with disk.admission.use_reserve():
        assert not spare.exists()
    assert not spare.exists()
    disk.free_bytes = 3 * SPARE_BYTES
    with disk.admission.use_reserve():
        pass
    assert (spare / "blocks").stat().st_size == SPARE_BYTES
    disk.free_files = SPARE_FILES - 1
    with disk.admission.use_reserve():
        assert not spare.exists()


def test_a_spare_that_a_killed_process_began_is_completed(disk: Disk) -> None:
    disk.home.spare.mkdir()
    (disk.home.spare / "0").touch()
    disk.ask(Writer.EDIT)
    assert len(list(disk.home.spare.iterdir())) == SPARE_FILES + 1


def test_without_a_reserve_there_is_no_floor_and_no_spare(tmp_path: Path) -> None:
    none = DiskSettings(min_free_bytes=0, min_free_files=0, reserve_bytes=0, reserve_files=0)
    disk = Disk(tmp_path / "home", none)
    disk.free_bytes = 5
    disk.ask(Writer.CHECK, Demand(5))
    assert not disk.home.spare.exists()


def test_a_file_system_that_does_not_count_files_is_asked_for_bytes_only(disk: Disk) -> None:
    disk.admission = DiskAdmission(disk.home, lambda: SETTINGS, lambda _: FreeSpace(0, 0, 1000 * MIB, None))
    disk.ask(Writer.CHECKOUT, Demand(MIB, 10**9))


def test_a_checkout_needs_whole_blocks_and_its_directories() -> None:
    entries = [
        TreeEntry(b"a", REGULAR, "0" * 40, 1),
        TreeEntry(b"d/e/b", REGULAR, "1" * 40, 4097),
        TreeEntry(b"d/module", GITLINK, "2" * 40, None),
    ]
    assert demand_of_checkout(entries) == Demand(4096 + 8192 + 3 * 4096, 2 + 3)


def test_a_checkout_takes_no_more_than_its_demand(tmp_path: Path) -> None:
    """The estimate against real files."""
    sizes = {"a": 1, "d/b": 5000, "d/e/c": 70_000, "empty": 0}
    for name, size in sizes.items():
        (tmp_path / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tree" / name).write_bytes(os.urandom(size))
    taken = sum(p.stat().st_blocks * 512 for p in [tmp_path / "tree", *(tmp_path / "tree").rglob("*")])
    entries = [TreeEntry(name.encode(), REGULAR, "0" * 40, size) for name, size in sizes.items()]
    assert taken <= demand_of_checkout(entries).bytes


def test_objects_need_twice_their_content_and_the_trees_above_it() -> None:
    changes = [TreeChange(b"d/f", REGULAR, content_of(b"x" * 5000)), TreeChange(b"gone", "000000", None)]
    assert demand_of_objects(changes) == Demand(2 * (8192 + 2 * 4096 + 4096), 2 * (1 + 2 + 1 + 1))
    assert demand_of_contents([]) == Demand()
