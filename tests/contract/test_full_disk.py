"""A full disk is met anywhere: whatever was asked for ends as `quota_exceeded`, and works once there is room again."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from devtools.inventory import left_behind
from devtools.mounts import small_file_system
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import LeftoverAction
from tests.unit.conftest import Upstream
from tests.unit.desk import Desk

pytestmark = pytest.mark.slow
NO_FLOOR = "[disk]\nmin_free_bytes = 0\nmin_free_files = 0\nreserve_bytes = 0\nreserve_files = 0\n"
PIECE = 4096


@pytest.fixture(params=["overlay", "plain"])
def desk(request: pytest.FixtureRequest, upstream: Upstream, tmp_path: Path) -> Iterator[Desk]:
    """A home on a file system of 8 MiB."""
    with small_file_system(tmp_path / "disk", 8 * 1024**2) as disk:
        home = disk / "home"
        home.mkdir()
        (home / "config.toml").write_text(f'{NO_FLOOR}[workspaces]\nworktree = "{request.param}"\n')
        desk = Desk(upstream, home)
        with desk.workbench:
            yield desk


def fill(path: Path) -> None:
    """Not one page is left."""
    with path.open("wb", buffering=0) as stream:
        try:
            while True:
                stream.write(b"\0" * PIECE)
        except OSError:
            return


def test_a_full_disk_is_told_as_one_and_leaves_nothing_broken(desk: Desk, upstream: Upstream, tmp_path: Path) -> None:
    bench, task = desk.workbench, desk.task.id
    before = bench.snapshot(task).id
    desk.write("f", b"changed\n" * 1000)
    desk.write("new", bytes(range(256)) * 40)
    other = shutil.copytree(upstream.root, tmp_path / "other", symlinks=True)
    steps: dict[str, Callable[[], object]] = {
        "write": lambda: bench.write_file(task, "more", b"x" * 100_000, None),
        "edit": lambda: bench.edit_file(task, "d/e/x", b"x\n" * 50, b"y" * 9000, bench.read_file(task, "d/e/x").sha256),
        "clone": lambda: bench.clone(str(other)),
        "create": lambda: bench.create_task(desk.repo_id),
        "fork": lambda: bench.fork_task(task),
        "snapshot": lambda: bench.snapshot(task, "full"),
        "commit": lambda: bench.commit(task, "full"),
        "restore": lambda: bench.restore(task, before),
    }
    full = desk.home.parent / "fill"
    fill(full)
    told = {}
    for name, step in steps.items():
        try:
            step()
        except SandboxError as error:
            told[name] = (error.code, bool(error.hint))
            fill(full.with_name(f"fill-{name}"))  # what was taken back makes room
    assert told == dict.fromkeys(steps, (ErrorCode.QUOTA_EXCEEDED, True))
    for path in desk.home.parent.glob("fill*"):
        path.unlink()
    for step in steps.values():
        step()
    assert [x for x in bench.collect().leftovers if x.action in {LeftoverAction.FAILED, LeftoverAction.KEPT}] == []
    bench.close_task(task)
    bench.__exit__(None, None, None)
    assert left_behind(desk.home) == []
