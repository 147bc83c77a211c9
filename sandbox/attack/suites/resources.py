"""THREATS L: a guest that uses up resources, floods, hides or persists. The verdict must come from kernel facts."""

from __future__ import annotations

import time
from collections.abc import Callable

from sandbox.attack.harness.entry import Entry
from sandbox.attack.harness.guests import guests_of, small
from sandbox.attack.harness.outcomes import GotThrough
from sandbox.attack.harness.probes import (
    COMES_BACK,
    FILLS,
    FLOODS,
    FORKS,
    LIES,
    OPENS,
    SCATTERS,
    SPREADS,
    SURVIVED,
    TMP,
    eats,
)
from sandbox.attack.harness.scene import Scene, fired, held
from sandbox.models import CheckRun, Verdict

ORPHAN_WAIT_S = 1.0


def _prints(*argv: str, want: str, what: str) -> Callable[[Scene], str]:
    """A control: the program reaches its end in a soft container."""

    def control(scene: Scene) -> str:
        ended = guests_of(scene).run_soft(*argv)
        said = ended.stdout.decode(errors="replace").strip()
        fired(want in said.split(), f"a soft container stopped it as well: {said[-200:]}")
        return what

    return control


def _at_most(check_id: str, limit: int, what: str) -> Callable[[Scene], str]:
    """The attack: the number that the probe printed is at most `limit`; 0 means the limit of processes."""

    def attack(scene: Scene) -> str:
        most = limit or small(scene.site.runtime)[1]
        run = guests_of(scene).run(check_id)
        numbers = [int(word) for word in run.stdout_tail.split() if word.isdigit()]
        if scene.site.runtime != "runc" and run.verdict in {Verdict.KILLED, Verdict.OOM_KILLED}:
            return f"it ended its own guest: {run.verdict}"  # its own kernel counts the processes
        fired(numbers, f"the probe printed no number: {run.verdict}, {run.stderr_tail[-200:]}")
        if numbers[0] > most:
            raise GotThrough(f"{numbers[0]} {what}, above the limit of {most}")
        return f"{numbers[0]} {what} of at most {most}"

    return attack


def _not_passed(run: CheckRun, *verdicts: Verdict) -> str:
    held(run.verdict in verdicts, True, f"the verdict {run.verdict}, instead of {' or '.join(verdicts)}")
    return f"verdict {run.verdict}"


def _given(scene: Scene) -> str:
    ended = guests_of(scene).run_soft("sh", "-c", eats(scene.site.runtime))
    said = ended.stdout.decode(errors="replace").strip()
    fired(said.isdigit(), f"a soft container did not get the memory either: {said[-200:]}")
    return f"{int(said) >> 20} MiB were given to a soft container"


def _oom(scene: Scene) -> str:
    """A guest with its own kernel ends as a whole: then it is unknown which process was killed."""
    verdicts = [Verdict.OOM_KILLED] + [Verdict.KILLED] * (scene.site.runtime != "runc")
    return _not_passed(guests_of(scene).run("eats"), *verdicts)


def _spread(scene: Scene) -> str:
    said = guests_of(scene).run_soft("sh", "-c", f"mkdir {TMP}/s; {SPREADS.format(f'{TMP}/s')}").stdout.split()
    fired(said and int(said[-1]) >= 96 << 10, f"a soft container stopped it as well: {said}")
    return "96 MiB were written in small files"


def _scattered(scene: Scene) -> str:
    said = guests_of(scene).run_soft("perl", "-e", f'mkdir "{TMP}/s"; {SCATTERS.format(f"{TMP}/s")}').stdout.split()
    fired(said and int(said[-1]) == 6000, f"a soft container stopped it as well: {said}")
    return "6000 files were created"


def _stopped(check_id: str) -> Callable[[Scene], str]:
    """The attack: the product stops the check, because the engine has no limit for a mounted directory."""

    def attack(scene: Scene) -> str:
        run = guests_of(scene).run(check_id)
        for path in scene.wt.glob("part*"):
            path.unlink()
        return _not_passed(run, Verdict.DISK_LIMIT)

    return attack


def _flooded(scene: Scene) -> str:
    size = len(guests_of(scene).run_soft("sh", "-c", FLOODS).stdout)
    fired(size >= 8 << 20, f"only {size} bytes arrived")
    return f"{size >> 20} MiB were kept from a soft container"


def _bounded(scene: Scene) -> str:
    run = guests_of(scene).run("floods")
    logs = [p for p in (scene.home / "repositories" / "logs").rglob(f"{run.run_id}.std*") if p.is_file()]
    fired(logs, "the run has no logs")
    held([p.name for p in logs if p.stat().st_size > 128 * 1024], [], "logs longer than the limit")
    held(len(run.stdout_tail) <= 64 * 1024 and run.truncated, True, "a bounded answer, marked as truncated")
    return f"{run.stdout_bytes + run.stderr_bytes} bytes came, {sum(p.stat().st_size for p in logs)} were kept"


def _deadline(scene: Scene) -> str:
    return _not_passed(guests_of(scene).run("stubborn"), Verdict.TIMED_OUT)


def _gone(scene: Scene) -> str:
    guests_of(scene).run("stays")
    orphan = scene.wt / "orphan"
    fired(orphan.exists(), "the process did not start")
    orphan.unlink()
    time.sleep(ORPHAN_WAIT_S)  # its writer needs a twentieth of that
    held(orphan.exists(), False, "a process of an ended check still writes")
    return "no process of the check writes after its end"


def _believed(scene: Scene) -> str:
    said = guests_of(scene).run_soft("sh", "-c", LIES.replace("/proc/1/", "/nowhere/")).stdout
    fired(said.rstrip().endswith(b"PASSED"), "it did not print PASSED")
    return "the output says PASSED"


def _by_status(scene: Scene) -> str:
    return _not_passed(guests_of(scene).run("lies"), Verdict.FAILED, Verdict.KILLED)


ENTRIES = (
    Entry("L01", "a fork bomb", "check run", _prints("perl", "-e", FORKS, want="400", what="400 processes started"),
          _at_most("forks", 0, "processes"), scene="guests"),
    Entry("L02", "a child that uses up all memory, under a parent that exits 0", "check run",
          _given, _oom, scene="guests"),
    Entry("L03", "a full /tmp, which is memory", "check run",
          _prints("sh", "-c", FILLS.format(f"{TMP}/big"), want="33554432", what="32 MiB were written"),
          _at_most("fills-tmp", 8 << 20, "bytes in /tmp"), scene="guests"),
    Entry("L04", "a file without end", "check run",
          _prints("sh", "-c", FILLS.format(f"{TMP}/big"), want="33554432", what="32 MiB were written"),
          _at_most("fills-file", 16 << 20, "bytes in one file"), scene="guests"),
    Entry("L04D", "a full disk, by many files", "check run", _spread, _stopped("spreads"), scene="guests"),
    Entry("L05", "all inodes, by empty files", "check run", _scattered, _stopped("scatters"), scene="guests"),
    Entry("L07", "a flood of output", "check run", _flooded, _bounded, scene="guests"),
    Entry("L09", "a process that ignores signals", "check run",
          _prints("sh", "-c", SURVIVED, want="survived", what="it survived SIGTERM"), _deadline, scene="guests"),
    Entry("L12", "processes that outlive their check", "check run",
          _prints("sh", "-c", COMES_BACK, want="back", what="they continued to write in a soft container"), _gone,
          scene="guests"),
    Entry("L16", "all file descriptors", "check run",
          _prints("perl", "-e", OPENS, want="1000", what="1000 files were open"),
          _at_most("opens", 256, "open files"), scene="guests"),
    Entry("L19", "output that says the check passed, a forged report and signals for its supervisor", "check run",
          _believed, _by_status, scene="guests"),
)  # fmt: skip
