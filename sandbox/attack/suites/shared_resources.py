"""THREATS S02, S04, S05, S09, S109, S202, S204: a guest takes what is shared: counts of a user or a host, memory
without a process or in network buffers, disk without a name, memory of a parser, the report of the next check.
"""

from __future__ import annotations

import os
import platform
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from sandbox.attack.harness.attack_host import AttackHost
from sandbox.attack.harness.entry import AttackEntry
from sandbox.attack.harness.guests import guests_of
from sandbox.attack.harness.outcomes import GotThrough, NotSupported
from sandbox.attack.harness.probes import (
    BUFFERED_MIB,
    BUFFERS,
    HIDES,
    MOST_INSTANCES,
    OPENS_INOTIFY,
    OPENS_PTYS,
    PLANTS,
    PTYS,
    SEES,
    STORES,
    TMP,
    nested_report,
)
from sandbox.attack.harness.scene import Scene, require_equal, require_hit
from sandbox.attack.suites.container_escapes import needs_shared_kernel
from sandbox.attack.suites.nested import needs_root
from sandbox.engine.pty_limit import MAX_PTYS
from sandbox.engine.unhardened import Bind
from sandbox.git.unhardened import run_unhardened
from sandbox.models import CheckRun, Verdict

WAIT_S = 30.0
MIB = 1024**2
PARSER_BYTES = 16 * MIB
"""What a run with a hostile report may add to the controller. A parser without limits takes more for this report."""
_INSTANCES = Path("/proc/sys/fs/inotify/max_user_instances")
_PLAIN_PARSER = """
import sys, xml.parsers.expat as expat
def peak():  # ru_maxrss would be that of the parent: it survives an exec
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
before = peak()
parser = expat.ParserCreate()
parser.StartElementHandler = lambda *_: None
parser.Parse(sys.stdin.buffer.read(), True)
print((peak() - before) * 1024)
"""


def needs_own_users(_site: AttackHost) -> str:
    """A need: guests have ids of their own, so that only their share is used up."""
    return "" if os.geteuid() == 0 else "guests of a controller that is not root share your uid: it would use up yours"


def needs_few_instances(_site: AttackHost) -> str:
    """A need: the share of a user is small enough to be used up within the limits of a probe."""
    if platform.machine() not in OPENS_INOTIFY:
        return f"no program of ours opens inotify instances on {platform.machine()}"
    most = _read_most_instances()
    return "" if most <= MOST_INSTANCES else f"the kernel allows each user {most} inotify instances"


def _read_most_instances() -> int:
    return int(_INSTANCES.read_text(encoding="ascii"))


def _count_opened(text: str) -> int:
    return next((int(line.split()[0]) for line in text.splitlines() if line.endswith(" opened")), -1)


def _while_held(folder: Path, hold: Callable[[], str], look: Callable[[], str]) -> tuple[int, int]:
    """What the guest that holds all, and another one at the same time, could open."""
    said: list[str] = []
    holder = threading.Thread(target=lambda: said.append(hold()))
    holder.start()
    try:
        ends_at = time.monotonic() + WAIT_S
        while not (folder / "full").exists() and holder.is_alive() and time.monotonic() < ends_at:
            time.sleep(0.02)
        other = _count_opened(look())
        require_hit(holder.is_alive(), "the guest that holds all has ended too early")
    finally:
        (folder / "stop").touch()
        holder.join()
    return _count_opened("".join(said)), other


def _starves_another(scene: Scene) -> str:
    """Both soft containers have the uid of the task: no program of this host has it."""
    folder = scene.root / "shared"
    folder.mkdir()
    folder.chmod(0o777)
    program, binds = OPENS_INOTIFY[platform.machine()], [Bind(folder, "/shared", read_only=False)]
    uid = scene.worktree.stat().st_uid

    def run(*words: str) -> str:
        ended = guests_of(scene).run_soft("perl", "-e", program, *words, binds=binds, user=f"{uid}:{uid}")
        return ended.stdout.decode(errors="replace")

    first, second = _while_held(folder, lambda: run("/shared"), run)
    require_hit(first >= 0 <= second, "a soft container could not count")
    require_hit(first + second <= _read_most_instances(), f"two containers of one user opened {first} and {second}")
    return f"of two soft containers of one user, one opened {first} inotify instances and the other {second}"


def _starves_nobody(scene: Scene) -> str:
    guests, most = guests_of(scene), _read_most_instances()

    def hold() -> str:
        return guests.run("holds-instances").stdout_tail

    def look() -> str:
        return guests.run("opens-instances", guests.other).stdout_tail

    first, second = _while_held(scene.worktree, hold, look)
    for name in ("full", "stop"):
        (scene.worktree / name).unlink(missing_ok=True)
    require_hit(first == most, f"the greedy guest opened {first} of {most}")
    if second < most:
        raise GotThrough(f"while one guest held {first} inotify instances, another one got {second} of {most}")
    return f"while one guest held all of its {first} inotify instances, another one opened {second}"


def _memory_stays(scene: Scene) -> str:
    said = guests_of(scene).run_soft("sh", "-c", STORES).stdout.decode(errors="replace").split()
    require_hit(said == ["0", "stored", "1"], f"a soft container has no segment either: {said}")
    return "8 MiB stayed in a soft container after their process had ended"


def _memory_goes(scene: Scene) -> str:
    run = guests_of(scene).run("stores")
    require_hit("stored" in run.stdout_tail, f"the probe stored nothing: {run.verdict}, {run.stderr_tail[-200:]}")
    require_equal(run.stdout_tail.split(), ["0", "stored", "0"], "segments before, and after their process")
    return "the segment was gone with its process"


def _no_name_has_it(scene: Scene) -> str:
    said = guests_of(scene).run_soft("perl", "-e", f'mkdir "{TMP}/s"; {HIDES.format(f"{TMP}/s")}').stdout.split()
    require_hit(said == [b"12", b"0"], f"a soft container stopped it as well: {said}")
    return "96 MiB were written, and no directory had a name for them"


def _hidden_disk_is_limited(scene: Scene) -> str:
    run = guests_of(scene).run("hides")
    require_equal(run.verdict, Verdict.DISK_LIMIT, "the verdict")
    written = run.stdout_tail.split()
    return f"verdict disk_limit, after {int(written[0]) * 8} MiB" if written else "verdict disk_limit"


def _buffers_hold_memory(scene: Scene) -> str:
    _run_in_soft_container(scene, BUFFERS, BUFFERED_MIB)
    return f"a soft container held {BUFFERED_MIB} MiB in connections that it did not accept"


def _buffers_are_limited(scene: Scene) -> str:
    run = guests_of(scene).run("buffers")
    require_equal(run.verdict, Verdict.OOM_KILLED, "the verdict")
    return f"verdict oom_killed, with {(run.usage.memory_peak_bytes or 0) // MIB} MiB"


def _opens_ptys(scene: Scene) -> str:
    _run_in_soft_container(scene, OPENS_PTYS, PTYS)
    return f"a soft container opened {PTYS} pseudo terminals"


def _ptys_are_limited(scene: Scene) -> str:
    run = guests_of(scene).run("opens-ptys")
    said = run.stdout_tail.strip()
    require_hit(said.isdigit(), f"the probe printed no number: {run.verdict}, {run.stderr_tail[-200:]}")
    if int(said) > MAX_PTYS:
        raise GotThrough(f"a guest opened {said} pseudo terminals, above the limit of {MAX_PTYS}")
    return f"{said} pseudo terminals of at most {MAX_PTYS}"


def _run_in_soft_container(scene: Scene, program: str, taken: int) -> None:
    """Run a program that prints how much it could take, which has to be all."""
    said = guests_of(scene).run_soft("perl", "-e", program).stdout.decode(errors="replace").strip()
    require_hit(said == str(taken), f"a soft container could take {said[-200:]} of {taken}")


def _parser_takes_memory(scene: Scene) -> str:
    report = nested_report()
    done = run_unhardened([sys.executable, "-I", "-c", _PLAIN_PARSER], cwd=scene.root, home=scene.root, stdin=report)
    require_hit(done.text.isdigit() and int(done.text) > PARSER_BYTES, f"a parser without limits took {done.text}")
    return f"a parser without limits took {int(done.text) // MIB} MiB for {len(report) / MIB:.1f} MiB"


def _parser_is_limited(scene: Scene) -> str:
    """The second run is measured: the first one loads modules."""
    task = scene.task.id
    runs = [*scene.workbench.run_checks(task, ["reports"])]
    before = _reset_peak()
    runs += scene.workbench.run_checks(task, ["reports"])
    grown = _read_memory("VmHWM") - before
    require_hit(all(map(_has_passed, runs)), f"the guest wrote no report: {runs[-1].stderr_tail[-200:]}")
    if grown > PARSER_BYTES:
        raise GotThrough(f"the report of a guest took {grown // MIB} MiB of the controller's memory")
    require_equal([run.report for run in runs], [None, None], "what is kept of such a report")
    return f"the report was left out; the controller grew by {grown / MIB:.1f} MiB"


def _next_sees_it(scene: Scene) -> str:
    """Both soft containers have one folder, as if a task had one report."""
    folder = scene.root / "reports"
    folder.mkdir()
    folder.chmod(0o777)
    for script in (PLANTS, SEES):
        ended = guests_of(scene).run_soft(
            "sh", "-c", script.format("/report"), binds=[Bind(folder, "/report", read_only=False)]
        )
        require_hit(ended.stdout.split() == [b"planted"], f"it saw {ended.stdout!r}")
    return "in a folder of both, the next container found what the first had left"


def _next_sees_none(scene: Scene) -> str:
    guests = guests_of(scene)
    planted, seen = guests.run("plants"), guests.run("sees")
    require_hit(planted.stdout_tail.split() == ["planted"], f"no report was planted: {planted.stderr_tail[-200:]}")
    if seen.stdout_tail.strip() or seen.report is not None:
        raise GotThrough(f"the next check of this task has the report {seen.stdout_tail.strip()}")
    require_hit(_has_passed(seen), f"the next check did not end: {seen.verdict}")
    return "the next check of the same task found its report empty, and kept so"


def _has_passed(run: CheckRun) -> bool:
    return run.verdict is Verdict.PASSED


def _reset_peak() -> int:
    """Make the kernel forget the peak of this process's memory (proc(5), clear_refs). Bytes in use now."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError as error:
        raise NotSupported(f"the peak of this process's memory cannot be reset: {error.strerror}") from error
    return _read_memory("VmRSS")


def _read_memory(name: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


ENTRIES = (
    AttackEntry("S02", "all inotify instances of a user", "check run", _starves_another, _starves_nobody,
                needs=(needs_own_users, needs_shared_kernel, needs_few_instances), scene="guests"),
    AttackEntry("S04", "shared memory without a process", "check run", _memory_stays, _memory_goes,
                needs=(needs_shared_kernel,), scene="guests"),
    AttackEntry("S05", "a full disk, by files without a name", "check run", _no_name_has_it, _hidden_disk_is_limited,
                scene="guests"),
    AttackEntry("S09", "a report of 300,000 levels", "check run", _parser_takes_memory, _parser_is_limited,
                scene="guests"),
    AttackEntry("S202", "memory of network buffers", "check run", _buffers_hold_memory, _buffers_are_limited,
                needs=(needs_shared_kernel,), scene="guests"),
    AttackEntry("S204", "pseudo terminals of the host", "check run", _opens_ptys, _ptys_are_limited,
                needs=(needs_root, needs_shared_kernel), scene="guests"),
    AttackEntry("S109", "the report of the next check", "check run", _next_sees_it, _next_sees_none, scene="guests"),
)  # fmt: skip
