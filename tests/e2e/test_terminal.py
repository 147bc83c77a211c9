"""What a person sees on a real terminal, and what a pipe gets."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from devtools.command import Command
from devtools.terminal import Terminal
from sandbox.models import TaskStatus
from sandbox.workbench import Workbench
from tests.unit.conftest import Upstream, initialised

PROMPT = "a long prompt that says in many words what is to be done in this task and in no other one"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def project(tmp_path: Path) -> Upstream:
    made = initialised(tmp_path / "project")
    made.write("file", b"x\n")
    made.commit()
    return made


@pytest.fixture
def tasks(home: Path, project: Upstream) -> list[str]:
    """Four of them, in the order in which they were made; the second and the third are closed."""
    environ = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]}
    with Workbench(home, environ=environ, allow_file=True) as workbench:
        repo_id = workbench.clone(str(project.root)).repository.id
        made = [workbench.create_task(repo_id, PROMPT).id for _ in range(4)]
        for task_id in made:
            workbench.close_task(task_id, delete_worktree=True) if task_id in made[1:3] else None
    return made


@pytest.mark.parametrize("stdout", [True, False], ids=["terminal", "only-stderr"])
def test_gits_progress_leaves_nothing_on_the_screen(home: Path, project: Upstream, stdout: bool) -> None:
    seen = Terminal(home, stdout=stdout)("repo", "clone", str(project.root))

    assert "[new branch]" in seen.raw  # the control: there was progress
    result = [f"  remote   file://{project.root}", "  branch   main"]
    if stdout:
        assert seen.screen[0] == "Cloning"
        assert re.fullmatch(r"local-[0-9a-f]{8}-project", seen.screen[1])
        assert seen.screen[2:4] == result
    else:
        assert seen.screen[:2] == ["Cloning", "note: No build file was seen. No profile fits"]
        assert seen.piped.splitlines()[1:3] == result


def test_an_error_after_progress_begins_a_line(home: Path, project: Upstream) -> None:
    seen = Terminal(home)("run", str(project.root))

    assert "[new branch]" in seen.raw
    assert seen.code == 2
    assert seen.screen[1].startswith("error [invalid_input] The profile '")
    assert "has no checks to run" in seen.screen[1]


@pytest.mark.parametrize("environ", [{"CI": "true"}, {"TERM": "dumb"}], ids=["ci", "dumb"])
def test_where_lines_cannot_be_rewritten_there_is_no_progress(
    home: Path, project: Upstream, environ: dict[str, str]
) -> None:
    seen = Terminal(home)("repo", "clone", str(project.root), **environ)
    assert seen.code == 0
    assert "[new branch]" not in seen.raw
    assert "\r\x1b[K" not in seen.raw


@pytest.mark.parametrize("columns", [80, 100, 200])
def test_a_table_fits_the_terminal_and_its_ids_can_be_used(home: Path, tasks: list[str], columns: int) -> None:
    seen = Terminal(home, columns)("task", "list", "--all")

    lines = [line.rstrip() for line in seen.screen if line.strip()]
    assert len(lines) == 1 + len(tasks)
    assert all(len(line) <= columns for line in lines)
    assert [line.split()[0] for line in lines[1:]] == [task[: len("task-") + 8] for task in reversed(tasks)]
    assert (PROMPT in lines[1]) == (columns == 200)


def test_a_pipe_gets_the_whole_table_without_colors(home: Path, tasks: list[str]) -> None:
    listed = Command(home, {"COLUMNS": "40"})("task", "list", "--all")

    head, *rows = listed.stdout.splitlines()
    assert head.split() == ["TASK", "STATUS", "CREATED", "REPOSITORY", "PROMPT"]
    assert [row.split()[0] for row in rows] == list(reversed(tasks))
    assert all(row.index(PROMPT) == head.index("PROMPT") for row in rows)
    assert all(re.search(r" \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:\d\d ", row) for row in rows)
    assert "\x1b" not in listed.stdout


def test_colors_say_what_a_status_means(home: Path, tasks: list[str]) -> None:
    seen = Terminal(home, 200)("task", "list")
    plain = Terminal(home, 200)("task", "list", NO_COLOR="1")

    assert "\x1b[36mworking" in seen.raw
    assert "working" in plain.raw
    assert "\x1b" not in plain.raw
    assert re.search(r" (now|\d+ s ago) ", plain.raw)


def test_open_tasks_are_listed_newest_first_and_closed_ones_counted(home: Path, tasks: list[str]) -> None:
    command = Command(home)

    listed, document = command("task", "list"), command.ok("task", "list")

    assert [row.split()[0] for row in listed.stdout.splitlines()[1:]] == [tasks[3], tasks[0]]
    assert listed.stderr == "2 closed tasks not shown: use --all\n"
    assert [task["id"] for task in document["tasks"]] == tasks  # a program filters by itself
    assert [task["status"] for task in document["tasks"]].count(TaskStatus.CLOSED) == 2
    assert all(task["created_at"].endswith("Z") for task in document["tasks"])


def test_times_are_local_and_json_has_utc(home: Path, tasks: list[str]) -> None:
    command = Command(home, {"TZ": "Asia/Kolkata"})

    shown, document = command("task", "show", tasks[0]), command.ok("task", "show", tasks[0])

    assert re.search(r"created +\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+05:30 \((now|\d+ \w+ ago)\)\n", shown.stdout)
    assert json.dumps(document).count("+05:30") == 0
