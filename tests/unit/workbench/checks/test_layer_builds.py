from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sandbox.dependencies.layer_plan import ABSENT, UNFIT, LayerPlan, Look
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import Verdict
from sandbox.models.dependencies import RefusalReason
from sandbox.models.layers import LayerPackage
from sandbox.workbench.checks import layer_builds
from sandbox.workbench.checks.callbacks import Watch
from sandbox.workbench.checks.layer_attempts import STOPPED
from sandbox.workbench.checks.layer_builds import list_lacking, require_installed


@pytest.mark.parametrize(
    ("refused", "code", "named"),
    [(["a-1.0.0.crate"], ErrorCode.POLICY_VIOLATION, "a-1.0.0.crate"), ([], ErrorCode.INTERNAL, "failed")],
)
def test_an_archive_that_is_refused_is_no_error_of_ours(refused: list[str], code: ErrorCode, named: str) -> None:
    run: Any = SimpleNamespace(verdict=Verdict.FAILED, stderr_tail="why\n")
    with pytest.raises(SandboxError) as raised:
        require_installed(run, refused)
    assert (raised.value.code, raised.value.details) == (code, "why\n")
    assert named in raised.value.brief
    assert raised.value.hint


def test_an_install_that_succeeded_raises_nothing() -> None:
    run: Any = SimpleNamespace(verdict=Verdict.PASSED)
    require_installed(run, [])


def test_what_a_fetch_left_out_is_named_if_the_project_asks_for_it(tmp_path: Path) -> None:
    (tmp_path / ABSENT).write_text("@s/three@^2.0.0\nelse@1\n")
    (tmp_path / UNFIT).write_text("one@1\nelse@2\n")
    plan = LayerPlan({}, wanted=("@s/three@^2.0.0", "one@1"))
    assert [(entry.text, entry.reason) for entry in list_lacking(tmp_path, plan)] == [
        ("@s/three@^2.0.0", RefusalReason.ABSENT),
        ("one@1", RefusalReason.UNFIT),
    ]


def test_a_directory_in_place_of_a_list_is_no_list(tmp_path: Path) -> None:
    """Code of a package runs where the lists are. A directory can be opened, but not as a stream."""
    (tmp_path / ABSENT).mkdir()
    before = len(list(Path("/proc/self/fd").iterdir()))
    assert list_lacking(tmp_path, LayerPlan({}, wanted=("one@1",))) == ()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def _with_link(path: Path) -> None:
    path.mkdir()
    (path / "one").symlink_to("/etc/passwd")


def _with_pipe(path: Path) -> None:
    path.mkdir()
    os.mkfifo(path / "one")


REPLACED: dict[str, Callable[[Path], object]] = {
    "missing": lambda path: None,
    "file": lambda path: path.write_text("x"),
    "link": lambda path: path.symlink_to("/etc"),
    "directory": lambda path: (path / "one").mkdir(parents=True),
    "link inside": _with_link,
    "pipe inside": _with_pipe,
}


@pytest.mark.parametrize("kind", REPLACED)
def test_a_fetch_without_a_folder_of_archives_is_refused(kind: str, tmp_path: Path) -> None:
    REPLACED[kind](tmp_path / "archives")
    (tmp_path / "target").mkdir()
    steps: Any = SimpleNamespace(may_be_empty=False, describe=LayerPackage)
    with pytest.raises(SandboxError) as raised:
        layer_builds._take_archives(tmp_path / "archives", tmp_path / "target", steps)
    assert raised.value.code is ErrorCode.POLICY_VIOLATION
    assert list((tmp_path / "target").iterdir()) == []


@pytest.mark.parametrize(("count", "said"), [(0, "The fetch brought no archives"), (3, "more than 2 archives")])
def test_a_fetch_of_too_few_or_too_many_archives_is_refused_with_what_it_brought(
    count: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layer_builds, "MAX_ARCHIVES", 2)
    for number in range(count):
        (tmp_path / str(number)).write_bytes(b"x")
    steps: Any = SimpleNamespace(may_be_empty=False, describe=LayerPackage)
    with pytest.raises(SandboxError, match=said):
        layer_builds._take_archives(tmp_path, tmp_path / "target", steps)


@pytest.mark.parametrize("kind", ["missing", "link", "directory"])
def test_a_fetch_that_does_not_say_what_it_chose_is_refused(kind: str, tmp_path: Path) -> None:
    REPLACED[kind](tmp_path / "selection.txt")
    with pytest.raises(SandboxError) as raised:
        layer_builds._read_selection(tmp_path / "selection.txt")
    assert raised.value.code is ErrorCode.POLICY_VIOLATION


def test_the_comparison_with_a_lock_file_ends_when_the_fetch_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control: else the archives are taken."""
    (tmp_path / "archives").mkdir()
    (tmp_path / "archives" / "a").write_bytes(b"x")
    (tmp_path / "selection.txt").write_text("as locked")
    fetched: Any = SimpleNamespace(folder=tmp_path, accesses=(), require_success=lambda _: None)

    def compare(_folder: Path, _packages: object, _plan: object, look: Look) -> tuple[str, ...]:
        look()
        return ()

    def describe(file: str, sha256: str) -> LayerPackage:
        return LayerPackage(name="a", version="1", file=file, sha256=sha256)

    steps: Any = SimpleNamespace(
        archives="archives", fetch=None, may_be_empty=False, describe=describe, find_mismatches=compare
    )
    monkeypatch.setattr(layer_builds, "find_steps", lambda _: steps)
    monkeypatch.setattr(layer_builds, "_write_check", lambda *_: None)
    monkeypatch.setattr(layer_builds, "fetch", lambda *_: nullcontext(fetched))
    monkeypatch.setattr(layer_builds, "replace", lambda found, **_: found)
    services: Any = None  # no guest is set up
    request: Any = SimpleNamespace(
        rule=SimpleNamespace(ecosystem="go"), plan=LayerPlan({}), setup=None, as_of=datetime.now(UTC)
    )
    for name in ("taken", "stopped"):
        (tmp_path / name).mkdir()
    found = layer_builds._fetch_archives(services, request, Watch(), tmp_path / "taken")
    assert [package.file for package in found.packages] == ["a"]
    with pytest.raises(SandboxError) as raised:
        layer_builds._fetch_archives(services, request, Watch(cancelled=lambda: True), tmp_path / "stopped")
    assert raised.value.reason == STOPPED
