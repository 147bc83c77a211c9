"""The checks that reach a limit each, and what must be seen of them. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from devtools.vm.matrix_rows import Column
from sandbox.models import CheckRun, Usage, Verdict

MIB = 1024**2
_SMALL = f"memory_bytes = {128 * MIB}, cpus = 1.0, pids = 64"
_CHECK = """
[[check]]
id = "{id}"
label = "{id}"
argv = ["sh", "-c", '''{script}''']
timeout_s = {timeout_s}
limits = {{ {limits} }}
"""
_HEAD = """\
label = "{name}"
image = "base"
priority = 99
[[detect.any]]
file = "{name}"
"""


def _check(name: str, script: str, limits: str = _SMALL, timeout_s: int = 300) -> str:
    return _CHECK.format(id=name, script=script, limits=limits, timeout_s=timeout_s)


PROFILE = {
    "job": _HEAD.format(name="job")
    + _check("build", "echo built > built.log")
    + _check("test", "grep -qx two job && ! grep -q four job"),
    "limits": _HEAD.format(name="limits")
    + _check("first", "head -c 100000000 /dev/zero | tail -c 50000000 | wc -c; sleep 0.3")
    + _check("memory", "head -c 200000000 /dev/zero | tail", "memory_bytes = 67108864, cpus = 1.0, pids = 64")
    + _check(
        "processes",
        "i=0; while [ $i -lt 100 ]; do sleep 60 & i=$((i+1)); done",
        f"memory_bytes = {128 * MIB}, cpus = 1.0, pids = 16",
    )
    + _check("cpu", "timeout 3 sh -c 'while :; do :; done'; true", f"memory_bytes = {128 * MIB}, cpus = 0.2, pids = 64")
    + _check("time", "sleep 600", timeout_s=3)
    + _check(
        "disk",
        "head -c 100000000 /dev/zero > f; sync f; echo written; sleep 280",
        f"memory_bytes = {256 * MIB}, cpus = 1.0, pids = 64, disk_bytes = {50 * MIB}, disk_files = 5000",
    )
    + _check(
        "output", "echo first; head -c 100000 /dev/zero | tr '\\\\0' x; echo last", f"{_SMALL}, output_bytes = 1000"
    )
    + _check("sleep", "sleep 250"),
}
"""Profiles by name; a file of that name in a repository chooses it."""


@dataclass(frozen=True)
class Scenario:
    """`check`: which reaches the limit. `claims`: what must be true of its run, by what is written if it is not.

    `figures`: fields of the usage report to show.
    """

    check: str
    verdict: Verdict
    figures: tuple[str, ...]
    claims: dict[str, Callable[[CheckRun], bool]]

    def find_wrong(self, run: CheckRun) -> list[str]:
        """What is not as it must be; empty: all is."""
        wrong = [] if run.verdict is self.verdict else [f"verdict {self.verdict}"]
        return wrong + [claim for claim, holds in self.claims.items() if not holds(run)]

    def describe(self, run: CheckRun) -> str:
        """The figures; `-` for one that was not measured."""
        words = [format_figure(name, getattr(run.usage, name)) for name in self.figures]
        if run.usage.pressure:
            pressure = run.usage.pressure
            waits = (("cpu_s", pressure.cpu_s), ("memory_s", pressure.memory_s), ("io_s", pressure.io_s))
            words.append(f"the {pressure.of} waited for " + ", ".join(format_figure(*wait) for wait in waits))
        return ", ".join(words)


def format_figure(name: str, value: float | None) -> str:
    """A figure of the usage report, whose name ends with its unit. Pure."""
    words, separator, unit = name.replace("_", " ").rpartition(" ")
    if value is None or unit not in ("bytes", "s") or not separator:
        return f"{name.replace('_', ' ')} {'-' if value is None else value}"
    return f"{words} {value / MIB:.1f} MiB" if unit == "bytes" else f"{words} {value:.2f} s"


def _at_most(name: str, most: int) -> Callable[[CheckRun], bool]:
    return lambda run: 0 < (_usage(run.usage, name) or 0) <= most


def _at_least(name: str, least: float) -> Callable[[CheckRun], bool]:
    return lambda run: (_usage(run.usage, name) or 0) >= least


def _usage(usage: Usage, name: str) -> float | None:
    value: float | None = getattr(usage, name)
    return value


SCENARIOS = {
    Column.MEMORY: Scenario(
        "memory",
        Verdict.OOM_KILLED,
        ("memory_peak_bytes", "oom_kills"),
        {
            "a peak of 32 to 64 MiB": lambda run: 32 * MIB <= (run.usage.memory_peak_bytes or 0) <= 64 * MIB,
            "an oom kill": _at_least("oom_kills", 1),
        },
    ),
    Column.PROCESSES: Scenario(
        "processes",
        Verdict.FAILED,
        ("pids_peak", "forks_refused"),
        {"at most 16 processes": _at_most("pids_peak", 16), "a refused fork": _at_least("forks_refused", 1)},
    ),
    Column.CPU: Scenario(
        "cpu",
        Verdict.PASSED,
        ("cpu_time_s", "cpu_throttled_s"),
        {
            "about 0.2 CPUs": lambda run: 0 < (run.usage.cpu_time_s or 0) < 0.5 + 0.3 * run.wall_time_s,
            "throttling": _at_least("cpu_throttled_s", 0.5),
        },
    ),
    Column.TIME: Scenario(
        "time",
        Verdict.TIMED_OUT,
        ("memory_peak_bytes", "cpu_time_s", "pids_peak"),
        {"the peak of this check, not of the one before": lambda run: (run.usage.memory_peak_bytes or 0) < 40 * MIB},
    ),
    Column.DISK: Scenario("disk", Verdict.DISK_LIMIT, ("disk_used_bytes", "disk_used_files", "disk_written_bytes"), {}),
    Column.OUTPUT: Scenario(
        "output",
        Verdict.PASSED,
        ("cpu_time_s",),
        {"100,011 bytes, not all kept": lambda run: run.truncated and run.stdout_bytes == 100_011},
    ),
}
