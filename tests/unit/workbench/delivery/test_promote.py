"""A promotion installs the files that a person was shown: those of one build, not of one tree. Ids: THREATS S191."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sandbox.errors import ErrorCode
from sandbox.models import Approval
from sandbox.models.checks import ReleaseRule
from sandbox.models.releases import ReleaseManifest
from sandbox.store.candidates import FILES, find_candidate, save_candidate, staged_candidate
from sandbox.store.home import Home
from sandbox.store.release_folder import open_releases
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

    def keep(self, content: bytes, run: str = "run-1") -> None:
        """What a candidate that passed leaves: the key says nothing of its files."""
        home, repo_id = Home(self.desk.home), self.desk.repo_id
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        with staged_candidate(home, repo_id) as staged:
            (staged / FILES / "app").write_bytes(content)
            manifest = ReleaseManifest.model_validate(
                {
                    "repo_id": repo_id, "tree": self.tree, "commit": self.head, "key": KEY, "image_digest": "",
                    "run_id": run, "created_at": datetime.now(UTC),
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
        made = Application(desk, tree)
        profile = SimpleNamespace(release=ReleaseRule(artifacts=("app",), confirm_s=3600), full_name="p")

        def find_source(_services: object, owner: str) -> SimpleNamespace:
            return SimpleNamespace(owner=owner, repo_id=desk.repo_id, commit=made.head, tree=tree, profile=profile)

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
    assert "its build gave other files" in caught.value.details
    assert application.installed == OTHER


def test_s191_the_release_that_is_replaced_is_approved_with_it(application: Application) -> None:
    application.keep(GOOD)
    approval, state = application.approve()
    assert "instead of: no release" in approval.question
    home, repo_id = Home(application.desk.home), application.desk.repo_id
    with open_releases(home, repo_id) as releases:
        other = ReleaseManifest(
            repo_id=repo_id, tree="c" * 40, commit="c" * 40, key="k", image_digest="", run_id="run-9",
            created_at=datetime.now(UTC),
        )  # fmt: skip
        with releases.staged() as staged:
            releases.publish(staged, other)
        releases.promote("c" * 40, datetime.now(UTC))
        releases.confirm()
    assert not application.is_approved()
    with refused(ErrorCode.CONFLICT) as caught:
        application.promote(state)
    assert "instead_of: approved '', now 'cccc" in caught.value.details
