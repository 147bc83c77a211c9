"""Each command loads what it needs and no more: most of the time of a short command is imports (docs/adr/0080)."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest

from devtools.loaded_modules import CLICK, LOCKS, MODELS, Budget, check_budget, find_loaded
from tests.unit.conftest import Upstream
from tests.unit.desk import Desk

LOOKING = Budget(CLICK | MODELS, 146)  # no profile and no policy is read (docs/adr/0100)
READING = Budget(CLICK | MODELS, 155)  # with the client of the daemon, and what replaces processes of git
SUGGESTING = Budget(READING.libraries | {"yaml"}, READING.ours)  # CI workflows are read for checks that nobody named
SEARCHING = Budget(CLICK | MODELS, 133)  # more before the search of a commit had imports of its own
EDITING = Budget(CLICK | MODELS | LOCKS, 150)  # with the rules that say which of its files git ignores
WRITING = Budget(CLICK | MODELS | LOCKS, 182)  # with what says whether the history of a clone is whole, and its locks


LITTLE = {
    "version": ["--version"],
    "help": ["--help"],
    "unknown": ["frobnicate"],
}


@pytest.mark.parametrize("arguments", LITTLE.values(), ids=LITTLE)
def test_nothing_heavy_is_loaded_for_little(arguments: list[str]) -> None:
    loaded = find_loaded(*arguments)
    ours = 14 if arguments == LITTLE["unknown"] else 13  # one of them looks for the daemon, one for a near word
    assert check_budget(loaded, Budget(CLICK, ours)) == ""
    assert "sandbox.cli.app" in loaded.ours


def test_a_list_of_tasks_is_printed_without_any_model(tmp_path: Path) -> None:
    listing = ["--home", str(tmp_path / "home"), "task", "list"]
    assert check_budget(find_loaded(*listing), Budget(CLICK, 54)) == ""
    assert "pydantic" in check_budget(find_loaded(*listing, "--json"), Budget(CLICK, 54)), "the control"


def test_a_task_is_read_and_changed_without_git_library_engine_or_network(upstream: Upstream, tmp_path: Path) -> None:
    """In the order of a session; a command that fails would load less, so each must succeed."""
    desk = Desk(upstream, tmp_path / "sandbox-home")
    task_id = desk.task.id
    content = b"one\nthree\n"
    desk.write("f", content)
    expected = f"sha256:{sha256(content).hexdigest()}"
    (written := tmp_path / "written").write_bytes(b"one\n")
    (patch := tmp_path / "patch").write_text("--- a/new\n+++ b/new\n@@ -1 +1,2 @@\n one\n+two\n")
    written_hash, patched_hash = (f"sha256:{sha256(text).hexdigest()}" for text in (b"one\n", b"one\ntwo\n"))
    session = (
        (["status", task_id], LOOKING),
        (["diff", task_id], READING),
        (["file", "read", task_id, "f"], LOOKING),
        (["check", "list", task_id], SUGGESTING),
        (["task", "show", task_id], READING),
        (["file", "edit", task_id, "f", "--old", "three", "--new", "four", "--expect", expected], EDITING),
        (["file", "search", task_id, "three"], SEARCHING),
        (["file", "write", task_id, "new", str(written), "--expect", "absent"], EDITING),
        (["file", "patch", task_id, str(patch), "--expect", f"new={written_hash}"], EDITING),
        (["file", "rename", task_id, "new", "newer", "--expect", patched_hash], EDITING),
        (["file", "delete", task_id, "newer", "--expect", patched_hash], EDITING),
        (["commit", task_id, "-m", "two"], WRITING),
        (["task", "create", "--offline", desk.repo_id], WRITING),
        (["task", "close", task_id, "--delete", "--discard"], WRITING),
    )
    wrong = {}
    for arguments, budget in session:
        loaded = find_loaded("--home", str(desk.home), *arguments)
        wrong[" ".join(arguments[:2])] = check_budget(loaded, budget) or (f"exit {loaded.code}" if loaded.code else "")
    assert not {command: why for command, why in wrong.items() if why}
