"""`run URL` without an engine: the clean rooms are left out, the repository and its cache are real."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest

from sandbox.cli import main
from sandbox.engine import connection
from sandbox.errors import ErrorCode, SandboxError
from sandbox.workbench import VerifyOptions, Workbench
from sandbox.workbench.checks import verify
from sandbox.workbench.controller.services import Services
from sandbox.workbench.repositories import clone, commit_facts, stored_facts
from tests.unit.conftest import Upstream, refused

PROFILE = """
label = "Own"
image = "build"
[[detect.all]]
file = "f"
matches = "one"
[[check]]
id = "test"
label = "test"
argv = ["true"]
"""


@pytest.fixture
def workbench(upstream: Upstream, tmp_path: Path) -> Iterator[Workbench]:
    upstream.write("f", b"one\n")
    upstream.commit()
    (tmp_path / "home" / "profiles").mkdir(parents=True)
    (tmp_path / "home" / "profiles" / "own.toml").write_text(PROFILE)
    environ = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]}
    with Workbench(tmp_path / "home", environ=environ, allow_file=True) as found:
        yield found


def counted(monkeypatch: pytest.MonkeyPatch, module: object, name: str) -> list[str]:
    """The calls of a function of a module from here on."""
    calls: list[str] = []
    real = getattr(module, name)

    def call(*args: object) -> object:
        calls.append(name)
        return real(*args)

    monkeypatch.setattr(module, name, call)
    return calls


@pytest.mark.parametrize("ref", ["HEAD", "main"])
def test_the_facts_of_the_head_are_read_once_a_run(
    ref: str, workbench: Workbench, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control: the working directory is compared with these facts, so they are used three times."""
    workbench.clone(str(upstream.root))
    (upstream.root / "new").write_bytes(b"not committed\n")
    monkeypatch.setattr(verify, "run_in_rooms", lambda *_: ())
    monkeypatch.setattr(Services, "engine_facts", {})
    facts = counted(monkeypatch, stored_facts, "read_json")
    trees = [counted(monkeypatch, module, "tree_of") for module in (clone, commit_facts)]
    summary = workbench.run(str(upstream.root), ref)
    assert summary.tree == upstream.git("rev-parse", "HEAD^{tree}").decode().strip()
    assert summary.profile == "own"
    assert summary.uncommitted is not None
    assert [change.path for change in summary.uncommitted.changes] == ["new"]
    assert facts == ["read_json"]
    assert [len(calls) for calls in trees] == [0, 1]


def test_an_older_commit_has_its_own_tree_and_profile(
    workbench: Workbench, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = upstream.git("rev-parse", "HEAD").decode().strip()
    upstream.write("f", b"two\n")
    upstream.commit()
    monkeypatch.setattr(verify, "run_in_rooms", lambda *_: ())
    monkeypatch.setattr(Services, "engine_facts", {})
    summary = workbench.run(str(upstream.root), old)
    assert summary.tree == upstream.git("rev-parse", f"{old}^{{tree}}").decode().strip()
    assert (summary.commit, summary.profile, summary.uncommitted) == (old, "own", None)


def test_an_engine_that_is_refused_is_refused_before_a_clone(
    workbench: Workbench, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    reason = SandboxError(ErrorCode.ENGINE_UNAVAILABLE, "The container engine is Podman 3, which is not supported")
    refuse = Mock(side_effect=reason)
    monkeypatch.setattr(connection, "connect", refuse)
    for checks in ((), ("no-such-check",)):  # which checks there are is known after the clone
        with refused(ErrorCode.ENGINE_UNAVAILABLE):
            workbench.run(str(upstream.root), check_ids=checks)
    assert workbench.repositories() == ()
    head = upstream.git("rev-parse", "HEAD").decode().strip()
    assert workbench.run(str(upstream.root), options=VerifyOptions(changed_since=head)).nothing_changed
    assert refuse.call_count == 2, "where no check has to run, no engine is asked"


def test_where_nothing_changed_nothing_is_verified_and_there_is_no_receipt(
    workbench: Workbench, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verify, "run_in_rooms", lambda *_: ())
    head = upstream.git("rev-parse", "HEAD").decode().strip()
    summary = workbench.run(str(upstream.root), options=VerifyOptions(changed_since=head))
    assert (summary.verified, summary.nothing_changed, summary.runs, summary.left_out) == (False, True, (), ("test",))
    with refused(ErrorCode.NOT_FOUND) as caught:
        workbench.export_receipt(summary)
    assert "no verdict to sign" in caught.value.brief

    upstream.write("g", b"new")
    upstream.commit()
    changed = workbench.run(str(upstream.root), options=VerifyOptions(changed_since=head))
    assert (changed.verified, changed.nothing_changed) == (False, False), "no run is no pass"


def test_a_job_in_which_nothing_changed_passes_says_so_and_writes_its_reports(
    workbench: Workbench, upstream: Upstream, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("junit", "markdown", "outputs", "receipt")
    reports = [f"--report={name}={tmp_path / name}" for name in names]
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("GITHUB_ACTIONS", raising=False)
        code = main(["--home", str(workbench.home), "run", str(upstream.root), "--changed-since", "HEAD", *reports])
    said = capsys.readouterr()
    assert code == 0
    assert "no check had to run, and the tree is not verified" in said.out
    assert "verified in" not in said.out
    assert "no verdict to sign" in said.err
    assert [(tmp_path / name).exists() for name in names] == [True, True, True, False]
    outputs = dict(line.split("=") for line in (tmp_path / "outputs").read_text().splitlines())
    assert (outputs["verified"], outputs["passed"], outputs["nothing_changed"]) == ("false", "true", "true")
    assert "no check had to run" in (tmp_path / "markdown").read_text()
