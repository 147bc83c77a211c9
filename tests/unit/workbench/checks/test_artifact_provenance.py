"""Whose artifacts get provenance, and what it says; the runs are written as clean rooms write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sandbox.cli import main
from sandbox.errors import ErrorCode
from sandbox.models import ReceiptQuestion, RunSummary, Verdict
from sandbox.models.artifact_lists import Artifact, ArtifactList
from sandbox.receipts.artifact_files import hash_artifact
from sandbox.receipts.statement import describe_check
from sandbox.store.artifact_store import save_list
from sandbox.store.bindings import save_binding
from sandbox.store.home import Home
from sandbox.store.records import save_run
from sandbox.store.runs import find_run
from sandbox.workbench.checks import signed_receipts
from tests.unit.conftest import Upstream, refused
from tests.unit.desk import Desk
from tests.unit.receipt_samples import Signer, made_binding, made_run


class BuildDesk(Desk):
    """A desk on which a clean room built `dist/app`."""

    def build(self, number: int, owner: str, *, artifacts: bool = True, **fields: Any) -> str:
        """A run of the task's base commit; returns its id."""
        home, run_id = Home(self.home), f"run-{number:032x}"
        tree = self.upstream.git("rev-parse", f"{self.task.base_commit}^{{tree}}").decode().strip()
        folder = home.logs(owner)
        folder.mkdir(exist_ok=True)
        run = made_run("build", **{"run_id": run_id, "tree": tree, **fields})
        save_run(home, owner, run)
        save_binding(folder, run_id, made_binding("build", tree=tree))
        if artifacts:
            app = Artifact(path="dist/app", sha256=hash_artifact(self.app), size=3)
            save_list(home, owner, ArtifactList(run_id=run_id, artifacts=(app,)))
        return run_id

    @property
    def app(self) -> Path:
        path = self.home.parent / "app"
        path.write_bytes(b"app")
        return path


@pytest.fixture
def desk(upstream: Upstream, tmp_path: Path) -> BuildDesk:
    return BuildDesk(upstream, tmp_path / "home")


@pytest.mark.parametrize("of_task", [True, False], ids=["a run of a task", "a run of `sandbox run`"])
def test_a_file_is_shown_to_come_from_a_tree_and_a_commit(desk: BuildDesk, of_task: bool, tmp_path: Path) -> None:
    run_id = desk.build(1, desk.task.id if of_task else desk.repo_id)
    signer = Signer()
    for name, content in (("key.pem", signer.pem), ("key.pub", signer.public_pem)):
        (tmp_path / name).write_bytes(content)

    made = desk.workbench.export_receipt(run_id, signing_key=tmp_path / "key.pem", provenance=True)
    assert (made.receipt.commit, made.receipt.source) == (desk.task.base_commit, "")
    question = ReceiptQuestion(keys=(tmp_path / "key.pub",), artifacts=(desk.app,), repository=str(desk.upstream.root))
    assert desk.workbench.verify_receipt(made.envelope.encode(), question) == made.receipt

    (tmp_path / "provenance.json").write_text(made.envelope)
    verify = ["receipt", "verify", str(tmp_path / "provenance.json"), "--key", str(tmp_path / "key.pub"), "--artifact"]
    (tmp_path / "other").write_bytes(b"another")
    assert [main([*verify, str(path)]) for path in (desk.app, tmp_path / "other", tmp_path / "absent")] == [0, 3, 2]


def test_only_artifacts_of_a_clean_room_that_passed_have_provenance(desk: BuildDesk) -> None:
    owner = desk.repo_id
    for code, subject in (
        (ErrorCode.INVALID_INPUT, desk.task.id),
        (ErrorCode.INVALID_INPUT, desk.build(2, owner, verdict=Verdict.FAILED, exit_code=1)),
        (ErrorCode.INVALID_INPUT, desk.build(3, owner, clean_room=False)),
        (ErrorCode.NOT_FOUND, desk.build(4, owner, artifacts=False)),
    ):
        with refused(code):
            desk.workbench.export_receipt(subject, provenance=True)
    assert desk.workbench.export_receipt(desk.build(5, owner), provenance=True).receipt.artifacts


@pytest.mark.parametrize("same", [True, False], ids=["the same content", "another content"])
def test_a_replay_compares_the_artifacts_too(desk: BuildDesk, same: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    made = desk.workbench.export_receipt(desk.build(7, desk.repo_id), provenance=True)

    def run_again(*_: object) -> RunSummary:
        run_id = desk.build(8, desk.repo_id)
        if not same:
            app = Artifact(path="dist/app", sha256=f"sha256:{'1' * 64}", size=3)
            save_list(Home(desk.home), desk.repo_id, ArtifactList(run_id=run_id, artifacts=(app,)))
        run = find_run(Home(desk.home), desk.repo_id, run_id)
        repository = desk.workbench.repositories()[0]
        fields: dict[str, Any] = {"repository": repository, "ref": "HEAD", "commit": desk.task.base_commit}
        return RunSummary(**fields, profile="own", runs=(run,), verified=True, tree=run.tree)

    monkeypatch.setattr(signed_receipts, "run_url", run_again)
    found = desk.workbench.replay_receipt(made.envelope.encode(), ReceiptQuestion(repository=str(desk.upstream.root)))
    assert [check.now for check in found.checks] == [Verdict.PASSED]
    assert (found.agrees, found.other_artifacts) == (same, () if same else ("dist/app",))


def test_a_replay_compares_which_submodules_had_their_files_of_lfs() -> None:
    run = made_run("build")
    before, now = (
        describe_check(made_binding("build", submodules=True, submodules_with_lfs=urls), run)
        for urls in (("https://h/a/b",), ())
    )
    assert signed_receipts._compare(before, now).differences == ("submodules_with_lfs",)
    assert signed_receipts._compare(before, before).differences == ()


def test_a_receipt_that_could_not_be_read_is_not_signed(desk: BuildDesk) -> None:
    run_id = desk.build(6, desk.repo_id)
    names = [Artifact(path=f"{number:04}{'x' * 3000}", sha256=hash_artifact(desk.app), size=3) for number in range(400)]
    save_list(Home(desk.home), desk.repo_id, ArtifactList(run_id=run_id, artifacts=tuple(names)))
    with refused(ErrorCode.QUOTA_EXCEEDED):
        desk.workbench.export_receipt(run_id, provenance=True)
