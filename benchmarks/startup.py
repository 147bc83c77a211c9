"""What commands cost that a person types: S17, S25 and S26, and for each the modules that it loads."""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks._harness import ROUNDS, compare
from benchmarks._repositories import make
from devtools.command import SANDBOX
from devtools.loaded_modules import find_loaded
from sandbox.workbench import Workbench

TASKS = 200
IMAGE = "space-sandbox/build:latest"
PROFILE = """label = "Benchmark"
image = "build"
[[check]]
id = "true"
label = "true"
argv = ["/bin/true"]
"""
PYTHON = [sys.executable, "-I", "-c", "pass"]


@dataclass(frozen=True)
class Site:
    """A home with `TASKS` open tasks; one of them is to have a guest and a verdict."""

    home: Path
    task_id: str

    def arguments(self, *words: str) -> list[str]:
        return ["--home", str(self.home), *words]

    def run(self, *words: str) -> None:
        run([*SANDBOX, *self.arguments(*words)])


def run(argv: list[str]) -> None:
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@contextmanager
def site() -> Iterator[Site]:
    with tempfile.TemporaryDirectory() as name:
        home = Path(name) / "home"
        (home / "profiles").mkdir(parents=True)
        (home / "profiles" / "generic.toml").write_text(PROFILE)
        with Workbench(home, allow_file=True) as workbench:
            repo_id = workbench.clone(str(make(Path(name) / "source.git", "small"))).repository.id
            tasks = [workbench.create_task(repo_id, f"task {n}") for n in range(TASKS)]
            try:
                yield Site(home, tasks[0].id)
            finally:
                for task in tasks:
                    workbench.close_task(task.id, delete_worktree=True, discard=True)


def main() -> None:
    with site() as at:
        commands = {
            "--version": ("S17", "6x"),
            "task list": ("S17", ""),
            f"status {at.task_id}": ("S25", "12x"),
            f"diff {at.task_id}": ("S25", ""),
            f"file read {at.task_id} README.md": ("S25", "10x"),
            f"verify {at.task_id}": ("S25", "15x"),
            f"check run {at.task_id} true": ("S26", ""),
        }
        at.run("check", "run", at.task_id, "true")
        at.run("verify", at.task_id)
        for command, (number, target) in commands.items():
            words = command.split()
            name = f"{number} {' '.join(w for w in words if w != at.task_id)}"
            compare(name, partial(at.run, *words), partial(run, PYTHON), floor_name="python -c pass", target=target)
            print(f"{'':44} {describe(at, words)}", flush=True)
        compare(
            f"S17 task list, {TASKS} tasks",
            lambda: at.run("task", "list"),
            lambda: run(["docker", "ps"]),
            floor_name="docker ps",
            target="4x",
        )
        compare(
            "S26 check run true",
            lambda: at.run("check", "run", at.task_id, "true"),
            lambda: run(["docker", "run", "--rm", "--network", "none", IMAGE, "true"]),
            floor_name="docker run --rm --network none",
            target="1.2x",
        )


def describe(at: Site, words: list[str]) -> str:
    """Modules and processor time of one command: the time of a loaded host says little, its modules do not change."""
    spent = statistics.median(_processor_ms(at, words) for _ in range(ROUNDS))
    loaded = find_loaded(*at.arguments(*words))
    libraries = ", ".join(sorted(loaded.libraries))
    return f"{spent:9.1f} ms of processor, {loaded.total} modules, {len(loaded.ours)} of ours, and {libraries}"


def _processor_ms(at: Site, words: list[str]) -> float:
    """The time that a command and its git processes spent in user and system mode."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    at.run(*words)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000


if __name__ == "__main__":
    main()
