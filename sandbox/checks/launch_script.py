"""Launch an application in a guest and probe it while it is up: ready, probes, soak, stop, a verdict for each.

What decides a verdict comes from our PID 1 and the kernel; what a probe says comes from a command with the user of the
application. So probes find mistakes. An application that wants to deceive them can (docs/adr/0111).
"""

from __future__ import annotations

import hashlib
import signal
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

import regex

from sandbox.byte_sizes import format_bytes
from sandbox.engine.beside import BesideCommand, GuestControl, PlaceQuestion, decode_exit
from sandbox.engine.container_types import ContainerExit, OutputSink, Streams
from sandbox.engine.pid1_messages import STDERR, STDOUT, Command
from sandbox.errors import SandboxError
from sandbox.files.tree import WorktreeFiles
from sandbox.models import Check
from sandbox.models.checks import ARTIFACT_TOKEN, RUN_TOKEN, LaunchProbe, LaunchSteps
from sandbox.models.runs import GUEST_ENDED, LaunchPhase, PhaseRun, PhaseVerdict
from sandbox.policy.container import GuestPaths
from sandbox.policy.paths import parse_repo_path
from sandbox.store.runs import LAUNCH_FILE
from sandbox.text import decode_for_display

KEPT_OUTPUT = 256 * 1024
"""How much of what a probe prints is searched."""

WATCHED_BYTES, WATCHED_S = 64 * 1024**2, 5.0
"""How much output is searched for the line that says that the application is ready, and for how long in all."""

_SHOWN_OUTPUT = 2000
_SEARCH_S = 1.0
_LINE_BYTES = 4096
_PAUSE_S = 0.05
_COMMAND_PAUSE_S = 0.2

CommandFor = Callable[[Sequence[str], Mapping[str, str]], Command]
"""Builds a command that runs beside the application, with more variables than that has."""


class LineWatch:
    """Waits for a line of output that matches. Lines are searched up to 4 KiB, and all of them together up to
    `WATCHED_BYTES` and `WATCHED_S` of searching: it happens where the output of the guest is read.
    """

    def __init__(self, pattern: str) -> None:
        self._pattern = regex.compile(pattern) if pattern else None
        self._partial = {"stdout": b"", "stderr": b""}
        self._left_bytes, self._left_s = WATCHED_BYTES, WATCHED_S
        self.matched = False
        self.exhausted = ""
        """Why it has stopped looking; '' while it looks."""

    def wrap(self, name: str, sink: OutputSink) -> OutputSink:
        """A sink that also looks at what passes."""

        def pass_on(chunk: bytes) -> None:
            sink(chunk)
            if self._pattern is not None and not self.matched and not self.exhausted:
                self._look(name, chunk)

        return pass_on if self._pattern is not None else sink

    def _look(self, name: str, chunk: bytes) -> None:
        *lines, rest = (self._partial[name] + chunk).split(b"\n")
        self._partial[name] = rest[:_LINE_BYTES]
        self._left_bytes -= len(chunk)
        for line in lines:
            began_at = time.monotonic()
            self.matched = _matches(self._pattern, line[:_LINE_BYTES], min(_SEARCH_S, self._left_s))
            self._left_s -= time.monotonic() - began_at
            if self.matched:
                return
            if self._left_s <= 0:
                self.exhausted = f"no line matched within {WATCHED_S:g} s of searching"
                return
        if self._left_bytes <= 0:
            self.exhausted = f"no line of the first {format_bytes(WATCHED_BYTES)} of output matched"


def _matches(pattern: regex.Pattern[str] | None, text: bytes, most_s: float = _SEARCH_S) -> bool:
    """Whether guest text matches; no for a search that takes too long."""
    try:
        return pattern is None or pattern.search(text.decode("utf-8", "replace"), timeout=most_s) is not None
    except TimeoutError:
        return False


class LaunchScript:
    """One launch: its script for the session, and how its phases went. Use it once."""

    def __init__(self, steps: LaunchSteps, run_folder: PurePosixPath, artifacts: LaunchArtifacts) -> None:
        """`run_folder`: an empty directory of the guest."""
        self._steps = steps
        self._tokens = {RUN_TOKEN: str(run_folder)}
        self._artifacts = artifacts
        self._lines = LineWatch(steps.ready.line)
        self._began_at = 0.0
        self._phase = (LaunchPhase.READY, "")
        self._build: CommandFor | None = None
        self._over = False
        self._commands: list[BesideCommand] = []
        self.phases: list[PhaseRun] = []

    def wrap(self, streams: Streams) -> Streams:
        """The streams of the application, watched for the line that says it is ready."""
        return Streams(self._lines.wrap("stdout", streams.stdout), self._lines.wrap("stderr", streams.stderr))

    @property
    def total_bytes(self) -> int:
        """How much its commands beside the application have printed."""
        return sum(command.output_bytes for command in self._commands)

    def use(self, build: CommandFor) -> None:
        """Say how commands for the guest are built, before it starts."""
        self._build = build

    def run_beside(self, control: GuestControl) -> Iterator[None]:
        """The script: it ends at the first phase that does not pass, or when the application does not stop."""
        self._begin(LaunchPhase.READY)
        yield from self._wait_until_ready(control)
        for probe in self._steps.probes:
            if self._over:
                return
            self._begin(LaunchPhase.PROBE, probe.id)
            yield from self._run_probe(control, probe)
        if self._over:
            return
        self._begin(LaunchPhase.SOAK)
        yield from _pause(self._steps.soak_s)
        self._end(PhaseVerdict.PASSED)
        self._begin(LaunchPhase.STOP)
        control.signal(signal.Signals[f"SIG{self._steps.stop.signal}"])
        yield from _pause(self._steps.stop.deadline_s)
        what = f"it did not end within {self._steps.stop.deadline_s:g} s of SIG{self._steps.stop.signal}"
        self._end(PhaseVerdict.TIMED_OUT, what)

    def judge(self, ending: ContainerExit) -> ContainerExit:
        """How the launch as a whole ended: a command that ended with 0 if all phases passed."""
        if ending.timed_out or ending.stop_verdict is not None or ending.oom_killed or ending.report_missing:
            if not self._over and self._began_at:
                self._end(PhaseVerdict.TIMED_OUT if ending.timed_out else PhaseVerdict.FAILED, GUEST_ENDED)
            return ending
        if not self._over:
            self._judge_end(ending)
        last = self.phases[-1]
        if last.verdict is PhaseVerdict.PASSED:
            return replace(ending, exit_code=0, signal=None)
        if last.verdict is PhaseVerdict.TIMED_OUT:
            return replace(ending, timed_out=True)
        ended_itself = last.exit_code is not None and last.phase is not LaunchPhase.PROBE
        return replace(
            ending,
            exit_code=(last.exit_code or 1) if ended_itself else 1,
            signal=ending.signal if ended_itself else None,
        )

    def _judge_end(self, ending: ContainerExit) -> None:
        """The application ended while a phase was on: as it should in the last one, too early in the others."""
        stop = self._steps.stop
        if self._phase[0] is not LaunchPhase.STOP:
            why = f"the application ended with exit code {ending.exit_code}"
            self._end(PhaseVerdict.FAILED, why, exit_code=ending.exit_code)
        elif ending.exit_code != stop.exit_code:
            why = f"exit code {ending.exit_code} instead of {stop.exit_code} after SIG{stop.signal}"
            self._end(PhaseVerdict.FAILED, why, exit_code=ending.exit_code)
        else:
            self._end(PhaseVerdict.PASSED, exit_code=ending.exit_code)

    def _begin(self, phase: LaunchPhase, name: str = "") -> None:
        self._phase, self._began_at = (phase, name), time.monotonic()

    def _end(self, verdict: PhaseVerdict, why: str = "", **more: str | int | None) -> None:
        phase, name = self._phase
        took = round(time.monotonic() - self._began_at, 3)
        document = {"phase": phase, "name": name, "verdict": verdict, "wall_time_s": took, "why": why, **more}
        self.phases.append(PhaseRun.model_validate(document))
        self._over = verdict is not PhaseVerdict.PASSED or phase is LaunchPhase.STOP

    # --- ready

    def _wait_until_ready(self, control: GuestControl) -> Iterator[None]:
        ready = self._steps.ready
        ends_at = time.monotonic() + ready.deadline_s
        while (left_s := ends_at - time.monotonic()) > 0:
            found = yield from self._look_once(control, left_s)
            if found:
                self._end(PhaseVerdict.PASSED)
                return
            if self._lines.exhausted:
                self._end(PhaseVerdict.FAILED, self._lines.exhausted)
                return
            yield from _pause(min(left_s, _COMMAND_PAUSE_S if ready.argv else _PAUSE_S))
        self._end(PhaseVerdict.TIMED_OUT, f"not ready within {ready.deadline_s:g} s")

    def _look_once(self, control: GuestControl, left_s: float) -> Generator[None, None, bool]:
        ready = self._steps.ready
        if ready.line:
            return self._lines.matched
        if ready.argv:
            command = self._start(control, self._command(ready.argv, {}), left_s, 0)
            yield from _wait_for(command)
            return command.report is not None and decode_exit(command.report)[0] == 0
        asked = control.ask_file(PurePosixPath(self._fill_text(ready.file))) if ready.file else None
        asked = asked or control.ask_port(ready.port or 0)
        yield from _wait_for(asked)
        return bool(asked.found)

    # --- probes

    def _run_probe(self, control: GuestControl, probe: LaunchProbe) -> Iterator[None]:
        tokens = self._artifacts.tokens(probe)
        argv = [_replace_all(word, tokens) for word in self.fill(probe.argv)]
        env = {name: _replace_all(text, tokens) for name, text in self.fill_values(probe.env).items()}
        command = self._start(control, self._command(argv, env), probe.deadline_s, KEPT_OUTPUT)
        yield from _wait_for(command)
        verdict, why = judge_probe(probe, command)
        code = decode_exit(command.report)[0] if command.report else None
        kept: dict[str, str] = {}
        if verdict is PhaseVerdict.PASSED and probe.artifact:
            try:
                kept = self._artifacts.keep(probe)
            except SandboxError as error:
                verdict, why = PhaseVerdict.FAILED, f"no artifact: {error.brief}"
        streams = (STDOUT,) if verdict is PhaseVerdict.PASSED else (STDOUT, STDERR)  # why it failed is often on stderr
        output = _join_streams(decode_for_display(bytes(command.outputs[name][:_SHOWN_OUTPUT])) for name in streams)
        self._end(verdict, why, exit_code=code, output=output, **kept)

    def _start(self, control: GuestControl, command: Command, deadline_s: float, keep_bytes: int) -> BesideCommand:
        started = control.start(command, deadline_s, keep_bytes)
        self._commands.append(started)
        return started

    def _command(self, argv: Sequence[str], env: Mapping[str, str]) -> Command:
        if self._build is None:
            raise RuntimeError("the guest of a launch was not started by an executor")
        return self._build(self.fill(argv), env)

    def fill(self, words: Sequence[str]) -> tuple[str, ...]:
        """These words for the guest, with its directory of this launch."""
        return tuple(self._fill_text(word) for word in words)

    def fill_values(self, env: Mapping[str, str]) -> dict[str, str]:
        """These variables for the guest."""
        return {name: self._fill_text(text) for name, text in env.items()}

    def _fill_text(self, text: str) -> str:
        return _replace_all(text, self._tokens)


def _join_streams(texts: Iterable[str]) -> str:
    """Each begins on a line of its own."""
    joined = ""
    for text in texts:
        joined += f"\n{text}" if text and joined and not joined.endswith("\n") else text
    return joined


class LaunchArtifacts:
    """Files that probes leave in the report directory, of which a copy is kept beside the logs. Hostile data."""

    def __init__(self, report: Path, guest_report: PurePosixPath, kept: Path) -> None:
        """`kept`: beginning of the paths of the copies."""
        self._report = report
        self._guest_report = guest_report
        self._kept = kept

    def tokens(self, probe: LaunchProbe) -> dict[str, str]:
        """Where the probe leaves its file."""
        return {ARTIFACT_TOKEN: str(self._guest_report / probe.artifact)} if probe.artifact else {}

    def keep(self, probe: LaunchProbe) -> dict[str, str]:
        """Copy the file. Raises: `not_found`, `unsafe_path`, `quota_exceeded`: no regular file of allowed size."""
        with WorktreeFiles(self._report) as files:
            content = files.read(parse_repo_path(probe.artifact), probe.artifact_bytes)
        copy = self._kept.with_name(f"{LAUNCH_FILE}{self._kept.name}.{probe.id}.{probe.artifact}")
        copy.write_bytes(content)
        return {"artifact": str(copy), "artifact_sha256": f"sha256:{hashlib.sha256(content).hexdigest()}"}


def judge_probe(probe: LaunchProbe, command: BesideCommand) -> tuple[PhaseVerdict, str]:
    """The verdict of a probe, and why it did not pass. Pure but for the time of a search."""
    report = command.report
    if report is None:
        return PhaseVerdict.FAILED, "it could not be run beside the application"
    if report.timed_out:
        return PhaseVerdict.TIMED_OUT, f"no end within {probe.deadline_s:g} s"
    code = decode_exit(report)[0]
    if code != probe.exit_code:
        return PhaseVerdict.FAILED, f"exit code {code} instead of {probe.exit_code}"
    text = bytes(command.outputs[STDOUT])
    fault = _find_text_fault(probe, text, is_cut=STDOUT in command.cut_streams)
    return (PhaseVerdict.FAILED, fault) if fault else (PhaseVerdict.PASSED, "")


def _find_text_fault(probe: LaunchProbe, text: bytes, *, is_cut: bool) -> str:
    """Why the output is not as it must be; '' if it is. `is_cut`: there was more, which cannot be searched."""
    if probe.output and not _matches(regex.compile(probe.output, regex.MULTILINE), text):
        return f"its output does not match {probe.output!r}"
    if probe.no_output and not _lacks(regex.compile(probe.no_output, regex.MULTILINE), text):
        return f"its output matches {probe.no_output!r}"
    if probe.no_output and is_cut:
        return f"its output is longer than {format_bytes(KEPT_OUTPUT)}, so it may match {probe.no_output!r}"
    return ""


def _lacks(pattern: regex.Pattern[str], text: bytes) -> bool:
    """Whether guest text does not match; no for a search that takes too long."""
    try:
        return pattern.search(text.decode("utf-8", "replace"), timeout=_SEARCH_S) is None
    except TimeoutError:
        return False


def _replace_all(text: str, tokens: Mapping[str, str]) -> str:
    for token, value in tokens.items():
        text = text.replace(token, value)
    return text


def _wait_for(what: BesideCommand | PlaceQuestion) -> Iterator[None]:
    while not what.ended:
        yield


def _pause(seconds: float) -> Iterator[None]:
    ends_at = time.monotonic() + seconds
    while time.monotonic() < ends_at:
        yield


def build_launch(check: Check, report: Path, kept: Path) -> LaunchScript:
    """The launch of a check that has steps. `kept`: beginning of the paths of kept artifacts."""
    if check.launch is None:
        raise ValueError(f"the check '{check.id}' launches no application")
    mounts = GuestPaths()
    artifacts = LaunchArtifacts(report, PurePosixPath(mounts.report), kept)
    return LaunchScript(check.launch, PurePosixPath(mounts.home), artifacts)
