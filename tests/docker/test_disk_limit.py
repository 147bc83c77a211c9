"""A check that fills the disk is stopped. Real engine; ids: THREATS L04, L05, L06."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from devtools.host_speed import slowness
from sandbox.checks.disk_watch import DiskWatch
from sandbox.engine.connection import DockerEngine
from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.mount_points import unmount_below
from sandbox.models import CheckRun, Verdict
from sandbox.workbench import VerifyOptions, Workbench
from tests.unit.conftest import initialised

MIB = 1024**2
PROFILE = """
label = "filling"
image = "base"
priority = 99
[[detect.any]]
file = "fill"
[[check]]
id = "fill"
label = "adds to its files"
argv = ["sh", "-c", {script!r}]
timeout_s = 300
limits = {{ memory_bytes = 134217728, cpus = 1.0, pids = 64, {limits} }}
"""
SMALL = f"disk_bytes = {50 * MIB}, disk_files = 5000"
# They wait at their end, so that it is not their own haste that decides.
SCRIPTS = {
    "l04-one-after-the-other": "for i in 1 2 3; do head -c 100000000 /dev/zero >f$i; done; echo written; {wait}",
    "l05-names": "mkdir d; cd d; seq 20000 | xargs touch; echo written; {wait}",
    "l06-allocated": "fallocate --posix -l 300000000 big; echo written; {wait}",
    "l04-unlinked": "exec 3>f; rm f; head -c 100000000 /dev/zero >&3; echo written; {wait}",
    "report": "head -c 100000000 /dev/zero >/report/big; echo written; {wait}",
}


@pytest.fixture(params=["overlay", "plain"])
def layout(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def home(engine: DockerEngine, base_image: str, tmp_path: Path) -> Iterator[Path]:
    assert engine.is_local
    assert base_image
    yield tmp_path / "home"
    unmount_below(tmp_path)


def opened(home: Path, script: str, limits: str, **settings: dict[str, object]) -> Workbench:
    (home / "profiles").mkdir(parents=True, exist_ok=True)
    text = PROFILE.format(script="@", limits=limits).replace("'@'", f'"{script}"')
    (home / "profiles" / "filling.toml").write_text(text)
    return Workbench(home, environ=dict(os.environ), allow_file=True, settings=settings)


def checked(home: Path, script: str, limits: str, layout: str, *, clean_room: bool = False) -> CheckRun:
    upstream = initialised(home.parent / "upstream")
    upstream.write("fill", b"\n")
    upstream.commit()
    with opened(home, script, limits, workspaces={"worktree": layout}) as workbench:
        task = workbench.create_task(workbench.clone(str(upstream.root)).repository.id)
        try:
            (run,) = workbench.verify(task.id).runs if clean_room else workbench.run_checks(task.id, ["fill"])
        finally:
            workbench.close_task(task.id, delete_worktree=True, discard=True)
    return run


ON_PLAIN = ("l04-one-after-the-other", "l04-unlinked")


@pytest.mark.parametrize(
    ("script", "layout"),
    [
        *(pytest.param(script, "overlay", id=f"overlay-{name}") for name, script in SCRIPTS.items()),
        *(
            pytest.param(script, "plain", id=f"plain-{name}", marks=() if name in ON_PLAIN else pytest.mark.thorough)
            for name, script in SCRIPTS.items()
        ),
    ],
)
def test_a_check_that_fills_the_disk_is_stopped(home: Path, script: str, layout: str) -> None:
    run = checked(home, script.format(wait="sleep 250"), SMALL, layout)
    assert run.verdict is Verdict.DISK_LIMIT, run
    assert run.wall_time_s < 200 * slowness()
    used = run.usage.disk_used_bytes, run.usage.disk_used_files
    assert used[0] is not None
    assert used[1] is not None
    assert used[0] > 50 * MIB or used[1] > 5000


def test_a_task_over_its_limit_is_usable_again_after_a_clean(home: Path, layout: str) -> None:
    """Also its container, which had the old files mounted."""
    upstream = initialised(home.parent / "upstream")
    upstream.write("fill", b"\n")
    upstream.write(".gitignore", b"/build\n")
    upstream.commit()
    script = "test -e small && exit; mkdir build; head -c 100000000 /dev/zero | tee build/f >big; sleep 250"
    with opened(home, script, SMALL, workspaces={"worktree": layout}) as workbench:
        task = workbench.create_task(workbench.clone(str(upstream.root)).repository.id).id
        try:
            assert workbench.run_checks(task, ["fill"])[0].verdict is Verdict.DISK_LIMIT
            workbench.write_file(task, "small", b"\n", None)
            cleaned = workbench.clean_task(task, ["big"])
            assert [change.path for change in cleaned.changes] == ["small"]
            (run,) = workbench.run_checks(task, ["fill"])
            assert run.verdict is Verdict.PASSED, run
            assert (run.usage.disk_used_bytes or 0) < 50 * MIB
        finally:
            workbench.close_task(task, delete_worktree=True, discard=True)


def test_a_clean_room_is_watched_too(home: Path, layout: str) -> None:
    script = SCRIPTS["l04-one-after-the-other"].format(wait="sleep 250")
    assert checked(home, script, SMALL, layout, clean_room=True).verdict is Verdict.DISK_LIMIT


def test_a_room_of_run_has_a_disk_of_the_size_of_its_limit(home: Path) -> None:
    """No earlier checkout is below it. Control: the same room with the watch is on the host's file system."""
    upstream = initialised(home.parent / "upstream")
    upstream.write("fill", b"\n")
    upstream.commit()
    sizes = {}
    for disk in ("image", "watch"):
        with opened(home, "stat -f -c '%b %S' . && cat fill", SMALL, workspaces={"disk": disk}) as workbench:
            run = workbench.run(str(upstream.root), options=VerifyOptions(cache=False)).runs[0]
            assert run.verdict is Verdict.PASSED, run
            blocks, size = map(int, run.stdout_tail.split())
            sizes[disk] = blocks * size
    assert sizes["image"] < 2 * 1024**3 < sizes["watch"]


def test_control_nobody_else_stops_it(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same limits, nobody who watches, and more time than the watch needs."""
    for look in ("check_disk_limit", "check_at_end"):
        monkeypatch.setattr(DiskWatch, look, lambda _self: None)
    run = checked(home, SCRIPTS["l04-one-after-the-other"].format(wait="sleep 1"), SMALL, "plain")
    assert (run.verdict, run.stdout_tail) == (Verdict.PASSED, "written\n")


def test_below_its_limits_a_check_passes_and_what_it_took_is_told(home: Path) -> None:
    run = checked(home, SCRIPTS["l04-one-after-the-other"].format(wait="sleep 1"), "disk_files = 9", "overlay")
    assert (run.verdict, run.stdout_tail) == (Verdict.PASSED, "written\n")
    assert run.usage.disk_used_bytes is not None
    assert run.usage.disk_used_bytes >= 300 * 10**6


def test_no_check_starts_on_a_full_disk(home: Path) -> None:
    """Control: without the floor it does."""
    upstream = initialised(home.parent / "upstream")
    upstream.write("fill", b"\n")
    upstream.commit()
    with opened(home, "true", SMALL) as workbench:
        task = workbench.create_task(workbench.clone(str(upstream.root)).repository.id).id
        assert workbench.run_checks(task, ["fill"])[0].verdict is Verdict.PASSED
    with opened(home, "true", SMALL, disk={"min_free_bytes": 1 << 60}) as workbench:
        for attempt in (lambda: workbench.run_checks(task, ["fill"]), lambda: workbench.verify(task)):
            with pytest.raises(SandboxError) as caught:
                attempt()
            assert caught.value.code is ErrorCode.QUOTA_EXCEEDED
        workbench.close_task(task, delete_worktree=True, discard=True)
    assert list((home / "repositories" / "rooms").iterdir()) == []
