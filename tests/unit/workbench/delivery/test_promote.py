"""A promotion installs the files that a person was shown: those of one build, not of one tree. Ids: THREATS S191."""

from __future__ import annotations

import errno
import hashlib
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import Approval
from sandbox.models.checks import ReleaseRule
from sandbox.models.releases import ReleaseManifest
from sandbox.store.candidates import FILES, find_candidate, save_candidate, staged_candidate
from sandbox.store.home import Home
from sandbox.store.release_folder import Releases, open_releases, staged_release
from sandbox.workbench.controller import release_watch
from sandbox.workbench.delivery import promote
from tests.unit.conftest import Upstream, refused
from tests.unit.desk import Desk

PROMOTE = "space_repo_promote"
KEY = "b" * 64
GOOD, OTHER = b"#!/bin/sh\necho good\n", b"#!/bin/sh\necho other\n"


@dataclass(frozen=True)
class Application:
    """A task of an application with kept candidates. Only the engine is missing: the launch's verdict is there."""

    desk: Desk
    tree: str
    profile: SimpleNamespace

    def keep(self, content: bytes, run: str = "run-1") -> None:
        """What a candidate that passed leaves: the key says nothing of its files."""
        home, repo_id = Home(self.desk.home), self.desk.repo_id
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        with staged_candidate(home, repo_id) as staged:
            (staged / FILES / "app").write_bytes(content)
            manifest = ReleaseManifest.model_validate(
                {
                    "repo_id": repo_id, "tree": self.tree, "commit": self.head, "key": KEY, "image_digest": "",
                    "run_id": run, "created_at": datetime.now(UTC), "artifacts": ["app"],
                    "files": [{"path": "app", "size": len(content), "sha256": digest, "executable": True}],
                }
            )  # fmt: skip
            save_candidate(home, staged, manifest)

    @property
    def head(self) -> str:
        return self.desk.workbench.task(self.desk.task.id).head_commit

    @property
    def arguments(self) -> dict[str, Any]:
        return {"task_id": self.desk.task.id, "wait_s": 0}

    def approve(self) -> tuple[Approval, str]:
        """What a person approved, and the state that it is bound to."""
        call = self.desk.workbench.approval_call(PROMOTE, self.arguments)
        asked = self.desk.workbench.request_approval(call)
        return self.desk.workbench.answer_approval(asked.id, approved=True, by="a person"), call.state

    def is_approved(self) -> bool:
        return self.desk.workbench.use_approval(self.desk.workbench.approval_call(PROMOTE, self.arguments))

    def promote(self, state: str | None) -> None:
        self.desk.workbench.promote(self.desk.task.id, 0, expected_commit=state)

    def confirm(self) -> None:
        self.desk.workbench.confirm_release(self.desk.task.id)

    @property
    def installed(self) -> bytes | None:
        path = Home(self.desk.home).releases(self.desk.repo_id) / "current" / "app"
        return path.read_bytes() if path.exists() else None


@pytest.fixture
def application(upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Application]:
    desk = Desk(upstream, tmp_path / "sandbox-home")
    with desk.workbench:
        desk.write("f", b"changed\n")
        tree = desk.workbench.commit(desk.task.id, "m").tree
        profile = SimpleNamespace(release=ReleaseRule(artifacts=("app",), confirm_s=3600), full_name="p")
        made = Application(desk, tree, profile)

        def find_source(_services: object, owner: str) -> SimpleNamespace:
            return SimpleNamespace(owner=owner, repo_id=desk.repo_id, commit=made.head, tree=tree, profile=profile)

        monkeypatch.setattr(release_watch, "watch_release", lambda *_: None)  # it would outlive the test
        monkeypatch.setattr(promote, "find_source", find_source)
        monkeypatch.setattr(promote, "_find_passed", lambda *_: find_candidate(Home(desk.home), desk.repo_id, KEY))
        yield made


def test_s191_an_approved_promotion_installs_no_files_of_another_run(application: Application) -> None:
    """Control: as long as the kept files are those of the question, the same call installs them."""
    application.keep(GOOD)
    approval, state = application.approve()
    digest = hashlib.sha256(GOOD).hexdigest()
    assert f"program: app sha256:{digest}" in approval.question
    application.keep(OTHER)
    assert not application.is_approved()
    with refused(ErrorCode.CONFLICT) as caught:
        application.promote(state)
    assert "artifacts" in caught.value.brief
    assert "a person is then asked" in caught.value.hint
    assert application.installed is None
    application.desk.workbench.promote(application.desk.task.id, 0)
    assert application.installed == OTHER, "the control: a promotion that is bound to nothing takes what is kept"


def test_a_promotion_says_how_many_changes_it_leaves_out(application: Application) -> None:
    application.keep(GOOD)
    desk = application.desk
    desk.write("f", b"not committed\n")
    assert desk.workbench.promote(desk.task.id, 0).uncommitted == 1
    application.confirm()
    assert desk.workbench.releases(desk.task.id).uncommitted is None, "only a promotion looks"


def test_a_release_has_the_artifacts_that_the_profile_asks_for_now(application: Application) -> None:
    """The verdict does not depend on them, so the candidate answers from its cache, with the files of before."""
    application.keep(GOOD)
    application.promote(None)
    application.confirm()
    for artifacts in (("app", "assets"), ("app", "app")):
        application.profile.release = ReleaseRule(artifacts=artifacts, confirm_s=3600)
        with refused(ErrorCode.GATE_CLOSED) as caught:
            application.promote(None)
        assert "[promote]" in caught.value.brief
        assert caught.value.hint == f"sandbox candidate {application.desk.task.id} --no-cache"
    application.profile.release = ReleaseRule(artifacts=("app",), confirm_s=1)
    application.promote(None)
    assert application.installed == GOOD, "the control: how long a confirmation may take is no part of a release"


def test_releases_of_a_removed_repository_can_be_listed_confirmed_and_rolled_back(application: Application) -> None:
    """They may be in use. `repo remove` says that they stay. Control: other ids are as unknown as before."""
    application.keep(GOOD)
    application.promote(None)
    workbench, repo_id = application.desk.workbench, application.desk.repo_id
    workbench.close_task(application.desk.task.id, delete_worktree=True, discard=True)
    removed = workbench.remove_repository(repo_id, discard=True)
    assert removed.releases == Home(application.desk.home).releases(repo_id)
    assert [entry.event.value for entry in workbench.releases(repo_id).history] == ["promoted"]
    assert workbench.confirm_release(repo_id).pending is None
    with refused(ErrorCode.NOT_FOUND) as caught:
        workbench.roll_back_release(repo_id)
    assert "before the one in use" in caught.value.brief
    for unknown in ("another", "../releases", f"{repo_id}/current"):
        with refused(ErrorCode.NOT_FOUND, ErrorCode.INVALID_INPUT):
            workbench.releases(unknown)


def test_a_repository_without_releases_says_none_when_it_is_removed(application: Application) -> None:
    workbench = application.desk.workbench
    assert workbench.releases(application.desk.repo_id).current == "", "a look makes the directory"
    workbench.close_task(application.desk.task.id, delete_worktree=True, discard=True)
    assert workbench.remove_repository(application.desk.repo_id, discard=True).releases is None


def test_what_waits_can_be_confirmed_or_rolled_back(application: Application) -> None:
    application.keep(GOOD)
    application.promote(None)
    with refused(ErrorCode.CONFLICT) as caught:
        application.promote(None)
    repo_id = application.desk.repo_id
    for action in ("confirm", "rollback"):
        assert f"`sandbox promote --{action} {repo_id}`" in caught.value.hint


def test_s191_what_was_approved_is_installed(application: Application) -> None:
    application.keep(GOOD)
    _, state = application.approve()
    assert application.is_approved()
    application.promote(state)
    assert application.installed == GOOD


def test_s191_files_that_are_replaced_while_they_are_copied_are_not_installed(
    application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    application.keep(GOOD)
    _, state = application.approve()
    copy = promote._copy

    def replace_first(found: promote.Promotable, staged: Path) -> None:
        application.keep(OTHER)
        copy(found, staged)

    monkeypatch.setattr(promote, "_copy", replace_first)
    for bound in (state, None):
        with refused(ErrorCode.CONFLICT) as caught:
            application.promote(bound)
        assert "replaced the artifacts" in caught.value.brief
        application.keep(GOOD)
    assert application.installed is None


def test_s191_a_release_of_another_build_of_the_tree_is_not_put_in_use_for_it(application: Application) -> None:
    """The one that was published first has the same name, and other files. Control: of the same build it is kept."""
    application.keep(GOOD)
    application.promote(None)
    application.desk.workbench.roll_back_release(application.desk.task.id)
    assert application.installed is None
    application.keep(OTHER, "run-2")
    application.promote(None)
    assert application.installed == OTHER
    application.confirm()
    application.promote(None)
    application.keep(GOOD, "run-3")
    with refused(ErrorCode.CONFLICT) as caught:
        application.promote(None)
    assert "gave other files" in caught.value.details
    assert application.installed == OTHER


def test_s191_the_release_that_is_replaced_is_approved_with_it(application: Application) -> None:
    application.keep(GOOD)
    approval, state = application.approve()
    assert "instead of: no release" in approval.question
    home, repo_id = Home(application.desk.home), application.desk.repo_id
    with staged_release(home, repo_id) as staged, open_releases(home, repo_id) as releases:
        other = ReleaseManifest(
            repo_id=repo_id, tree="c" * 40, commit="c" * 40, key="k", image_digest="", run_id="run-9",
            created_at=datetime.now(UTC),
        )  # fmt: skip
        releases.publish(staged, other)
        releases.promote("c" * 40, datetime.now(UTC))
        releases.confirm()
    assert not application.is_approved()
    with refused(ErrorCode.CONFLICT) as caught:
        application.promote(state)
    assert "instead_of: approved '', now 'cccc" in caught.value.details


def test_the_lock_that_others_await_is_free_while_files_are_copied(
    application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever takes it meanwhile leaves the files alone that are being copied. Control: the next one removes what a
    killed promoter left.
    """
    application.keep(GOOD)
    home, repo_id = Home(application.desk.home), application.desk.repo_id
    copy = promote._copy

    def look_around(found: promote.Promotable, staged: Path) -> None:
        copy(found, staged)

        def look() -> None:
            with open_releases(home, repo_id) as releases:
                seen.append(releases.state.current)

        other = threading.Thread(target=look)
        other.start()
        other.join(60)
        assert staged.is_dir()

    seen: list[str] = []
    monkeypatch.setattr("sandbox.store.release_folder.LOCK_WAIT_S", 0.2)
    monkeypatch.setattr(promote, "_copy", look_around)
    application.promote(None)
    assert (seen, application.installed) == ([""], GOOD)
    left = home.releases(repo_id) / ".staging-0123456789abcdef"
    left.mkdir()
    application.desk.workbench.releases(application.desk.task.id)
    assert not left.exists()


def test_a_release_that_was_promoted_while_files_were_copied_is_not_replaced(
    application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for its confirmation; or it is not the one that a person was shown."""
    application.keep(GOOD)
    _, state = application.approve()
    home, repo_id = Home(application.desk.home), application.desk.repo_id
    copy = promote._copy

    def promote_another(found: promote.Promotable, staged: Path) -> None:
        copy(found, staged)
        with open_releases(home, repo_id) as releases:
            (releases.folder / ("c" * 40)).mkdir(exist_ok=True)
            releases.promote("c" * 40, datetime.now(UTC) + timedelta(hours=1))
            if not pending:
                releases.confirm()

    monkeypatch.setattr(promote, "_copy", promote_another)
    for pending, text in ((True, "waits for its confirmation"), (False, "another one")):
        with refused(ErrorCode.CONFLICT) as caught:
            application.promote(state)
        assert pending is (text in caught.value.brief), caught.value.brief
        with open_releases(home, repo_id) as releases:
            releases.switch_back()
            assert releases.state.current == ("" if pending else "c" * 40)


class Flaky:
    """Releases of a home that cannot be opened the first times."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, home: Path, *failures: Exception) -> None:
        self.home, self.failures = home, list(failures)
        monkeypatch.setattr(release_watch, "open_releases", self._open)
        monkeypatch.setattr(release_watch, "LOOK_S", 0.01)
        monkeypatch.setattr(release_watch, "RETRY_S", 0.01)

    @contextmanager
    def _open(self, home: Home, repo_id: str, lock_wait_s: float) -> Iterator[Releases]:
        if self.failures and home.root == self.home:  # threads of other tests look after their own
            raise self.failures.pop(0)
        with open_releases(home, repo_id, lock_wait_s) as releases:
            yield releases


BUSY = SandboxError(ErrorCode.CONFLICT, "Another operation is still running")
LINK = SandboxError(ErrorCode.UNSAFE_PATH, "no directory")
FULL = OSError(28, "No space left on device")
WATCH = release_watch.watch_release


def test_no_failure_ends_the_watch_over_a_release(
    application: Application, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is switched back after it. What goes on is logged once; that another process has the lock, not at all."""
    application.keep(GOOD)
    application.promote(None)
    assert application.installed == GOOD
    home, repo_id = Home(application.desk.home), application.desk.repo_id
    with open_releases(home, repo_id) as releases:
        releases.switch_back()
        releases.promote(application.tree, datetime.now(UTC))
    Flaky(monkeypatch, home.root, BUSY, FULL, FULL, LINK, BUSY)
    with caplog.at_level(logging.WARNING):
        WATCH(application.desk.workbench._services, repo_id)
        [thread] = [one for one in threading.enumerate() if one.name == f"release-{repo_id}"]
        thread.join(60)
        assert not thread.is_alive()
    assert application.installed is None
    assert [record.getMessage().rpartition(": ")[2] for record in caplog.records] == [
        "[Errno 28] No space left on device", "no directory",
    ]  # fmt: skip


def test_the_watch_over_a_release_ends_with_its_home(application: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    services = SimpleNamespace(home=SimpleNamespace(root=application.desk.home / "gone"))
    Flaky(monkeypatch, application.desk.home / "gone", *[LINK] * 1000)
    release_watch._wait_until_settled(services, "r")  # type: ignore[arg-type]  # what it uses


def test_a_home_that_cannot_be_looked_at_ends_no_watch(
    application: Application, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As on a file system of the network."""
    answers = [OSError(errno.ESTALE, "Stale file handle"), None, FileNotFoundError(errno.ENOENT, "gone")]

    class Root:
        def stat(self) -> None:
            answer = answers.pop(0)
            if answer is not None:
                raise answer

        def is_dir(self) -> bool:
            self.stat()
            return True

    root = Root()
    Flaky(monkeypatch, root, LINK)  # type: ignore[arg-type]  # what it uses
    home = SimpleNamespace(root=root, releases=lambda _: application.desk.home)
    release_watch._wait_until_settled(SimpleNamespace(home=home), "r")  # type: ignore[arg-type]  # what it uses
    assert answers == []
    assert "Stale file handle" in caplog.text


def test_a_lock_that_is_held_for_long_ends_no_wait(application: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: at the end of the wait it is named, and another failure at once."""
    services, repo_id = application.desk.workbench._services, application.desk.repo_id
    with open_releases(services.home, repo_id):
        pass  # their directory: without it there is no lock to wait for
    Flaky(monkeypatch, application.desk.home, BUSY, BUSY)
    assert release_watch.wait_for_confirmation(services, repo_id).pending is None
    Flaky(monkeypatch, application.desk.home, BUSY)
    with refused(ErrorCode.CONFLICT):
        release_watch.wait_for_confirmation(services, repo_id, 0)
    Flaky(monkeypatch, application.desk.home, LINK)
    with refused(ErrorCode.UNSAFE_PATH):
        release_watch.wait_for_confirmation(services, repo_id)
