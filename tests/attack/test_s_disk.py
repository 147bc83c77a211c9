"""THREATS S05 and S06: what a guest can take of the host's disk, and which check ends when the disk is nearly full."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sandbox.checks.disk_watch import DiskWatch, FreeSpaceFloor
from sandbox.engine.connection import DockerEngine
from sandbox.files.disk_images import DiskSize, create_disk, ensure_template, find_disk_obstacle, mount_disk
from sandbox.files.disk_usage import FreeSpace
from sandbox.files.mount_points import unmount_below
from sandbox.models import CheckRun, Verdict
from sandbox.workbench import Workbench
from tests.attack.arena import Arena
from tests.unit.conftest import initialised

pytestmark = [pytest.mark.must, pytest.mark.one_git]

MIB = 1024**2
DISK = 8 * MIB  # names of files take long to make: a larger disk takes a busy host a minute to fill
SMALL = f"limits = {{ memory_bytes = 134217728, cpus = 1.0, pids = 64, disk_bytes = {DISK}, disk_files = 2000 }}"
WITHOUT_A_NAME = "exec 3>f; rm f; head -c 60000000 /dev/zero >&3; echo status $?"
WRITERS = {
    "without-a-name": f"{WITHOUT_A_NAME}; sleep 20",
    "held-by-a-child": "(exec 3>f; rm f; head -c 60000000 /dev/zero >&3; echo status $?; sleep 20) & wait",
    "report": "head -c 60000000 /dev/zero >/report/f; echo status $?",
    "directories": "seq 5000 | xargs mkdir 2>/dev/null; echo status $?",
    # More than the disk holds however well ext4 fills its folders; one file may have 65,000 names there.
    "long-names": "perl -e 'for (1..60000) { link(qw(f), qw(x) x 240 . $_) or die $! }'; echo status $?; sleep 9",
}


def image_bytes(arena: Arena) -> int:
    (image,) = (arena.home / "repositories" / "layers").glob("*/task-*/disk.img")
    return image.stat().st_blocks * 512


@pytest.mark.parametrize("writer", WRITERS.values(), ids=WRITERS)
def test_s05_no_kind_of_file_takes_more_than_the_limit(guests: Callable[..., Arena], writer: str) -> None:
    """The kernel refuses it, so it does not matter whether a watch could see it."""
    arena = guests("sh", "-c", f"touch f; {writer}", extra=SMALL)
    arena.new_task()
    (run,) = arena.workbench.run_checks(arena.task.id, ["go"])
    assert run.verdict is Verdict.DISK_LIMIT, run
    assert "status 0" not in run.stdout_tail
    assert image_bytes(arena) < DISK + 10 * MIB


def test_s05_control_a_watched_check_takes_more_before_it_is_stopped(
    guests: Callable[..., Arena], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DiskWatch, "check_disk_limit", lambda _self: None)
    settings = {"workspaces": {"disk": "watch"}}
    arena = guests("sh", "-c", WITHOUT_A_NAME, extra=SMALL, settings=settings)
    arena.new_task()
    (run,) = arena.workbench.run_checks(arena.task.id, ["go"])
    assert (run.verdict, run.stdout_tail) == (Verdict.PASSED, "status 0\n")


def test_s05_a_full_disk_can_be_edited_and_cleaned(guests: Callable[..., Arena]) -> None:
    arena = guests("sh", "-c", "head -c 60000000 /dev/zero >f; sleep 20", extra=SMALL)
    arena.new_task()
    task = arena.task.id
    assert arena.workbench.run_checks(task, ["go"])[0].verdict is Verdict.DISK_LIMIT
    arena.workbench.write_file(task, "note", b"written to a full disk\n", None)
    arena.workbench.clean_task(task, ["f"])
    assert arena.workbench.read_file(task, "note").content == "written to a full disk\n"


PROFILE = """
label = "filling"
image = "base"
priority = 99
[[detect.any]]
file = "fill"
[[check]]
id = "fill"
label = "adds to its files"
argv = ["sh", "-c", "{script}"]
timeout_s = 60
limits = {{ memory_bytes = 268435456, cpus = 1.0, pids = 64 }}
"""
TAKES = "head -c 150000000 /dev/zero >f; sync f; sleep 40"
NEIGHBOUR = "head -c 3000000 /dev/zero >f; sync f; sleep 8; echo ended"


@pytest.fixture
def small_host(engine: DockerEngine, tmp_path: Path) -> Iterator[Path]:
    """A file system of 300 MiB that two homes share."""
    assert engine.is_local
    assert find_disk_obstacle(tmp_path) == ""
    place = tmp_path / "host"
    place.mkdir()
    create_disk(tmp_path / "host.img", ensure_template(tmp_path, DiskSize(300 * MIB, 20_000)))
    mount_disk(tmp_path / "host.img", place)
    yield place
    unmount_below(tmp_path)


def run_in_home(host: Path, name: str, script: str) -> CheckRun:
    upstream = initialised(host / f"{name}-upstream")
    upstream.write("fill", b"\n")
    upstream.commit()
    (host / name / "profiles").mkdir(parents=True)
    (host / name / "profiles" / "filling.toml").write_text(PROFILE.format(script=script))
    floor = {"min_free_bytes": 200 * MIB, "min_free_files": 10}
    with Workbench(host / name, allow_file=True, settings={"disk": floor}) as workbench:
        task = workbench.create_task(workbench.clone(str(upstream.root)).repository.id).id
        try:
            return workbench.run_checks(task, ["fill"])[0]
        finally:
            workbench.close_task(task, delete_worktree=True, discard=True)


def run_both(host: Path) -> tuple[Verdict, Verdict]:
    with ThreadPoolExecutor(2) as pool:
        neighbour = pool.submit(run_in_home, host, "neighbour", NEIGHBOUR)
        taker = pool.submit(run_in_home, host, "taker", TAKES)
        return taker.result().verdict, neighbour.result().verdict


def test_s06_at_the_floor_only_the_check_that_took_the_disk_ends(small_host: Path) -> None:
    assert run_both(small_host) == (Verdict.DISK_LIMIT, Verdict.PASSED)


def test_s06_control_without_the_share_the_neighbour_ends_too(
    small_host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def at_the_floor(self: FreeSpaceFloor, _own: object, _before: object, now: FreeSpace) -> bool:
        return self.is_reached(now)

    monkeypatch.setattr(FreeSpaceFloor, "is_reached_by", at_the_floor)
    assert run_both(small_host) == (Verdict.DISK_LIMIT, Verdict.DISK_LIMIT)
