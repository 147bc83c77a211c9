"""THREATS L: a guest that uses up resources, floods, hides or persists. The verdict must come from kernel facts."""

from __future__ import annotations

import time
from collections.abc import Callable

from sandbox.attack.harness.entry import AttackEntry
from sandbox.attack.harness.guests import guests_of, small_limits
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
    memory_script,
)
from sandbox.attack.harness.scene import Scene, require_equal, require_hit
from sandbox.models import CheckRun, Verdict

ORPHAN_WAIT_S = 1.0


def _prints(*argv: str, want: str, what: str) -> Callable[[Scene], str]:
    """A control: the program reaches its end in a soft container."""

    def control(scene: Scene) -> str:
        ended = guests_of(scene).run_soft(*argv)
        said = ended.stdout.decode(errors="replace").strip()
        require_hit(want in said.split(), f"a soft container stopped it as well: {said[-200:]}")
        return what

    return control


def _at_most(check_id: str, limit: int, what: str) -> Callable[[Scene], str]:
    """The attack: the number that the probe printed is at most `limit`; 0 means the limit of processes."""

    def attack(scene: Scene) -> str:
        most = limit or small_limits(scene.host.runtime)[1]
        run = guests_of(scene).run(check_id)
        numbers = [int(word) for word in run.stdout_tail.split() if word.isdigit()]
        if scene.host.runtime != "runc" and run.verdict in {Verdict.KILLED, Verdict.OOM_KILLED}:
            return f"it ended its own guest: {run.verdict}"  # its own kernel counts the processes
        require_hit(numbers, f"the probe printed no number: {run.verdict}, {run.stderr_tail[-200:]}")
        if numbers[0] > most:
            raise GotThrough(f"{numbers[0]} {what}, above the limit of {most}")
        return f"{numbers[0]} {what} of at most {most}"

    return attack


def _not_passed(run: CheckRun, *verdicts: Verdict) -> str:
    require_equal(run.verdict in verdicts, True, f"the verdict {run.verdict}, instead of {' or '.join(verdicts)}")
    return f"verdict {run.verdict}"


def _gets_memory(scene: Scene) -> str:
    ended = guests_of(scene).run_soft("sh", "-c", memory_script(scene.host.runtime))
    said = ended.stdout.decode(errors="replace").strip()
    require_hit(said.isdigit(), f"a soft container did not get the memory either: {said[-200:]}")
    return f"{int(said) >> 20} MiB were given to a soft container"


def _oom(scene: Scene) -> str:
    """A guest with its own kernel ends as a whole: then it is unknown which process was killed."""
    verdicts = [Verdict.OOM_KILLED] + [Verdict.KILLED] * (scene.host.runtime != "runc")
    return _not_passed(guests_of(scene).run("eats"), *verdicts)


def _spread(scene: Scene) -> str:
    said = guests_of(scene).run_soft("sh", "-c", f"mkdir {TMP}/s; {SPREADS.format(f'{TMP}/s')}").stdout.split()
    require_hit(said and int(said[-1]) >= 96 << 10, f"a soft container stopped it as well: {said}")
    return "96 MiB were written in small files"


def _scatters(scene: Scene) -> str:
    said = guests_of(scene).run_soft("perl", "-e", f'mkdir "{TMP}/s"; {SCATTERS.format(f"{TMP}/s")}').stdout.split()
    require_hit(said and int(said[-1]) == 6000, f"a soft container stopped it as well: {said}")
    return "6000 files were created"


def _stops(check_id: str) -> Callable[[Scene], str]:
    """The attack: the product stops the check, because the engine has no limit for a mounted directory."""

    def attack(scene: Scene) -> str:
        run = guests_of(scene).run(check_id)
        for path in scene.worktree.glob("part*"):
            path.unlink()
        return _not_passed(run, Verdict.DISK_LIMIT)

    return attack


def _floods(scene: Scene) -> str:
    size = len(guests_of(scene).run_soft("sh", "-c", FLOODS).stdout)
    require_hit(size >= 8 << 20, f"only {size} bytes arrived")
    return f"{size >> 20} MiB were kept from a soft container"


def _output_is_bounded(scene: Scene) -> str:
    run = guests_of(scene).run("floods")
    logs = [p for p in (scene.home / "repositories" / "logs").rglob(f"{run.run_id}.std*") if p.is_file()]
    require_hit(logs, "the run has no logs")
    require_equal([p.name for p in logs if p.stat().st_size > 128 * 1024], [], "logs longer than the limit")
    require_equal(len(run.stdout_tail) <= 64 * 1024 and run.truncated, True, "a bounded answer, marked as truncated")
    return f"{run.stdout_bytes + run.stderr_bytes} bytes came, {sum(p.stat().st_size for p in logs)} were kept"


def _deadline(scene: Scene) -> str:
    return _not_passed(guests_of(scene).run("stubborn"), Verdict.TIMED_OUT)


def _no_process_left(scene: Scene) -> str:
    guests_of(scene).run("stays")
    orphan = scene.worktree / "orphan"
    require_hit(orphan.exists(), "the process did not start")
    orphan.unlink()
    time.sleep(ORPHAN_WAIT_S)  # its writer needs a twentieth of that
    require_equal(orphan.exists(), False, "a process of an ended check still writes")
    return "no process of the check writes after its end"


def _output_lies(scene: Scene) -> str:
    said = guests_of(scene).run_soft("sh", "-c", LIES.replace("/proc/1/", "/nowhere/")).stdout
    require_hit(said.rstrip().endswith(b"PASSED"), "it did not print PASSED")
    return "the output says PASSED"


def _verdict_from_status(scene: Scene) -> str:
    return _not_passed(guests_of(scene).run("lies"), Verdict.FAILED, Verdict.KILLED)


ENTRIES = (
    AttackEntry("L01", "a fork bomb", "check run", _prints("perl", "-e", FORKS, want="400",
          what="400 processes started"),
          _at_most("forks", 0, "processes"), scene="guests"),
    AttackEntry("L02", "a child that uses up all memory, under a parent that exits 0", "check run",
          _gets_memory, _oom, scene="guests"),
    AttackEntry("L03", "a full /tmp, which is memory", "check run",
          _prints("sh", "-c", FILLS.format(f"{TMP}/big"), want="33554432", what="32 MiB were written"),
          _at_most("fills-tmp", 8 << 20, "bytes in /tmp"), scene="guests"),
    AttackEntry("L04", "a file without end", "check run",
          _prints("sh", "-c", FILLS.format(f"{TMP}/big"), want="33554432", what="32 MiB were written"),
          _at_most("fills-file", 16 << 20, "bytes in one file"), scene="guests"),
    AttackEntry("L04D", "a full disk, by many files", "check run", _spread, _stops("spreads"), scene="guests"),
    AttackEntry("L05", "all inodes, by empty files", "check run", _scatters, _stops("scatters"), scene="guests"),
    AttackEntry("L07", "a flood of output", "check run", _floods, _output_is_bounded, scene="guests"),
    AttackEntry("L09", "a process that ignores signals", "check run",
          _prints("sh", "-c", SURVIVED, want="survived", what="it survived SIGTERM"), _deadline, scene="guests"),
    AttackEntry("L12", "processes that outlive their check", "check run",
          _prints("sh", "-c", COMES_BACK, want="back", what="they continued to write in a soft container"),
                _no_process_left,
          scene="guests"),
    AttackEntry("L16", "all file descriptors", "check run",
          _prints("perl", "-e", OPENS, want="1000", what="1000 files were open"),
          _at_most("opens", 256, "open files"), scene="guests"),
    AttackEntry("L19", "output that says the check passed, a forged report and signals for its supervisor", "check run",
          _output_lies, _verdict_from_status, scene="guests"),
)  # fmt: skip
