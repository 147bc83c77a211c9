"""`run URL` without an engine: the clean rooms are left out, the repository and its cache are real."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.workbench import Workbench
from sandbox.workbench.checks import verify
from sandbox.workbench.repositories import clone, commit_facts, stored_facts
from tests.unit.conftest import Upstream

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
    summary = workbench.run(str(upstream.root), old)
    assert summary.tree == upstream.git("rev-parse", f"{old}^{{tree}}").decode().strip()
    assert (summary.commit, summary.profile, summary.uncommitted) == (old, "own", None)
