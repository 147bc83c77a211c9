"""Layers of packages (Python): S21 a known layer added to a warm check, S22 the first layer of a project with ten
dependencies beside `uv sync`, S23 a further run with a known layer, S24 the disk of 20 tasks.

The packages come from the registry that `sandbox run` would use; `BENCH_REGISTRY` names another index. Both sides ask
the same one; nothing is cached.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path

from benchmarks._harness import ROUNDS, Rounds, compare, judge, timed
from sandbox import VerifyOptions, Workbench
from sandbox.dependencies.python_steps import STEPS
from sandbox.egress.reachability import ask_registries
from sandbox.egress.registries import find_registries
from sandbox.models import Task, TaskStatus, Verdict

PACKAGES = ["attrs", "click", "httpx", "jinja2", "packaging", "pydantic", "pyyaml", "requests", "rich", "tenacity"]
TASKS = 20
SLOW_ROUNDS = 9
PROFILE = """label = "Benchmark"
image = "python"
priority = {priority}
[[detect.any]]
file = "{marker}"
{layer}
[[check]]
id = "true"
label = "true"
argv = ["/bin/true"]
"""
LAYER = '[[layer]]\necosystem = "python"\n'
SETTINGS = {"registries": {"python": [os.environ["BENCH_REGISTRY"]]}} if "BENCH_REGISTRY" in os.environ else {}
_CONTAINER_CA = "/ca.pem"


@dataclass(frozen=True)
class Desk:
    """One controller, and two repositories: the same files, but the profile of only one has a layer."""

    workbench: Workbench
    root: Path

    def repository(self, name: str) -> Path:
        folder = self.root / name
        folder.mkdir()
        wanted = ", ".join(f'"{package}"' for package in PACKAGES)
        project = f'[project]\nname = "p"\nversion = "1"\nrequires-python = ">=3.11"\ndependencies = [{wanted}]\n'
        for file, text in {f"{name}.marker": "", "pyproject.toml": project}.items():
            (folder / file).write_text(text)
        git(folder, "init", "-q", "-b", "main")
        commit(folder, 0)
        return folder

    def task(self, folder: Path) -> Task:
        return self.workbench.create_task(self.workbench.clone(str(folder)).repository.id)

    def check(self, task: Task) -> tuple[str, ...]:
        run = self.workbench.run_checks(task.id, ["true"])[-1]
        assert run.verdict is Verdict.PASSED, run.stderr_tail
        return run.layers

    def close(self, task: Task) -> None:
        self.workbench.close_task(task.id, delete_worktree=True, discard=True)


@contextmanager
def desk() -> Iterator[Desk]:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        profiles = root / "home/profiles"
        profiles.mkdir(parents=True)
        for marker, layer in (("with", LAYER), ("without", "")):
            (profiles / f"{marker}.toml").write_text(
                PROFILE.format(priority=999, marker=f"{marker}.marker", layer=layer)
            )
        with Workbench(root / "home", settings=SETTINGS, allow_file=True) as workbench:
            try:
                yield Desk(workbench, root)
            finally:  # mounts of a task that is open would stay
                for task in workbench.tasks():
                    if task.status is not TaskStatus.CLOSED:
                        workbench.close_task(task.id, delete_worktree=True, discard=True)


def git(folder: Path, *words: str) -> None:
    identity = {f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    subprocess.run(["git", *words], cwd=folder, env={**os.environ, **identity}, check=True)


def commit(folder: Path, number: int) -> None:
    (folder / "counter").write_text(str(number))
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", str(number))


def known_layer(at: Desk, with_layer: Task, without: Task) -> None:
    assert at.check(with_layer)
    assert not at.check(without)
    pairs = []
    for _ in range(3 * ROUNDS):
        pairs.append((timed(lambda: at.check(with_layer)), timed(lambda: at.check(without))))
    judge("S21 warm check with a known layer", pairs, floor_name="the same check without a layer", target="+5 ms")
    added = [product - floor for product, floor in pairs]
    print(f"S21 added by the layer: median {statistics.median(added):.1f} ms of {len(added)} rounds", flush=True)


def first_layer(at: Desk, task: Task) -> None:
    registries = find_registries("python", at.workbench.settings.registries, os.environ)
    folder = at.workbench.task(task.id).worktree_path
    assert folder is not None
    ca_file = registries.ca_file or at.workbench.settings.images.ca_bundle
    own = {"UV_DEFAULT_INDEX": registries.indexes[0], "SSL_CERT_FILE": _CONTAINER_CA}
    env: Mapping[str, str] = {**STEPS.fetch.env, **own}
    words = [word for name, value in env.items() for word in ("-e", f"{name}={value}")]
    mounts = ["-v", f"{folder}/pyproject.toml:/pyproject.toml:ro", "-v", f"{ca_file}:{_CONTAINER_CA}:ro"]
    script = "mkdir /tmp/p && cd /tmp/p && cp /pyproject.toml . && uv sync -q --python /usr/bin/python3 $1"

    def product() -> None:
        (layer,) = at.workbench.build_layers(task.id).layers
        assert layer.packages >= len(PACKAGES)

    def remove() -> None:
        for layer in at.workbench.layers():
            at.workbench.remove_layer(layer.key)

    def floor(*options: str) -> None:
        remove()  # of a few milliseconds, for the next round
        docker = ["docker", "run", "--rm", "--network", "host", "-e", "HOME=/tmp", *words, *mounts]
        subprocess.run([*docker, "space-sandbox/python:latest", "sh", "-c", script, "sh", *options], check=True)

    name, rounds = f"S22 first layer, {len(PACKAGES)} dependencies", Rounds(SLOW_ROUNDS)
    compare(name, product, floor, floor_name="`uv sync` in a container", target="1.5x", rounds=rounds)
    same = partial(floor, "--compile-bytecode")  # as a layer's packages are, so that no check compiles them again
    compare(name, product, same, floor_name="the same with --compile-bytecode", target="-", rounds=rounds)


def further_run(at: Desk, with_layer: Path, without: Path) -> None:
    """Each run is of a commit that was never seen, with the manifests of the one before."""
    numbers = count(1)

    def run(folder: Path) -> None:
        summary = at.workbench.run(str(folder), options=VerifyOptions(cache=False))
        assert summary.verified

    run(with_layer)
    run(without)
    pairs = []
    for _ in range(ROUNDS):
        for folder in (with_layer, without):
            commit(folder, next(numbers))
        pairs.append((timed(lambda: run(with_layer)), timed(lambda: run(without))))
    judge("S23 run of a new commit, layer known", pairs, floor_name="the same run without packages", target="1.3x")


def disk(at: Desk, with_layer: Path, without: Path) -> None:
    """What 20 tasks with a layer use more than 20 tasks without, compared with one copy of the layer."""

    def used_by(folder: Path) -> int:
        before = disk_bytes(at.root / "home")
        tasks = [at.task(folder) for _ in range(TASKS)]
        for task in tasks:
            at.check(task)
        used = disk_bytes(at.root / "home") - before
        for task in tasks:
            at.close(task)
        return used

    one = disk_bytes(at.root / "home/repositories/dependencies/trees")
    more = used_by(with_layer) - used_by(without)
    print(f"S24 layer {one / 1e6:.1f} MB; {TASKS} tasks use {more / 1e6:.1f} MB more than without it", flush=True)
    pair = ((one + more) / 1e6, one / 1e6)
    judge(f"S24 disk of {TASKS} tasks with one layer", [pair], floor_name="one copy", target="1.05x", unit="MB")


def disk_bytes(folder: Path) -> int:
    """Blocks below a folder, each file once."""
    seen = {}
    for top, folders, files in os.walk(folder):
        for name in (*folders, *files):
            try:
                info = (Path(top) / name).lstat()
            except FileNotFoundError:
                continue
            seen[info.st_dev, info.st_ino] = info.st_blocks * 512
    return sum(seen.values())


def is_reachable(at: Desk) -> bool:
    registries = find_registries("python", at.workbench.settings.registries, os.environ)
    answers = ask_registries(registries.hosts, registries.ca_file or at.workbench.settings.images.ca_bundle)
    for host, problem in answers.items():
        if problem:
            print(f"{host}: {problem}; set BENCH_REGISTRY", file=sys.stderr)
    return not any(answers.values())


def main() -> int:
    with desk() as at:
        if not is_reachable(at):
            return 1
        with_layer, without = at.repository("with"), at.repository("without")
        tasks = at.task(with_layer), at.task(without)
        first_layer(at, tasks[0])
        at.workbench.build_layers(tasks[0].id)
        known_layer(at, *tasks)
        further_run(at, with_layer, without)
        for task in tasks:
            at.close(task)
        disk(at, with_layer, without)
    return 0


if __name__ == "__main__":
    sys.exit(main())
