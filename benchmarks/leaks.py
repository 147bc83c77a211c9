"""S19: tasks with controllers killed at random moments. After one `gc`, the number of leftovers must be 0.

`python -m benchmarks.leaks [TASKS]`, 50 by default. Each task is created, written to, snapshot and committed, every
fifth is also checked in a container. Each step is its own command; about half are killed. The random seed is fixed, the
timing is not.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks._harness import judge
from devtools.inventory import left_behind
from devtools.kills import Kills, Run, set_up
from sandbox import Workbench
from sandbox.engine.connection import DockerEngine, connect
from sandbox.errors import SandboxError
from sandbox.files.mount_points import unmount_below

TASKS = 50
STEPS = 120
"""About the number of steps of the longest command without a container. A later kill has no effect."""
CHECKED = 5
YOUNG_S = 61.0
"""How long some files may be those of a process that still works, for `gc`: git's locks, and probes of mounts."""


class Dice:
    """Runs commands; about half are killed at a random step."""

    def __init__(self, home: Path, kills: Kills) -> None:
        self._home, self._kills = home, kills
        self._random = random.Random(19)  # noqa: S311 - selects steps, not a secret
        self.commands = self.killed = 0

    def run(self, *arguments: str) -> Run:
        at = self._random.randint(1, STEPS) if self._random.random() < 0.5 else 0
        ended = self._kills.run(self._home, *arguments, at=at)
        self.commands += 1
        self.killed += ended.was_killed
        return ended


def live(dice: Dice, repo_id: str, content: Path, *, checked: bool) -> None:
    """Run one task from creation to closing; any command may be killed."""
    created = dice.run("task", "create", repo_id)
    if created.code != 0:
        return
    task_id = created.stdout.split('"id": "')[1].split('"')[0]
    dice.run("file", "write", task_id, "new", str(content), "--expect", "absent")
    dice.run("task", "snapshot", task_id)
    if checked:
        dice.run("check", "run", task_id, "go")
    dice.run("commit", task_id, "-m", "x")
    dice.run("task", "close", task_id, "--delete", "--discard")


def engine_of(environ: dict[str, str]) -> DockerEngine | None:
    try:
        return connect("", environ, 60.0)
    except SandboxError as error:
        print(f"without containers: {error.brief}", file=sys.stderr)
        return None


def timed(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return (time.perf_counter() - started) * 1000


def main() -> int:
    wanted = [int(word) for word in sys.argv[1:] if word.isdigit()]
    engine = engine_of(dict(os.environ))
    with tempfile.TemporaryDirectory() as name, Kills(Path(name)) as kills:
        home, content = Path(name) / "home", Path(name) / "content"
        content.write_text("new\n")
        set_up(home, Path(name) / "plain")
        with Workbench(home, allow_file=True) as workbench:
            repo_id = workbench.clone(str(Path(name) / "plain")).repository.id
        dice = Dice(home, kills)
        for number in range(wanted[0] if wanted else TASKS):
            live(dice, repo_id, content, checked=engine is not None and number % CHECKED == 0)
        before = len(left_behind(home, engine))
        time.sleep(YOUNG_S)
        with Workbench(home) as workbench:
            for task in workbench.tasks():  # tasks that are still open because their close was killed
                if task.closed_at is None:
                    workbench.close_task(task.id, delete_worktree=True, discard=True)
            collecting = timed(workbench.collect)
            again = timed(workbench.collect)
        left = left_behind(home, engine)
        unmount_below(home)
    print("\n".join(left))
    print(f"S19: {dice.killed} of {dice.commands} commands killed, {before} leftovers, after gc {len(left)}")
    judge("S19 gc after kills", [(collecting, again)], floor_name="gc with nothing to do", target="0 left")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
