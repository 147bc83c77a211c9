"""THREATS S01: a client starts the server in a directory of the attacker's. Nothing in it is imported."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox.agent.clients import CLIENTS
from sandbox.attack import runner, select
from sandbox.attack.harness.scratch import ScratchDirectory
from sandbox.attack.harness.site import AttackRun
from sandbox.attack.suites import start
from sandbox.config import Settings
from sandbox.models import AttackOutcome
from tests.attack.arena import Arena, variants

pytestmark = [pytest.mark.must, pytest.mark.one_git]
SCRIPT = Path(sys.executable).with_name("sandbox")


@pytest.fixture
def opened(make_arena: Callable[..., Arena]) -> Arena:
    """A victim with the hostile directory, whose modules have been seen to run."""
    arena = make_arena()
    start.plant(arena)
    arena.require_mark("click.py", lambda: careless(arena, [sys.executable, "-m", "sandbox", "--version"]))
    return arena


def careless(arena: Arena, argv: list[str], **env: str) -> None:
    subprocess.run(argv, cwd=start.opened_directory(arena), env=env, capture_output=True, check=False, timeout=60)


@pytest.mark.parametrize("python_path", start.PYTHON_PATHS, ids=repr)
@pytest.mark.parametrize("client", variants(CLIENTS, "claude"))  # the entry that ships tries every one
def test_s01_a_client_imports_nothing_of_its_directory(opened: Arena, client: str, python_path: str) -> None:
    found = start.snippet(opened, client)
    start.require_tools(start.serve(opened, found, python_path), found)
    assert opened.marks() == set()


@pytest.mark.parametrize(
    ("argv", "python_path", "hit"),
    [
        ([sys.executable, "-m", "sandbox"], "", {"sandbox.__init__.py", "sandbox.__main__.py", "click.py", "json.py"}),
        ([str(SCRIPT)], ".", {"sandbox.__init__.py", "sandbox.__main__.py", "sitecustomize.py", "click.py", "json.py"}),
    ],
    ids=["-m", "script"],
)
def test_control_s01_modules_of_the_directory_run(
    opened: Arena, argv: list[str], python_path: str, hit: set[str]
) -> None:
    careless(opened, [*argv, "--version"], PYTHONPATH=python_path)
    assert opened.marks() == hit


def test_s01_python_m_by_hand_imports_less(opened: Arena) -> None:
    """A belt for those who type it: once our own package runs, the directory is off the import path."""
    shutil.rmtree(start.opened_directory(opened) / "sandbox")
    careless(opened, [sys.executable, "-c", "import click"])
    assert opened.marks() == {"click.py"}, "void"
    opened.delete_marks()
    careless(opened, [sys.executable, "-m", "sandbox", "--version"])
    assert opened.marks() == set()


def test_s01_the_shipped_entry_tries_every_client() -> None:
    assert set(start.CLIENTS) == set(CLIENTS)


def test_s01_the_shipped_entry_sees_a_careless_snippet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    argv = (sys.executable, "-m", "sandbox", "--home", str(tmp_path / "home"), "mcp")
    monkeypatch.setattr(start, "snippet", lambda *_: start.Start(argv, {}))
    monkeypatch.setattr(start, "require_tools", lambda *_: None)
    with AttackRun(Settings(), {}, scratch=ScratchDirectory(tmp_path)) as site:
        (result,) = runner.run_entries(site, select(["S01"]), None, 120)
    assert result.outcome is AttackOutcome.GOT_THROUGH, result
    assert "sandbox.__init__.py" in result.seen
