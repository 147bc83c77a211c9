"""A release that its promoter left unconfirmed is switched back by `gc` and by the next controller. Real kills."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sandbox.models import LeftoverAction, ReleaseManifest
from sandbox.models.releases import ReleaseEvent
from sandbox.store.home import Home
from sandbox.store.release_folder import LOCK_WAIT_S, open_releases, staged_release, write_release_file
from sandbox.workbench import Workbench
from tests.unit.conftest import Upstream
from tests.unit.desk import Desk

OLD, NEW = "1" * 40, "2" * 40
SOON_S, LATER_S = 1.0, 3600.0
PROMOTE_AND_WAIT = """
import os, sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from sandbox.store.release_folder import open_releases
from sandbox.workbench import Workbench
from sandbox.workbench.controller.release_watch import wait_for_confirmation
home, repo_id, tree, confirm_s = sys.argv[1:]
with Workbench(Path(home), environ=dict(os.environ), allow_file=True) as workbench:
    workbench.create_task(repo_id, "marks the controller as alive")
    with open_releases(workbench._services.home, repo_id) as releases:
        releases.promote(tree, datetime.now(UTC) + timedelta(seconds=float(confirm_s)))
    print("promoted", flush=True)
    if wait_for_confirmation(workbench._services, repo_id).history[-1].event.value == "confirmed":
        print("confirmed", flush=True)
"""

SHORT_COMMAND = """
import os, sys
from pathlib import Path
from sandbox.workbench import Workbench
with Workbench(Path(sys.argv[1]), environ=dict(os.environ), allow_file=True) as workbench:
    workbench.create_task(sys.argv[2], "short")
"""


@pytest.fixture
def desk(upstream: Upstream, tmp_path: Path) -> Desk:
    found = Desk(upstream, tmp_path / "sandbox-home")
    found.workbench.__exit__(None, None, None)
    for tree in (OLD, NEW):
        publish(found, tree)
    with open_releases(Home(found.home), found.repo_id) as releases:
        releases.promote(OLD, datetime.now(UTC) + timedelta(hours=1))
        releases.confirm()
    return found


def publish(desk: Desk, tree: str) -> None:
    home, repo_id = Home(desk.home), desk.repo_id
    manifest = ReleaseManifest(
        repo_id=repo_id, tree=tree, commit=tree, key="k", image_digest="", run_id="run-1", created_at=datetime.now(UTC)
    )
    with staged_release(home, repo_id) as staged, open_releases(home, repo_id) as releases:
        write_release_file(staged, "app", [tree.encode()], executable=True)
        releases.publish(staged, manifest)


@contextmanager
def promoter(desk: Desk, confirm_s: float) -> Iterator[subprocess.Popen[bytes]]:
    """Another process that promotes and waits for the confirmation, as `sandbox promote` does."""
    argv = [sys.executable, "-c", PROMOTE_AND_WAIT, str(desk.home), desk.repo_id, NEW, str(confirm_s)]
    environ = {**os.environ, "PYTHONPATH": str(Path.cwd())}
    with subprocess.Popen(argv, stdout=subprocess.PIPE, env=environ) as process:
        assert read_line(process) == b"promoted\n"
        try:
            yield process
        finally:
            process.kill()


def read_line(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], 60)
    assert ready
    return process.stdout.readline()


def promote_and_die(desk: Desk, confirm_s: float) -> None:
    with promoter(desk, confirm_s) as process:
        process.kill()
        assert process.wait(60) == -signal.SIGKILL


def promote_and_leave(desk: Desk, confirm_s: float) -> None:
    """As `promote --no-wait`: it ends by itself, so there is no record of a dead controller."""
    with open_releases(Home(desk.home), desk.repo_id) as releases:
        releases.promote(NEW, datetime.now(UTC) + timedelta(seconds=confirm_s))


@contextmanager
def next_controller(desk: Desk) -> Iterator[Workbench]:
    with Workbench(desk.home, environ={"PATH": os.environ["PATH"]}, allow_file=True) as workbench:
        yield workbench


def in_use(desk: Desk) -> str:
    """What a launcher finds."""
    return (Home(desk.home).releases(desk.repo_id) / "current" / "app").read_text()


def read_events(desk: Desk) -> list[ReleaseEvent]:
    with open_releases(Home(desk.home), desk.repo_id) as releases:
        return [entry.event for entry in releases.state.history]


def wait_until(reached: Callable[[], bool]) -> None:
    ends_at = time.monotonic() + 30
    while not reached():
        assert time.monotonic() < ends_at
        time.sleep(0.05)


def let_pass(desk: Desk) -> None:
    """Wait until the deadline of the pending release is over."""
    with open_releases(Home(desk.home), desk.repo_id) as releases:
        pending = releases.state.pending
    assert pending is not None
    wait_until(lambda: datetime.now(UTC) > pending.until)
    assert in_use(desk) == NEW, "the control: by itself it stays"


def set_deadline(desk: Desk, until: str) -> None:
    """Of the pending release: none waits for it."""
    path = Home(desk.home).releases(desk.repo_id) / "state.json"
    state = json.loads(path.read_text())
    state["pending"]["until"] = until
    path.write_text(json.dumps(state))


def collect(workbench: Workbench, desk: Desk) -> None:
    found = [left for left in workbench.collect().leftovers if left.kind == "release"]
    assert [(left.name, left.action) for left in found] == [(desk.repo_id, LeftoverAction.RESTORED)]
    assert found[0].note == "switched back: not confirmed in time"


def change_something(workbench: Workbench, desk: Desk) -> None:
    workbench.create_task(desk.repo_id, "another")


@pytest.mark.parametrize("promote", [promote_and_die, promote_and_leave])
@pytest.mark.parametrize("act", [collect, change_something])
def test_what_is_overdue_is_switched_back(
    desk: Desk, promote: Callable[[Desk, float], None], act: Callable[[Workbench, Desk], None]
) -> None:
    promote(desk, SOON_S)
    let_pass(desk)
    started = time.monotonic()
    with next_controller(desk) as workbench:
        act(workbench, desk)
        assert in_use(desk) == OLD
    assert read_events(desk)[-2:] == [ReleaseEvent.PROMOTED, ReleaseEvent.SWITCHED_BACK]
    assert time.monotonic() - started < 5, "it does not wait for its own lock"


@pytest.mark.parametrize("act", [collect, change_something])
def test_a_deadline_that_passes_after_the_record_of_the_dead_controller_is_gone(
    desk: Desk, act: Callable[[Workbench, Desk], None]
) -> None:
    """A short command of another process came in between, and ended; so did its watch."""
    promote_and_die(desk, LATER_S)
    argv = [sys.executable, "-c", SHORT_COMMAND, str(desk.home), desk.repo_id]
    subprocess.run(argv, check=True, env={**os.environ, "PYTHONPATH": str(Path.cwd())}, timeout=60)
    assert not any(Home(desk.home).liveness.iterdir()), "the record is gone"
    set_deadline(desk, "2020-01-01T00:00:00Z")
    assert in_use(desk) == NEW, "the control: by itself it stays"
    with next_controller(desk) as workbench:
        act(workbench, desk)
        assert in_use(desk) == OLD


def test_a_controller_that_lives_on_watches_until_the_deadline(desk: Desk) -> None:
    promote_and_die(desk, 3)
    with next_controller(desk) as workbench:
        change_something(workbench, desk)
        assert in_use(desk) == NEW, "there is time left"
        wait_until(lambda: in_use(desk) == OLD)
    assert read_events(desk)[-1] is ReleaseEvent.SWITCHED_BACK


def test_a_living_promoter_is_not_disturbed(desk: Desk) -> None:
    with promoter(desk, LATER_S) as process:
        with next_controller(desk) as workbench:
            change_something(workbench, desk)
            assert [left for left in workbench.collect().leftovers if left.kind == "release"] == []
            assert in_use(desk) == NEW
            (Home(desk.home).releases(desk.repo_id) / "confirm" / NEW).touch()
        assert read_line(process) == b"confirmed\n"
    assert in_use(desk) == NEW
    assert read_events(desk).count(ReleaseEvent.CONFIRMED) == 2


def test_a_dry_run_says_it_and_changes_none(desk: Desk) -> None:
    promote_and_leave(desk, 0)
    with next_controller(desk) as workbench:
        found = [left for left in workbench.collect(dry_run=True).leftovers if left.kind == "release"]
        assert [left.note for left in found] == ["switched back: not confirmed in time"]
        assert in_use(desk) == NEW


def test_a_confirmation_that_came_before_the_kill_counts(desk: Desk) -> None:
    promote_and_leave(desk, 0)
    (Home(desk.home).releases(desk.repo_id) / "confirm" / NEW).touch()
    with next_controller(desk) as workbench:
        found = [left for left in workbench.collect().leftovers if left.kind == "release"]
        assert [left.note for left in found] == ["confirmed"]
    assert in_use(desk) == NEW


def test_releases_of_one_repository_that_cannot_be_opened_leave_the_others_their_turn(desk: Desk) -> None:
    promote_and_leave(desk, 0)
    damaged = Home(desk.home).releases("a-damaged-one")
    damaged.mkdir()
    (damaged / "state.json").write_text("{")
    with next_controller(desk) as workbench:
        found = [left for left in workbench.collect().leftovers if left.kind == "release"]
    assert {left.name: left.action for left in found} == {
        "a-damaged-one": LeftoverAction.FAILED, desk.repo_id: LeftoverAction.RESTORED,
    }  # fmt: skip
    promote_and_leave(desk, 0)
    with next_controller(desk) as workbench:
        change_something(workbench, desk)
    assert in_use(desk) == OLD


def test_releases_that_another_process_changes_delay_no_change(desk: Desk) -> None:
    """They are looked at again: it may be killed before it settles them."""
    promote_and_leave(desk, 0)
    with next_controller(desk) as workbench:
        with Home(desk.home).locked(f"release-{desk.repo_id}"):
            started = time.monotonic()
            change_something(workbench, desk)
            assert time.monotonic() - started < LOCK_WAIT_S
            assert in_use(desk) == NEW
        wait_until(lambda: in_use(desk) == OLD)


def test_a_deadline_without_a_time_zone_is_a_damaged_state(desk: Desk) -> None:
    promote_and_leave(desk, LATER_S)
    set_deadline(desk, "2020-01-01T00:00:00")
    with next_controller(desk) as workbench:
        change_something(workbench, desk)
        found = [left.action for left in workbench.collect().leftovers if left.kind == "release"]
    assert found == [LeftoverAction.FAILED]


def test_a_watch_does_not_create_releases_that_were_deleted(desk: Desk) -> None:
    promote_and_leave(desk, LATER_S)
    place = Home(desk.home).releases(desk.repo_id)
    with next_controller(desk) as workbench:
        change_something(workbench, desk)
        [watcher] = [one for one in threading.enumerate() if getattr(one, "place", None) == place]
        with Home(desk.home).locked(f"release-{desk.repo_id}"):  # else it opens them while they are deleted
            subprocess.run(["chmod", "-R", "u+w", str(place)], check=True)
            shutil.rmtree(place)
        watcher.join(30)
        assert not watcher.is_alive()
    assert not place.exists()
