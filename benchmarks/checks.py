"""The cost of checks: S1 a warm check, S2 the first check of a task, S3 the same with a spare task, S16 closing a task,
S20 a real build.

S1 is also compared with SWE-ReX, whose server runs in the container as root with a network, writes no record and takes
no measurements. We verify the guest's identity, limits and cleanness each time, and store the run.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import _engine_api as api
from benchmarks._harness import ROUNDS, Rounds, compare, judge, timed
from benchmarks._repositories import make
from benchmarks._swerex import Peer
from sandbox import Workbench
from sandbox.models import CheckRun, Task, Verdict

PROFILE = """label = "Benchmark"
image = "build"
[[check]]
id = "true"
label = "true"
argv = ["/bin/true"]
[[check]]
id = "build"
label = "compile everything again"
argv = ["make", "--always-make", "--silent", "-j", "{cpus}"]
limits = {{ cpus = {cpus} }}
"""
SOURCES, FUNCTIONS = 8, 60
CPUS = sorted(os.sched_getaffinity(0))


@dataclass(frozen=True)
class Desk:
    """One controller with one repository."""

    workbench: Workbench
    repo_id: str

    def task(self) -> Task:
        return self.workbench.create_task(self.repo_id)

    def check(self, task: Task, name: str = "true") -> CheckRun:
        run = self.workbench.run_checks(task.id, [name])[-1]
        assert run.verdict is Verdict.PASSED, run.stderr_tail
        return run

    def close(self, task: Task) -> None:
        self.workbench.close_task(task.id, delete_worktree=True, discard=True)


@contextmanager
def desk(remote: Path, spares: int = 0) -> Iterator[Desk]:
    """A controller with its own home, and one repository."""
    with tempfile.TemporaryDirectory() as name:
        home = Path(name) / "home"
        (home / "profiles").mkdir(parents=True)
        (home / "profiles" / "generic.toml").write_text(PROFILE.format(cpus=len(CPUS)))
        settings = {"pool": {"size": spares}}
        with Workbench(home, allow_file=True, environ={}, settings=settings) as workbench:
            yield Desk(workbench, workbench.clone(str(remote)).repository.id)


def like(task: Task) -> dict[str, Any]:
    """Create options for a container like the task's: same image, command, hardening, limits and mounts."""
    listed = api.call("GET", f'/containers/json?filters={{"label":["space.sandbox.task={task.id}"]}}')
    found = api.call("GET", f"/containers/{listed[0]['Id']}/json")
    return {**found["Config"], "Labels": {}, "HostConfig": found["HostConfig"]}


def run_like(body: Mapping[str, Any]) -> list[str]:
    """`docker run --rm` of `/bin/true` with these create options, as far as its command line has them."""
    host = body["HostConfig"]
    words = ["docker", "run", "--rm", "--read-only", f"--network={host['NetworkMode']}", "--entrypoint=/bin/true"]
    words += [f"--user={body['User']}", f"--memory={host['Memory']}", f"--pids-limit={host['PidsLimit']}"]
    words += [f"--cap-drop={name}" for name in host["CapDrop"] or ()]
    words += [f"--cap-add={name}" for name in host["CapAdd"] or ()]
    words += [f"--tmpfs={path}:{options}" for path, options in (host.get("Tmpfs") or {}).items()]
    words += [f"--volume={bind}" for bind in host["Binds"] or ()]
    for mount in host.get("Mounts") or ():
        source = f"source={mount['Source']}," if mount.get("Source") else ""
        readonly = ",readonly" if mount.get("ReadOnly") else ""
        words.append(f"--mount=type={mount['Type']},{source}target={mount['Target']}{readonly}")
    return [*words, "--security-opt=no-new-privileges", body["Image"]]


def warm(at: Desk) -> None:
    task = at.task()
    at.check(task)
    container = api.create(like(task))
    try:
        name = "S1 warm check, /bin/true"
        compare(
            name,
            lambda: at.check(task),
            lambda: api.execute(container, "/bin/true"),
            floor_name="engine API exec: create, start, inspect",
            target="0.15x",
        )
        for way in ("execute", "session"):
            with Peer(way) as peer:
                title = f"S1 the same beside SWE-ReX, {way}"
                compare(title, lambda: at.check(task), peer.true, floor_name="SWE-ReX 1.4.0", target="1x")
    finally:
        api.delete(container)
        at.close(task)


def first(at: Desk) -> None:
    """The first check of a new task. The cache clone and the image exist already."""
    model = at.task()
    at.check(model)
    body = like(model)
    tasks: list[Task] = []
    containers: list[str] = []

    def product() -> None:
        tasks.append(at.task())
        at.check(tasks[-1])

    def floor() -> None:
        containers.append(api.create(body))
        api.execute(containers[-1], "/bin/true")

    pairs, ends = [], []
    for round_number in range(ROUNDS + 1):
        pair = (timed(product), timed(floor))
        end = (timed(lambda: at.close(tasks[-1])), timed(lambda: api.delete(containers[-1])))
        if round_number:  # the first round is the warm-up
            pairs.append(pair)
            ends.append(end)
    at.close(model)
    name = "engine API create, start, exec"
    judge("S2 task create to first check finished", pairs, floor_name=name, target="1.15x")
    judge("S16 task close", ends, floor_name="engine API force delete", target="1.2x")


def first_of_spare(at: Desk) -> None:
    """Task create to first check finished, with a pool of spare tasks; what refills it is not timed.

    Two floors: what a person types, and the same without the engine's command line.
    """
    model = at.task()
    at.check(model)
    body = like(model)
    command = run_like(body)
    pairs, typed = [], []
    for round_number in range(ROUNDS + 1):
        at.workbench.fill_pool()
        tasks: list[Task] = []

        def product(made: list[Task] = tasks) -> None:
            made.append(at.task())
            at.check(made[-1])

        def floor() -> None:
            container = api.create(body)
            api.execute(container, "/bin/true")
            api.delete(container)

        spares = {spare.id for spare in at.workbench.pool()}
        pair = (timed(product), timed(floor))
        run = timed(lambda: subprocess.run(command, check=True))
        assert tasks[0].id in spares
        at.close(tasks[0])
        if round_number:
            pairs.append(pair)
            typed.append((pair[0], run))
    at.workbench.drain_pool()
    at.close(model)
    title = "S3 task create to first check finished, spare task"
    judge(title, typed, floor_name="docker run --rm, same options", target="0.05x")
    judge(f"{title}, engine API", pairs, floor_name="engine API create, start, exec, delete", target="-")


def build(at: Desk) -> None:
    """A real build. Needs the same compiler on both sides, or the ratio is meaningless."""
    guest = subprocess.run(
        ["docker", "run", "--rm", "--network=none", "space-sandbox/build:latest", "cc", "--version"],
        capture_output=True,
        check=True,
    ).stdout
    host = subprocess.run(["cc", "--version"], capture_output=True, check=True).stdout
    if host.splitlines()[0] != guest.splitlines()[0]:
        print(f"S20 not measured: on the host {host.splitlines()[0]!r}, in the guest {guest.splitlines()[0]!r}")
        return
    task, name_of_floor = at.task(), "the same on the host, same CPUs"
    with tempfile.TemporaryDirectory() as name:
        here = Path(name) / "tree"
        assert task.worktree_path is not None
        shutil.copytree(task.worktree_path, here, ignore=shutil.ignore_patterns(".git"))
        chosen = ",".join(map(str, CPUS))
        argv = ["taskset", "--cpu-list", chosen, "make", "--always-make", "--silent", "-j", str(len(CPUS))]

        ours, theirs = [], []

        def product() -> None:
            ours.append(at.check(task, "build").usage.cpu_time_s or 0.0)

        def floor() -> None:
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(argv, cwd=here, check=True, env={"PATH": os.environ["PATH"]})
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            theirs.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)

        compare(
            f"S20 build of {SOURCES} C files, -j {len(CPUS)}",
            product,
            floor,
            floor_name=name_of_floor,
            target="1.03x",
            rounds=Rounds(most=6),
        )
        # Guests have half the CPU weight of host processes, so their wall time depends on other load.
        seconds = list(zip(ours, theirs, strict=True))[1:]
        judge("S20 the same, CPU time", seconds, floor_name=name_of_floor, target="1.03x", unit="s")
    at.close(task)


def sources(folder: Path) -> Path:
    """Create a repository of C sources that take some seconds to compile."""
    folder.mkdir()
    for number in range(SOURCES):
        body = "".join(_function(number, part) for part in range(FUNCTIONS))
        (folder / f"part{number}.c").write_text(body)
    objects = " ".join(f"part{number}.o" for number in range(SOURCES))
    (folder / "Makefile").write_text(f"all: {objects}\n%.o: %.c\n\t$(CC) -O2 -c -o $@ $<\n")
    identity = ["-c", "user.name=b", "-c", "user.email=b@localhost"]
    for argv in (["init", "-q", "-b", "main"], ["add", "-A"], [*identity, "commit", "-q", "-m", "x"]):
        subprocess.run(["git", *argv], cwd=folder, check=True)
    return folder


def _function(number: int, part: int) -> str:
    return (
        f"double f{number}_{part}(double *a, int n) {{ double s = {part}; for (int i = 1; i < n; i++) "
        f"{{ s += a[i] * a[i - 1] / (1 + i % {part + 3}); if (s > {part + 1}e6) s -= a[i % 7]; }} return s; }}\n"
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        with desk(make(Path(name) / "small.git", "small")) as at:
            warm(at)
            first(at)
        with desk(make(Path(name) / "again.git", "small"), spares=1) as at:
            first_of_spare(at)
        with desk(sources(Path(name) / "c")) as at:
            build(at)


if __name__ == "__main__":
    main()
