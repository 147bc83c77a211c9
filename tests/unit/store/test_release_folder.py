"""Releases on disk: whole, switched by one rename, and after a kill at any step the old one or the new one."""

from __future__ import annotations

import multiprocessing
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path

import pytest

from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import ReleaseManifest
from sandbox.store import release_folder
from sandbox.store.home import Home
from sandbox.store.release_folder import LOCK_WAIT_S, Releases, open_releases, staged_release, write_release_file

OLD, NEW, NEWEST = "1" * 40, "2" * 40, "3" * 40
LATER = timedelta(hours=1)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    found = Home(tmp_path / "home")
    found.prepare()
    return found


def publish(releases: Releases, tree: str, key: str = "k") -> str:
    manifest = ReleaseManifest(
        repo_id="r", tree=tree, commit=tree, key=key, image_digest="", run_id="run-1", created_at=datetime.now(UTC)
    )
    with staged_release(Home(releases.folder.parent.parent), "r") as staged:
        write_release_file(staged, "bin/app", [f"{tree} {key}".encode()], executable=True)
        return releases.publish(staged, manifest)


def promote(releases: Releases, tree: str, *, confirmed: bool = True) -> None:
    releases.promote(publish(releases, tree), datetime.now(UTC) + LATER)
    if confirmed:
        releases.confirm()


def in_use(home: Home) -> str:
    """What a launcher finds: the whole program behind `current`."""
    return (home.releases("r") / "current" / "bin" / "app").read_text().partition(" ")[0]


def test_a_release_is_read_only_and_found_behind_current(home: Home) -> None:
    with open_releases(home, "r") as releases:
        promote(releases, OLD)
    folder = home.releases("r")
    assert in_use(home) == OLD
    modes = [stat.S_IMODE((folder / OLD / name).stat().st_mode) for name in ("", "bin", "bin/app")]
    assert modes == [0o555, 0o555, 0o555]
    assert not list(folder.glob(".staging-*"))


def test_confirmed_by_a_file_switched_back_without_and_rolled_back(home: Home) -> None:
    with open_releases(home, "r") as releases:
        promote(releases, OLD)
        promote(releases, NEW, confirmed=False)
        assert (in_use(home), releases.state.previous) == (NEW, OLD)
        assert releases.state.confirm is not None
        releases.settle()
        assert in_use(home) == NEW, "there is time left"
        releases.state.confirm.touch()
        releases.settle()
        assert releases.state.pending is None
        promote(releases, NEWEST, confirmed=False)
        releases.settle(datetime.now(UTC) + 2 * LATER)
        assert (in_use(home), releases.state.previous) == (NEW, OLD)
        releases.roll_back()
        assert (in_use(home), releases.state.previous) == (OLD, NEW)
        events = [entry.event.value for entry in releases.state.history]
    assert events == ["promoted", "confirmed", "promoted", "confirmed", "promoted", "switched_back", "rolled_back"]


def test_the_first_release_that_is_not_confirmed_leaves_none(home: Home) -> None:
    with open_releases(home, "r") as releases:
        promote(releases, OLD, confirmed=False)
        releases.settle(datetime.now(UTC) + 2 * LATER)
        assert releases.state.current == ""
        with pytest.raises(SandboxError) as caught:
            releases.roll_back()
    assert caught.value.code is ErrorCode.NOT_FOUND
    assert not (home.releases("r") / "current").is_symlink()


def test_an_old_confirmation_confirms_no_later_promotion(home: Home) -> None:
    with open_releases(home, "r") as releases:
        promote(releases, OLD)
        (home.releases("r") / "confirm" / NEW).touch()
        promote(releases, NEW, confirmed=False)
        releases.settle(datetime.now(UTC) + 2 * LATER)
    assert in_use(home) == OLD


def test_a_release_in_use_is_never_replaced_by_another_build_of_its_tree(home: Home) -> None:
    with open_releases(home, "r") as releases:
        promote(releases, OLD)
        assert publish(releases, OLD) == OLD, "the same candidate: kept as it is"
        with pytest.raises(SandboxError) as caught:
            publish(releases, OLD, key="another")
        assert caught.value.code is ErrorCode.CONFLICT
        publish(releases, NEW, key="one")
        publish(releases, NEW, key="two")
        assert (home.releases("r") / NEW / "bin" / "app").read_text() == f"{NEW} two"
    assert in_use(home) == OLD


# --- killed at every step


def promote_and_settle(home: Home) -> None:
    with open_releases(home, "r") as releases:
        promote(releases, NEW, confirmed=False)
        releases.settle(datetime.now(UTC) + 2 * LATER)
        releases.roll_back()


def die_at(number: int, work: Callable[[Home], None], root: Path) -> None:
    """In a child: end without a word before the so-manieth change of the file system."""
    left = number

    def count(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal left
        changes = event in {"os.rename", "os.remove", "os.symlink", "os.mkdir", "os.chmod", "os.rmdir"}
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if str(root) in str(arguments[:2]) and (changes or writes):
            if left == 0:
                os._exit(77)
            left -= 1

    sys.addaudithook(count)
    work(Home(root))
    os._exit(0)


def test_killed_at_every_step_the_old_or_the_new_is_in_use(home: Home, tmp_path: Path) -> None:
    """Promotion, switching back and rolling back, each change of a file or name in turn."""
    with open_releases(home, "r") as releases:
        promote(releases, OLD)
        promote(releases, NEWEST)
    fork = multiprocessing.get_context("fork")
    seen: set[str] = set()
    for number in range(400):
        child = fork.Process(target=die_at, args=(number, promote_and_settle, home.root))
        child.start()
        child.join(60)
        assert child.exitcode in {0, 77}
        found = in_use(home)
        seen.add(found)
        assert found in {OLD, NEW, NEWEST}
        with open_releases(home, "r") as releases:
            state = releases.state
            assert state.current == found, "the state follows what is in use"
            assert (home.releases("r") / "current").readlink() == Path(found)
            if state.previous:
                assert (home.releases("r") / "previous").readlink() == Path(state.previous)
                assert (home.releases("r") / state.previous / "bin" / "app").exists()
            assert not list(home.releases("r").glob(".staging-*"))
            if state.pending is not None:
                releases.switch_back()
        if child.exitcode == 0:
            break
    assert number > 15, "the control: there are so many steps"
    assert NEW in seen, "the control: some were killed after the switch"


def test_two_promoters_do_not_meet(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sandbox.store.release_folder.LOCK_WAIT_S", 0.2)
    assert LOCK_WAIT_S > 1
    with held_elsewhere(home):
        with pytest.raises(SandboxError) as caught, open_releases(home, "r"):
            pass
        assert caught.value.code is ErrorCode.CONFLICT
    with open_releases(home, "r"):
        pass


@contextmanager
def held_elsewhere(home: Home) -> Iterator[None]:
    """Another process has the releases open."""
    fork = multiprocessing.get_context("fork")
    opened, over = fork.Event(), fork.Event()

    def hold() -> None:
        with open_releases(home, "r"):
            opened.set()
            over.wait(60)

    child = fork.Process(target=hold)
    child.start()
    try:
        assert opened.wait(60)
        yield
    finally:
        over.set()
        child.join(60)


def test_a_clock_that_is_set_back_does_not_keep_an_unconfirmed_release(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Fast(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]  # no `Self` is made
            return datetime.now(tz) + timedelta(days=2)

    with open_releases(home, "r") as releases:
        promote(releases, OLD)
    with monkeypatch.context() as patched, open_releases(home, "r") as releases:
        patched.setattr(release_folder, "datetime", Fast)
        releases.promote(publish(releases, NEW), Fast.now(UTC) + LATER)
        releases.settle(Fast.now(UTC) - timedelta(seconds=30))  # a correction
        assert (in_use(home), release_folder.list_unsettled(home)[0].is_due) == (NEW, False)
    assert release_folder.list_unsettled(home)[0].is_due
    with open_releases(home, "r") as releases:
        releases.settle()
    assert in_use(home) == OLD
