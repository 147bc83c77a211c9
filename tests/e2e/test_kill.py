"""Every command is killed at its steps (THREATS P03): the next works, `gc` leaves nothing, no answered edit is lost.

`KILL_STEPS=all` kills at every step of every command, which takes minutes; else at a fixed sample of them.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from devtools.inventory import left_behind, processes, records
from devtools.kills import Kills, Run, plain_git, set_up
from devtools.requirement import unavailable
from devtools.waiting import wait_until
from sandbox.engine.connection import DockerEngine, connect
from sandbox.errors import SandboxError
from sandbox.files.mount_points import unmount_below

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("kills")]  # one process forks all commands
ALL = os.environ.get("KILL_STEPS") == "all"
GOLDEN = 0.6180339887
OK, REPEATED = frozenset({0}), frozenset({0, 2, 4})


@dataclass
class Life:
    """One home and what was answered in it. `answered`: content by path, by task."""

    root: Path
    kills: Kills
    engine: DockerEngine | None = None
    answered: dict[str, dict[str, bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.home, self.remote, self.source = self.root / "home", self.root / "remote.git", self.root / "source"
        set_up(self.home, self.source)
        plain_git("clone", "-q", "--bare", self.source, self.remote, cwd=self.root)
        self.repo_id = str(self.ok("repo", "clone", str(self.remote))["repository"]["id"])

    def advance(self) -> None:
        """One more commit of the project."""
        (self.source / "h").write_text(uuid.uuid4().hex)
        plain_git("add", "-A", cwd=self.source)
        plain_git("commit", "-q", "-m", "x", cwd=self.source)

    def run(self, *arguments: str, at: int = 0) -> Run:
        return self.kills.run(self.home, *arguments, at=at)

    def ok(self, *arguments: str) -> dict[str, Any]:
        ended = self.run(*arguments)
        assert ended.code == 0, f"{arguments}: {ended.code} {ended.stdout} {ended.stderr}"
        found: dict[str, Any] = json.loads(ended.stdout)
        return found

    def file(self, content: bytes) -> str:
        path = self.root / f"content-{uuid.uuid4().hex}"
        path.write_bytes(content)
        return str(path)

    def write(self, task_id: str, path: str, content: bytes) -> None:
        """An edit that is answered."""
        self.ok("file", "write", task_id, path, self.file(content), "--expect", "absent")
        self.answered.setdefault(task_id, {})[path] = content

    def worktree(self, task_id: str) -> Path:
        return self.home / "repositories" / "worktrees" / self.repo_id / task_id

    def task(self, *paths: str) -> str:
        """A task with an answered edit, and one for each path."""
        task_id = str(self.ok("task", "create", self.repo_id)["task"]["id"])
        for path in ("kept", *paths):
            self.write(task_id, path, uuid.uuid4().bytes)
        return task_id

    def lost(self) -> list[str]:
        """Answered edits of open tasks that are not there."""
        states = {name: task["status"] for name, task in records(self.home).items()}
        found = []
        for task_id, files in self.answered.items():
            assert task_id in states, f"the record of {task_id} is gone"
            for path, content in files.items():
                place = self.worktree(task_id) / path
                if states[task_id] != "closed" and not (place.is_file() and place.read_bytes() == content):
                    found.append(f"{task_id} {path}")
        return found

    def end_tasks(self) -> None:
        """Close all, with their guests."""
        if any(task["status"] == "spare" for task in records(self.home).values()):
            self.ok("pool", "drain")
        for task_id, task in records(self.home).items():
            if task["status"] != "closed":
                self.ok("task", "close", task_id, "--delete", "--discard")

    def settle(self) -> None:
        """A git or another child of the killed controller runs to its own end."""
        wait_until(lambda: not list(processes(self.home)))


@dataclass(frozen=True)
class Command:
    """`prepare` makes a state and gives the command to kill in it; `repeated`: exit codes when it is given again.

    `later`: a command that the daemon gives from time to time.
    """

    prepare: Callable[[Life], list[str]]
    repeated: frozenset[int] = OK
    sample: int = 1
    needs_engine: bool = False
    later: tuple[str, ...] = ()


def clone(life: Life) -> list[str]:
    other = life.root / f"other-{uuid.uuid4().hex[:8]}.git"
    shutil.copytree(life.remote, other)
    return ["repo", "clone", str(other)]


def remove(life: Life) -> list[str]:
    arguments = clone(life)
    return ["repo", "remove", life.ok(*arguments)["repository"]["id"], "--discard"]


def fetch(life: Life) -> list[str]:
    life.advance()
    plain_git("push", "-q", life.remote, "main", cwd=life.source)
    return ["repo", "fetch", str(life.remote)]


def run(life: Life) -> list[str]:
    return ["run", fetch(life)[-1]]


def write(life: Life) -> list[str]:
    return ["file", "write", life.task(), "new", life.file(b"new\n"), "--expect", "absent"]


def patch(life: Life) -> list[str]:
    hunks = [f"--- a/{n}\n+++ b/{n}\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n" for n in ("f", "g")]
    task_id = life.task()
    known = life.ok("file", "read", task_id, "f")["sha256"]
    text = life.file("".join(hunks).encode())
    return ["file", "patch", task_id, text, "--expect", f"f={known}", "--expect", f"g={known}"]


def restore(life: Life) -> list[str]:
    task_id = life.task()
    kept = life.ok("task", "snapshot", task_id)["id"]
    life.write(task_id, "later", b"later")
    del life.answered[task_id]["later"]  # whether it is there tells how far the restore came; a snapshot has it
    return ["task", "restore", task_id, kept]


def sync(life: Life) -> list[str]:
    task_id = life.task()
    fetch(life)
    return ["task", "sync", task_id]


def push(life: Life) -> list[str]:
    task_id = life.task()
    life.ok("commit", task_id, "-m", "to push")
    return ["push", task_id]


def push_again(life: Life) -> list[str]:
    """Of more than the push that was killed sent, wherever that was."""
    arguments = push(life)
    killed_at = 1 + len(life.answered) * 7 % 40
    life.run(*arguments, at=killed_at)
    life.settle()
    life.write(arguments[1], "more", b"more")
    life.ok("commit", arguments[1], "-m", "more")
    return arguments


def verify(life: Life) -> list[str]:
    task_id = life.task()
    life.ok("commit", task_id, "-m", "to verify")
    return ["verify", task_id]


def close_and_delete(life: Life) -> list[str]:
    task_id = life.task()
    if life.engine:
        life.ok("check", "run", task_id, "go")
    del life.answered[task_id]
    return ["task", "close", task_id, "--delete", "--discard"]


def collect(life: Life) -> list[str]:
    """With a half-made task, a worktree that lost its record, and the mount of a closed task to collect."""
    life.run("task", "create", life.repo_id, at=30)
    life.settle()
    task_id = str(life.ok("task", "create", life.repo_id)["task"]["id"])
    (life.home / "repositories" / "tasks" / f"{task_id}.json").unlink()
    (life.home / "repositories" / "tasks" / f".x.{uuid.uuid4().hex[:12]}.tmp").touch()
    return ["gc"]


def fill_pool(life: Life) -> list[str]:
    """For the repository of the newest task."""
    (life.home / "config.toml").write_text("[pool]\nsize = 1\n")
    life.task()
    life.ok("pool", "drain")
    return ["pool", "fill"]


def take_over(life: Life) -> list[str]:
    """A task that was made ahead."""
    life.ok(*fill_pool(life))
    return ["task", "create", life.repo_id]


COMMANDS = {
    "clone": Command(clone),
    "fetch": Command(fetch),
    "remove": Command(remove, REPEATED),
    "create": Command(lambda life: ["task", "create", life.repo_id], sample=3),
    "write": Command(write, REPEATED),
    "patch": Command(patch, REPEATED),
    "snapshot": Command(lambda life: ["task", "snapshot", life.task()]),
    "restore": Command(restore),
    "fork": Command(lambda life: ["task", "fork", life.task()]),
    "commit": Command(lambda life: ["commit", life.task(), "-m", "x"], REPEATED, sample=2),
    "push": Command(push),
    "push-again": Command(push_again),
    "close": Command(lambda life: ["task", "close", life.task()]),
    "close-and-delete": Command(close_and_delete),
    "gc": Command(collect, sample=2),
    "close-with-guest": Command(close_and_delete, needs_engine=True),
    "check": Command(lambda life: ["check", "run", life.task(), "go"], needs_engine=True),
    "verify": Command(verify, needs_engine=True),
    "run": Command(run, needs_engine=True),
    "sync": Command(sync),
    "clean": Command(lambda life: ["task", "clean", life.task()]),
    "fill-pool": Command(fill_pool, needs_engine=True),
    "take-over": Command(take_over, needs_engine=True, later=("pool", "fill")),
}

LIKE_ANOTHER = {"write", "snapshot", "close", "close-and-delete", "push-again", "run", "clean", "fork"}
"""Most of their steps are those of patch, commit, close-with-guest, push, verify, restore and create."""


def chosen(name: str, steps: int) -> list[int]:
    """The steps to kill before: all, or a few that lie differently in each command."""
    if ALL:
        return list(range(1, steps + 1))
    start = list(COMMANDS).index(name) * GOLDEN
    return sorted({1 + int((start + number * GOLDEN) % 1 * steps) for number in range(COMMANDS[name].sample)})


@pytest.fixture(scope="module")
def kills(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kills]:
    with Kills(tmp_path_factory.mktemp("kills")) as kills:
        yield kills


@pytest.fixture(scope="module")
def engine() -> Iterator[DockerEngine]:
    try:
        found = connect("", os.environ, 60.0)
    except SandboxError as error:
        unavailable(f"{error.brief}: {error.details}")
    with contextlib.closing(found):
        yield found


@pytest.fixture
def life(request: pytest.FixtureRequest, tmp_path: Path, kills: Kills, name: str) -> Iterator[Life]:
    engine = request.getfixturevalue("engine") if COMMANDS[name].needs_engine else None
    life = Life(tmp_path, kills, engine)
    yield life
    life.end_tasks()
    unmount_below(tmp_path)


def killed(life: Life, command: Command, at: int) -> list[str]:
    """Kill the command before this step, or before an earlier one if this time it takes fewer; what it was."""
    arguments = command.prepare(life)
    while not life.run(*arguments, at=at).was_killed:
        arguments, at = command.prepare(life), at // 2
        assert at, "void: a command without any step"
    return arguments


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.thorough] if name in LIKE_ANOTHER else []) for name in COMMANDS]
)
@pytest.mark.timeout(7200 if ALL else 300)
def test_p03_a_command_killed_at_any_step_leaves_nothing_and_loses_nothing(life: Life, name: str) -> None:
    command = COMMANDS[name]
    whole = life.run(*command.prepare(life))
    assert whole.code == 0, whole
    assert left_behind(life.home, life.engine) == []
    for at in chosen(name, whole.steps):
        arguments = killed(life, command, at)
        life.settle()
        again = life.run(*arguments)
        assert again.code in command.repeated, f"after a kill at step {at}: {again}"
        if command.later:
            life.ok(*command.later)
        found = life.ok("gc")["leftovers"]
        assert [x for x in found if x["action"] in {"kept", "busy", "failed"}] == [], f"step {at}"
        assert left_behind(life.home, life.engine) == [], f"step {at}"
        assert life.lost() == [], f"step {at}"
        if command.needs_engine or ALL:
            life.end_tasks()  # hundreds of tasks with a guest each are another test
    assert life.ok("gc")["leftovers"] == []
