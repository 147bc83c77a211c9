"""What every executor must do: eight scenarios, as test methods for pytest.

Subclass `ExecutorContract` in a test module, and give pytest the fixtures `rig` and `second_rig`: two `ExecutorRig`
of the same backend, with a workspace each. The image needs `sh`, `head`, `tr`, `sleep`, `cat`, `ls` and `setsid`.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sandbox.checks.execute import CheckDirectories, Executor, GuestSettings, Recorder
from sandbox.engine.container_types import StopCondition, never_stop
from sandbox.engine.create_options import GuestAccount
from sandbox.models import Check, CheckRun, Limits, Verdict

DEADLINE_S = 120.0
"""Of a check that should end long before."""
GENEROUS = Limits(memory_bytes=512 * 1024**2, cpus=1.0, pids=256, tmp_bytes=16 * 1024**2, home_bytes=1024**2)
STUBBORN = "trap '' TERM INT HUP; setsid sh -c 'trap \"\" TERM; while :; do sleep 1; done' & while :; do sleep 1; done"
"""Ignores the signals that it can, and has a process in another session."""


def _keep_nothing() -> None:
    """For a backend that keeps no guest between checks."""


@dataclass(frozen=True)
class ExecutorRig:
    """An executor with a folder that has a directory `workspace`, with the mask `.git` in it, and a directory `report`,
    both owned by `account`.

    `task_id`: of the guest that is kept, if one is. `close`: removes a guest that is kept; may be called at any time.
    `idle`: processes beside PID 1 in a guest in which no check runs.
    """

    executor: Executor
    guest: GuestSettings
    folder: Path
    account: GuestAccount
    task_id: str | None = None
    close: Callable[[], None] = _keep_nothing
    idle: int = 0

    @property
    def workspace(self) -> Path:
        """The directory that checks find as their workspace."""
        return self.folder / "workspace"

    def run(
        self,
        *argv: str,
        why_stop: StopCondition = never_stop,
        follow: Callable[[str, bytes], None] | None = None,
        **changes: Any,
    ) -> CheckRun:
        """Run a command. `changes`: fields of the check; `limits`: only those that differ from `GENEROUS`."""
        limits = GENEROUS.model_copy(update=changes.pop("limits", {}))
        check = Check(id="c", label="c", argv=argv, limits=limits, **{"timeout_s": DEADLINE_S, **changes})
        place = CheckDirectories(
            self.workspace, self.folder / "report", self.account, "0" * 40, clean_room=False, task_id=self.task_id
        )
        recorder = Recorder(self.executor, self.guest, self.folder / "logs")
        return recorder.run(f"run-{uuid.uuid4().hex}", check, place, follow, why_stop)

    def sh(self, script: str, **changes: Any) -> CheckRun:
        """Run a script of the shell."""
        return self.run("sh", "-c", script, **changes)

    def log(self, run: CheckRun, stream: str) -> bytes:
        """What was kept of one stream of a run."""
        return (self.folder / "logs" / f"{run.run_id}.{stream}").read_bytes()

    def count_processes(self) -> int:
        """Count the processes that a new check sees beside PID 1 and itself."""
        run = self.sh("n=0; for p in /proc/[0-9]*; do [ -e $p/stat ] && n=$((n+1)); done; echo $((n-2))")
        return int(run.stdout_tail)


@dataclass
class StopSignal:
    """Asks a check to end as soon as it has written something, and counts how often it was asked."""

    heard: threading.Event = field(default_factory=threading.Event)
    asked: int = 0

    def follow(self, _stream: str, _chunk: bytes) -> None:
        """For `ExecutorRig.run(follow=...)`."""
        self.heard.set()

    def why_stop(self) -> Verdict | None:
        """For `ExecutorRig.run(why_stop=...)`."""
        self.asked += 1
        return Verdict.KILLED if self.heard.is_set() else None


class ExecutorContract:
    """The scenarios. Each leaves the rig usable for the next, in any order."""

    def test_success(self, rig: ExecutorRig) -> None:
        run = rig.sh("echo said; echo complained >&2")
        assert (run.verdict, run.exit_code, run.signal) == (Verdict.PASSED, 0, None)
        assert (run.stdout_tail, run.stderr_tail) == ("said\n", "complained\n")

    def test_an_exit_code_is_the_commands(self, rig: ExecutorRig) -> None:
        run = rig.sh("exit 42")
        assert (run.verdict, run.exit_code) == (Verdict.FAILED, 42)

    def test_a_deadline_ends_what_ignores_signals_and_leaves_the_session(self, rig: ExecutorRig) -> None:
        run = rig.sh(f"echo begun; {STUBBORN}", timeout_s=1.0)
        assert run.verdict is Verdict.TIMED_OUT
        assert rig.count_processes() == rig.idle

    def test_output_past_its_limit_is_dropped_and_counted(self, rig: ExecutorRig) -> None:
        run = rig.sh("echo first; head -c 100000 /dev/zero | tr '\\0' x; echo last", limits={"output_bytes": 1000})
        assert (run.verdict, run.truncated, run.stdout_bytes) == (Verdict.PASSED, True, 100_011)
        log = rig.log(run, "stdout")
        assert log.startswith(b"first\n")
        assert log.endswith(b"last\n")
        assert len(log) < 2000

    def test_a_cancelled_check_is_killed_however_often_it_is_asked(self, rig: ExecutorRig) -> None:
        signal = StopSignal()
        run = rig.sh(f"echo begun; {STUBBORN}", why_stop=signal.why_stop, follow=signal.follow)
        assert run.verdict is Verdict.KILLED
        assert run.stdout_tail == "begun\n"
        assert signal.asked > 0
        assert rig.count_processes() == rig.idle

    def test_a_read_only_workspace_is_read_and_not_written(self, rig: ExecutorRig) -> None:
        """The report directory and /tmp stay writable. Control: the same command in a workspace that is writable."""
        (rig.workspace / "there").write_text("content\n")
        refused = "! rm -f there && ! echo x > forbidden && ! chmod 777 ."
        run = rig.sh(f"cat there && {refused} && echo r > /report/r && echo t > /tmp/t", workspace="read-only")
        assert (run.verdict, run.stdout_tail) == (Verdict.PASSED, "content\n")
        assert not (rig.workspace / "forbidden").exists()
        assert rig.sh("echo x > forbidden && rm forbidden").verdict is Verdict.PASSED

    def test_two_at_once_do_not_see_each_other(self, rig: ExecutorRig, second_rig: ExecutorRig) -> None:
        """Seen from the second while the first's process is there: it has written, and ends when we say so."""
        signal, token, stop = StopSignal(), uuid.uuid4().hex, threading.Event()
        ended: list[CheckRun] = []
        script = f"echo {token} > /tmp/{token}; echo {token} > /workspace/{token}; echo begun; sleep 600; : {token}"

        def why_stop() -> Verdict | None:
            return Verdict.KILLED if stop.is_set() else None

        def run() -> None:
            ended.append(rig.sh(script, why_stop=why_stop, follow=signal.follow))

        runner = threading.Thread(target=run, daemon=True)
        runner.start()
        try:
            assert signal.heard.wait(DEADLINE_S)
            # The shell lists: gVisor refuses the statx(2) of coreutils' ls (EINVAL, runsc of Debian 12).
            look = "cat /proc/[0-9]*/cmdline | tr '\\0' ' '; echo /tmp/* /dev/shm/* /workspace/* /proc/[0-9]* ."
            other = second_rig.sh(look)
        finally:
            stop.set()
            runner.join(DEADLINE_S)
            second_rig.close()
        assert other.verdict is Verdict.PASSED, f"it looked: {other.model_dump_json()}"
        assert token not in other.stdout_tail
        assert "/proc/1 " in other.stdout_tail
        assert [run.verdict for run in ended] == [Verdict.KILLED]

    def test_closing_twice_is_fine_and_the_next_check_has_a_new_guest(self, rig: ExecutorRig) -> None:
        assert rig.sh("echo kept > /tmp/kept").verdict is Verdict.PASSED
        rig.close()
        rig.close()
        assert rig.sh("cat /tmp/kept").verdict is Verdict.FAILED
