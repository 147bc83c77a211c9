"""Runs in the machine of a row: drives the product and writes a line for each column (`row_results.py`).

    python -m devtools.vm.measurements FOLDER COLUMN... [--refused WORDS] [--attacks NAMES]

A column that raises is `failed`, with what was raised; the next one goes on. Works on any host: all files are below
FOLDER, which must be on a disk.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from devtools.kills import plain_git
from devtools.vm.guest_limits import PROFILE, SCENARIOS
from devtools.vm.guest_selinux import GuestSelinux
from devtools.vm.matrix_rows import Column
from devtools.vm.row_results import Cell, Facts, Outcome, format_line
from devtools.vm.service_units import ServiceUnits
from sandbox import attack
from sandbox.engine.connection import connect
from sandbox.engine.container import list_containers
from sandbox.errors import SandboxError
from sandbox.guest_labels import has_selinux, is_permissive
from sandbox.models import AttackOutcome, AttackResult, ProbeLevel, Verdict
from sandbox.workbench import Workbench

ROOT = Path(__file__).parents[2]
ENGINE_S = 60.0
CONTRACT_S = 2400.0
KILL_S = 240.0
ATTACK_S = 900.0
"""Of one attack: a machine without hardware support is about ten times slower."""
_SOURCE = {"job": ("job", "two\n"), "limits": ("limits", "\n")}
_SHOWN = 600
_OF_THE_MACHINE = ("image:", "disk:", "registry:")
"""Lines of doctor that say nothing of the system: few images are loaded, and there is no network."""


class Stage:
    """A home, and two repositories with a profile each: `job`, and `limits` with a check for each limit."""

    def __init__(self, folder: Path, attacks: str = "") -> None:
        self.folder = folder
        self.home = folder / "home"
        self.attacks = attacks  # sections and ids with commas; empty: all

    def prepare(self) -> None:
        """Make everything anew."""
        shutil.rmtree(self.folder, ignore_errors=True)
        (self.home / "profiles").mkdir(parents=True)
        for name, text in PROFILE.items():
            (self.home / "profiles" / f"{name}.toml").write_text(text)
        for name, (file, content) in _SOURCE.items():
            source = self.source(name)
            source.mkdir()
            (source / file).write_text(content)
            plain_git("init", "-q", "-b", "main", cwd=source)
            plain_git("add", "-A", cwd=source)
            plain_git("commit", "-q", "-m", "x", cwd=source)

    def source(self, name: str) -> Path:
        """The directory of a repository."""
        return self.folder / name

    def open(self) -> Workbench:
        """The product on this home, with the engine of the environment."""
        return Workbench(self.home, environ=dict(os.environ), allow_file=True)

    @contextmanager
    def task(self, name: str) -> Iterator[tuple[Workbench, str]]:
        """A task of a repository, deleted at the end."""
        with self.open() as workbench:
            task = workbench.create_task(workbench.clone(str(self.source(name))).repository.id)
            try:
                yield workbench, task.id
            finally:
                workbench.close_task(task.id, delete_worktree=True, discard=True)


class _Unexpected(Exception):
    """A measurement that did not end as it must."""


def measure_doctor(stage: Stage) -> str:
    """Every line that is not ok."""
    with stage.open() as workbench:
        probes = workbench.doctor()
    told = [p for p in probes if p.level is not ProbeLevel.OK and not p.name.startswith(_OF_THE_MACHINE)]
    seen = "; ".join(f"{p.level.upper()} {p.name}: {p.value}" for p in told) or "all ok"
    return _expect(not any(p.level is ProbeLevel.FAIL for p in told), seen)


def measure_main_job(stage: Stage) -> str:
    """`sandbox run` of a directory: two checks in a clean room."""
    with stage.open() as workbench:
        summary = workbench.run(str(stage.source("job")))
    seen = ", ".join(f"{run.check_id} {run.verdict}" for run in summary.runs)
    return _expect(summary.verified, f"{summary.runs[0].place}: {seen}")


def measure_task_life(stage: Stage) -> str:
    """Edit, check, commit, verify, close."""
    with stage.task("job") as (workbench, task):
        content = workbench.read_file(task, "job")
        workbench.edit_file(task, "job", "two\n", "three\n", content.sha256)
        (failing,) = workbench.run_checks(task, ["test"])
        workbench.edit_file(task, "job", "three\n", "two\nthree\n", workbench.read_file(task, "job").sha256)
        (passing,) = workbench.run_checks(task, ["test"])
        commit = workbench.commit(task, "A line more")
        verified = workbench.verify(task).verified
    seen = (
        f"check {failing.verdict}, repaired {passing.verdict}, committed {len(commit.files)} file, verified {verified}"
    )
    return _expect((failing.verdict, passing.verdict, verified) == (Verdict.FAILED, Verdict.PASSED, True), seen)


def measure_limit(stage: Stage, column: Column) -> str:
    """One check that reaches a limit, in a task and after another check, so that counters must have been reset."""
    scenario = SCENARIOS[column]
    with stage.task("limits") as (workbench, task):
        workbench.run_checks(task, ["first"])
        (run,) = workbench.run_checks(task, [scenario.check])
    wrong = scenario.find_wrong(run)
    seen = f"{run.verdict}; {scenario.describe(run)}"
    return _expect(not wrong, f"{seen}; expected {', '.join(wrong)}" if wrong else seen)


def measure_kill(stage: Stage) -> str:
    """A command is killed while its check runs; the next one removes what it left, and the task goes on."""
    with stage.task("limits") as (workbench, task):
        argv = [sys.executable, "-P", "-m", "sandbox", "--home", str(stage.home), "check", "run", task, "sleep"]
        process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: S603 - ours
        try:
            _wait_for(lambda: any(guest.busy for guest in workbench.guests().guests))
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
        found = workbench.collect()
        left = [guest.container for guest in workbench.guests().guests]
        (run,) = workbench.run_checks(task, ["first"])
    seen = f"{len(found.leftovers)} leftovers removed, guests left: {len(left)}, next check {run.verdict}"
    return _expect(not left and run.verdict is Verdict.PASSED, seen)


def measure_units(stage: Stage) -> str:
    """The units that `sandbox serve --unit` prints, for a home whose name systemd has to read as it is."""
    other = Stage(stage.folder / "a b%c$d")
    other.prepare()
    units = ServiceUnits(other.home, stage.source("limits"))
    try:
        units.measure()
    except RuntimeError as error:
        raise _Unexpected("; ".join([*units.seen, str(error)])) from error
    return "; ".join(units.seen)


def measure_selinux(stage: Stage) -> str:
    """What SELinux denies to guests: in the columns before none of what they do, in a home without labels all."""
    other = Stage(stage.folder / "other")
    other.prepare()
    selinux = GuestSelinux(other.home, other.source("job"), other.open)
    try:
        selinux.measure()
    except RuntimeError as error:
        raise _Unexpected("; ".join([*selinux.seen, str(error)])) from error
    return "; ".join(selinux.seen)


def measure_contract(stage: Stage) -> str:
    """The contract of executors, on the guest of a task and on a fresh one."""
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", "-rfEs"]
    chosen = ["-k", "not gvisor and not [exec]", "tests/contract/test_executor.py"]
    base = stage.folder / "contract"
    base.mkdir(exist_ok=True)
    if has_selinux():  # these tests have no home, whose folders the product labels itself
        subprocess.run(["chcon", "-t", "container_file_t", str(base)], check=True)  # noqa: S603, S607 - fixed words and our own folder
    # conftest.py needs what the other suites there need, such as Node.js.
    options = [f"--basetemp={base / 'pytest'}", "--timeout=300", "--noconftest"]
    done = subprocess.run(  # noqa: S603 - fixed words and our own folder
        [*argv, *options, *chosen], cwd=ROOT, capture_output=True, text=True, timeout=CONTRACT_S, check=False
    )
    seen = describe_tests(done.stdout, done.stderr)
    return _expect(done.returncode == 0 and have_run(seen), seen)


def have_run(seen: str) -> bool:
    """Whether tests passed and none was skipped. `seen`: as `describe_tests` says it. Pure."""
    counts = {what: int(count) for count, what in re.findall(r"\b(\d{1,9}) ([a-z]{1,20})", seen.partition(" in ")[0])}
    return counts.get("passed", 0) > 0 and not counts.get("skipped")


def describe_tests(stdout: str, stderr: str) -> str:
    """Counts, the names of tests that failed, and why, from what pytest printed with `-rfEs`. Pure."""
    lines = stdout.splitlines()
    summary = next((line for line in reversed(lines) if " in " in line), stderr[-_SHOWN:])
    names = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    reasons = [line for line in lines if line.startswith("E  ")]
    return "; ".join([summary.strip("= "), *names, *reasons])[:_SHOWN]


def measure_attacks(stage: Stage) -> str:
    """`sandbox doctor --attack`. What is known so far is written after each attack: the machine may be too slow."""
    results: list[AttackResult] = []
    started = time.monotonic()

    def hear(result: AttackResult, number: int) -> None:
        results.append(result)
        cell = Cell(
            column=Column.ATTACKS,
            outcome=Outcome.FAILED if _find_bad(results) else Outcome.WORKS,
            seen=describe_attacks(results),
            wall_time_s=round(time.monotonic() - started, 1),
            part=f"{len(results)} of {number} {stage.attacks}".strip(),
        )
        _say(format_line(cell))

    only = (stage.attacks,) if stage.attacks else ()
    report = attack.attack(stage.home, only, environ=dict(os.environ), on_result=hear, deadline_s=ATTACK_S)
    return _expect(report.safe, describe_attacks(report.results))


def describe_attacks(results: Sequence[AttackResult]) -> str:
    """Counts, what did not hold, and what was skipped. Pure."""
    counts = Counter(result.outcome for result in results)
    words = ", ".join(f"{counts[outcome]} {outcome.replace('_', ' ')}" for outcome in AttackOutcome if counts[outcome])
    notes = [f"{r.id} {r.outcome}: {r.seen or r.control}" for r in _find_bad(results)]
    skipped = [r.id for r in results if r.outcome is AttackOutcome.SKIPPED]
    if skipped:
        notes.append(f"skipped {', '.join(skipped)}")
    return "; ".join([words, *notes])[: 3 * _SHOWN]


def _find_bad(results: Sequence[AttackResult]) -> list[AttackResult]:
    return [result for result in results if result.outcome not in (AttackOutcome.HELD, AttackOutcome.SKIPPED)]


_LIMITS: dict[Column, Callable[[Stage], str]] = {
    column: lambda stage, column=column: measure_limit(stage, column)  # type: ignore[misc]  # bound at once
    for column in SCENARIOS
}
MEASUREMENTS: Mapping[Column, Callable[[Stage], str]] = {
    Column.DOCTOR: measure_doctor,
    Column.MAIN_JOB: measure_main_job,
    Column.TASK_LIFE: measure_task_life,
    **_LIMITS,
    Column.KILL: measure_kill,
    Column.UNITS: measure_units,
    Column.SELINUX: measure_selinux,
    Column.CONTRACT: measure_contract,
    Column.ATTACKS: measure_attacks,
}


def measure(stage: Stage, column: Column, refused: str = "") -> Cell:
    """One column. `refused`: what it must say of the engine instead."""
    started = time.monotonic()
    try:
        outcome, seen = Outcome.WORKS, MEASUREMENTS[column](stage)
    except _Unexpected as unexpected:
        outcome, seen = Outcome.FAILED, str(unexpected)
    except SandboxError as error:
        outcome, seen = Outcome.FAILED, f"{error.code}: {error.brief}; {error.details}".strip("; ")
    except Exception as error:  # noqa: BLE001 - the outermost edge: what is raised is what was measured
        outcome, seen = Outcome.FAILED, f"{type(error).__name__}: {error}"
    if refused:  # doctor must say the same as the jobs
        outcome = Outcome.REFUSED if outcome is Outcome.FAILED and refused in seen else Outcome.FAILED
    part = stage.attacks if column is Column.ATTACKS else ""
    return Cell(column=column, outcome=outcome, seen=seen, wall_time_s=round(time.monotonic() - started, 1), part=part)


def find_versions() -> dict[str, str]:
    """Versions of this system and of what the engine says of itself, as far as it answers."""
    versions = {
        "kernel": platform.release(),
        "python": platform.python_version(),
        "git": plain_git("--version", cwd=Path("/")).removeprefix("git version "),
        "system": platform.freedesktop_os_release().get("PRETTY_NAME", ""),
    }
    try:
        engine = connect("", os.environ, ENGINE_S)
        info = engine.info()
    except SandboxError as error:
        return versions | {"engine": error.details or error.brief}
    options = [str(option).removeprefix("name=").partition(",")[0] for option in info.get("SecurityOptions") or ()]
    versions |= {
        "engine": f"{info.get('ServerVersion')}, {info.get('Driver')}",
        "runc": str((info.get("RuncCommit") or {}).get("ID") or ""),
        "cgroup": f"v{info.get('CgroupVersion')}, {info.get('CgroupDriver')}",
        "security": ", ".join(options),
        "containers left": str(len(list_containers(engine, {}))),
    }
    engine.close()
    if has_selinux():
        versions["selinux"] = "permissive" if is_permissive() else "enforcing"
    return versions


def _expect(true: bool, seen: str) -> str:
    if not true:
        raise _Unexpected(seen)
    return seen


def _wait_for(condition: Callable[[], bool]) -> None:
    ends_at = time.monotonic() + KILL_S
    while not condition():
        if time.monotonic() > ends_at:
            raise _Unexpected(f"no check ran within {KILL_S:g} s")
        time.sleep(0.2)


def main(arguments: list[str]) -> int:
    """Measure columns in the given order."""
    parser = argparse.ArgumentParser(prog="python -m devtools.vm.measurements")
    parser.add_argument("folder", type=Path)
    parser.add_argument("columns", nargs="+", type=Column)
    parser.add_argument("--refused", default="")
    parser.add_argument("--attacks", default="")
    asked = parser.parse_args(arguments)
    stage = Stage(asked.folder, asked.attacks)
    stage.prepare()
    for column in asked.columns:
        _say(format_line(measure(stage, column, asked.refused)))
    _say(format_line(Facts(versions=find_versions())))
    return 0


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
