"""The steps of a launch: what is sent to the guest, and the verdict of each phase. PID 1's answers are frames."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import pytest

from devtools.host_speed import slowness
from sandbox.checks import launch_script
from sandbox.checks.execute import CheckDirectories, Recorder
from sandbox.checks.launch_script import LaunchArtifacts, LaunchScript, LineWatch, judge_probe
from sandbox.engine.beside import BesideCommand, GuestControl
from sandbox.engine.cgroups import Counters
from sandbox.engine.container_types import ContainerExit, StopCondition, Streams
from sandbox.engine.pid1_messages import Command, ExitReport, OutputChunk, PlaceAnswer
from sandbox.models import Check, LaunchProbe, LaunchReady, LaunchSteps, LaunchStop, PhaseVerdict, Verdict
from sandbox.store.home import newest_files
from sandbox.workbench.reconciling import retention
from tests.unit.checks.test_execute import ACCOUNT, FLOODED, GUEST, Scripted

RUN = PurePosixPath("/home/sandbox")


def report(nonce: bytes = bytes(16), code: int = 0, *, timed_out: bool = False) -> ExitReport:
    return ExitReport(nonce, code << 8, timed_out, False, True, 0, 0.0, 0, 0, 0.1)


def ended(code: int | None = 0, **facts: Any) -> ContainerExit:
    return ContainerExit(code, facts.pop("oom_killed", False), facts.pop("timed_out", False), datetime.now(UTC), 1.0,
                         Counters(), **facts)  # fmt: skip


class Guest:
    """PID 1's side of a script: answers each command and question at once."""

    def __init__(self, script: LaunchScript) -> None:
        self.control = GuestControl(b"n" * 16, self.hear)
        self.frames: list[tuple[bytes, bytes]] = []
        self.replies: list[tuple[int, bytes]] = []  # exit code and output of the next commands
        self.errors = b""
        self.files: set[bytes] = set()
        script.use(lambda argv, env: Command(tuple(argv), PurePosixPath("/workspace"), env))
        self.steps = script.run_beside(self.control)

    def hear(self, data: bytes) -> None:
        self.frames.append((data[:1], data[5:]))

    def kinds(self) -> bytes:
        return b"".join(kind for kind, _ in self.frames)

    def run(self) -> None:
        """To the end of the script."""
        answered = 0
        while next(self.steps, "over") != "over":
            for kind, payload in self.frames[answered:]:
                self.answer(kind, payload)
            answered = len(self.frames)

    def answer(self, kind: bytes, payload: bytes) -> None:
        if kind == b"F":
            self.control.receive(PlaceAnswer(payload[:16], 0 if payload[16:-1] in self.files else 2))
        if kind == b"S":
            code, output = self.replies.pop(0)
            self.control.receive(OutputChunk(payload[:16], "stdout", output))
            self.control.receive(OutputChunk(payload[:16], "stderr", self.errors))
            self.control.receive(report(payload[:16], code))


def build(tmp_path: Path, *probes: LaunchProbe, **steps: Any) -> LaunchScript:
    asked: dict[str, Any] = {
        "ready": LaunchReady(file="<run>/up", deadline_s=0.3), "soak_s": 0.0, "stop": LaunchStop(deadline_s=0.2),
    } | steps  # fmt: skip
    report_folder = tmp_path / "report"
    report_folder.mkdir()
    artifacts = LaunchArtifacts(report_folder, PurePosixPath("/report"), tmp_path / "run-1")
    return LaunchScript(LaunchSteps(probes=probes, **asked), RUN, artifacts)


def summary(script: LaunchScript) -> list[str]:
    return [f"{p.phase.value} {p.name}".strip() + f" {p.verdict.value}" for p in script.phases]


def test_all_phases_pass_and_the_launch_ends_with_0(tmp_path: Path) -> None:
    script = build(
        tmp_path,
        LaunchProbe(id="a", argv=("ask", "<run>"), output="^42$"),
        stop=LaunchStop(exit_code=143, deadline_s=0.2),
    )
    guest = Guest(script)
    guest.files, guest.replies = {b"/home/sandbox/up"}, [(0, b"42\n")]
    guest.run()
    script.phases.pop()  # the script waited to the end: the application ended before that
    script._over = False
    found = script.judge(ended(143, signal=15))
    assert (found.exit_code, found.signal, found.timed_out) == (0, None, False)
    assert summary(script) == ["ready passed", "probe a passed", "soak passed", "stop passed"]
    assert guest.kinds() == b"FST", "a file, a probe, the signal"
    assert b"ask\0/home/sandbox\0" in guest.frames[1][1]


def test_no_readiness_in_time(tmp_path: Path) -> None:
    script = build(tmp_path)
    Guest(script).run()
    assert summary(script) == ["ready timed_out"]
    assert script.judge(ended(None)).timed_out


def test_an_end_before_it_is_ready_is_a_failure_even_with_0(tmp_path: Path) -> None:
    script = build(tmp_path)
    next(Guest(script).steps)
    found = script.judge(ended(0))
    assert (found.exit_code, summary(script)) == (1, ["ready failed"])
    assert "ended with exit code 0" in script.phases[0].why


def test_a_wrong_answer_with_exit_code_0_fails_and_the_next_probe_does_not_run(tmp_path: Path) -> None:
    probes = (LaunchProbe(id="a", argv=("x",), output="^42$"), LaunchProbe(id="b", argv=("y",)))
    script = build(tmp_path, *probes)
    guest = Guest(script)
    guest.files, guest.replies = {b"/home/sandbox/up"}, [(0, b"41\n")]
    guest.run()
    assert summary(script) == ["ready passed", "probe a failed"]
    assert script.judge(ended(None)).exit_code == 1


def test_what_probes_print_counts_for_the_limit_on_output(tmp_path: Path) -> None:
    """The probe fails, and its check has printed too much."""
    said: list[Verdict | None] = []

    class Launching(Scripted):
        def execute(
            self,
            run_id: str,
            check: Check,
            directories: CheckDirectories,
            streams: Streams,
            stop_condition: StopCondition,
        ) -> ContainerExit:
            assert directories.launch is not None
            guest = Guest(directories.launch)
            guest.files, guest.replies, guest.errors = {b"/home/sandbox/up"}, [(0, b"x" * 100)], b"x"
            said.append(stop_condition())
            guest.run()
            said.append(stop_condition())
            return self.how

    steps = LaunchSteps(
        ready=LaunchReady(file="<run>/up", deadline_s=0.3),
        probes=(LaunchProbe(id="a", argv=("ask",), output="^42$"),),
        soak_s=0.0,
        stop=LaunchStop(deadline_s=0.2),
    )
    (tmp_path / "report").mkdir()
    place = CheckDirectories(tmp_path, tmp_path / "report", ACCOUNT, "a" * 40, clean_room=False, task_id=None)
    check = FLOODED.model_copy(update={"launch": steps})
    run = Recorder(Launching(b"", ended(None)), GUEST, tmp_path).run("run-1", check, place)
    assert said == [None, Verdict.OUTPUT_LIMIT]
    assert (run.verdict, [phase.name for phase in run.phases]) == (Verdict.OUTPUT_LIMIT, ["", "a"])


def test_it_does_not_stop(tmp_path: Path) -> None:
    script = build(tmp_path)
    guest = Guest(script)
    guest.files = {b"/home/sandbox/up"}
    guest.run()
    assert summary(script)[-1] == "stop timed_out"
    assert script.judge(ended(None)).timed_out


@pytest.mark.parametrize(
    "facts", [{"oom_killed": True}, {"stop_verdict": Verdict.KILLED}, {"report_missing": True}, {"timed_out": True}]
)
def test_facts_of_the_kernel_go_before_phases(tmp_path: Path, facts: dict[str, Any]) -> None:
    script = build(tmp_path)
    next(Guest(script).steps)
    ending = ended(137, **facts)
    assert script.judge(ending) is ending
    assert script.phases[-1].why == "its guest ended"


def outcome(probe: LaunchProbe, *replies: OutputChunk | ExitReport) -> tuple[PhaseVerdict, str]:
    command = BesideCommand(1.0, 256 * 1024)
    for reply in replies:
        command.receive(reply)
    return judge_probe(probe, command)


def test_probes_are_judged_by_exit_code_text_and_time() -> None:
    said = OutputChunk(bytes(16), "stdout", b"fine\nno error here\n")
    plain = {"id": "a", "argv": ("x",)}
    assert outcome(LaunchProbe(**plain), report())[0] is PhaseVerdict.PASSED
    assert outcome(LaunchProbe(**plain), report(code=3)) == (PhaseVerdict.FAILED, "exit code 3 instead of 0")
    assert outcome(LaunchProbe(**plain, exit_code=3), report(code=3))[0] is PhaseVerdict.PASSED
    assert outcome(LaunchProbe(**plain), report(timed_out=True))[0] is PhaseVerdict.TIMED_OUT
    assert outcome(LaunchProbe(**plain, output="^no error"), said, report())[0] is PhaseVerdict.PASSED
    assert outcome(LaunchProbe(**plain, no_output="error"), said, report())[0] is PhaseVerdict.FAILED


@pytest.mark.parametrize(
    ("stream", "size", "verdict"),
    [("stdout", 0, PhaseVerdict.PASSED), ("stdout", 1, PhaseVerdict.FAILED), ("stderr", 1, PhaseVerdict.PASSED)],
)
def test_output_that_was_not_searched_to_its_end_may_have_what_it_must_not(
    stream: Literal["stdout", "stderr"], size: int, verdict: PhaseVerdict
) -> None:
    probe = LaunchProbe(id="a", argv=("x",), no_output="error")
    said = [OutputChunk(bytes(16), stream, b"." * length) for length in (200 * 1024, 56 * 1024, size)]
    found = outcome(probe, *said, report())
    assert found[0] is verdict
    assert ("256 KiB" in found[1]) is (verdict is PhaseVerdict.FAILED)


@pytest.mark.slow
def test_text_that_is_hard_to_search_is_no_match() -> None:
    """A pattern that backtracks, and a guest that knows it. Control: without the limit it would run for years."""
    said = OutputChunk(bytes(16), "stdout", b"a" * 60 + b"!")
    probe = LaunchProbe(id="a", argv=("x",), output=r"^(a|a)*\1?(a|aa)+$")
    assert outcome(probe, said, report())[0] is PhaseVerdict.FAILED


def test_a_line_says_that_it_is_ready() -> None:
    watch, seen = LineWatch("^up$"), list[bytes]()
    sink = watch.wrap("stdout", seen.append)
    for chunk in (b"u", b"p and more\nu", b"p"):
        sink(chunk)
    assert not watch.matched
    sink(b"\n")
    assert watch.matched
    assert b"".join(seen) == b"up and more\nup\n"


@pytest.mark.parametrize(
    ("pattern", "limit", "chunk"),
    [
        ("^up$", {"WATCHED_BYTES": 64 * 1024}, b"no\n" * 3_000),
        ("^(a|aa)+$", {"WATCHED_S": 0.2, "_SEARCH_S": 0.05}, (b"a" * 4000 + b"!\n") * 10),
    ],
    ids=["bytes", "time"],
)
def test_s121_the_search_for_a_line_has_a_limit_in_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pattern: str, limit: dict[str, float], chunk: bytes
) -> None:
    for name, value in limit.items():
        monkeypatch.setattr(launch_script, name, value)
    script = build(tmp_path, ready=LaunchReady(line=pattern, deadline_s=60), soak_s=60)
    sink = script.wrap(Streams(bytearray().extend, bytearray().extend)).stdout
    began_at = time.monotonic()
    for _ in range(50):
        sink(chunk)
    assert time.monotonic() - began_at < 10 * slowness()
    Guest(script).run()
    assert summary(script) == ["ready failed"]
    assert "matched" in script.phases[0].why
    sink(b"up\naa\n")
    assert not script.judge(ended(None)).timed_out


@pytest.mark.parametrize(
    ("said", "errors", "shown"),
    [
        (b"said\n", b"wrong\n", "said\nwrong\n"),
        (b"said", b"wrong", "said\nwrong"),
        (b"said", b"", "said"),
        (b"", b"wrong", "wrong"),
    ],
)
def test_errors_of_a_probe_that_fails_are_part_of_its_output(
    tmp_path: Path, said: bytes, errors: bytes, shown: str
) -> None:
    """They begin on a line of their own. Control: of one that passes only what it printed is kept, as before."""
    for code, output in ((1, shown), (0, said.decode())):
        (tmp_path / str(code)).mkdir()
        script = build(tmp_path / str(code), LaunchProbe(id="a", argv=("ask",)))
        guest = Guest(script)
        guest.errors = errors
        guest.files, guest.replies = {b"/home/sandbox/up"}, [(code, said)]
        guest.run()
        assert script.phases[1].output == output


@pytest.fixture
def artifacts(tmp_path: Path) -> tuple[Path, LaunchScript]:
    script = build(tmp_path, LaunchProbe(id="a", argv=("draw", "<artifact>"), artifact="f.png", artifact_bytes=10))
    return tmp_path / "report" / "f.png", script


def drawn(script: LaunchScript) -> str:
    guest = Guest(script)
    guest.files, guest.replies = {b"/home/sandbox/up"}, [(0, b"")]
    guest.run()
    assert b"draw\0/report/f.png\0" in guest.frames[1][1]
    return script.phases[1].why


def test_an_artifact_is_copied(artifacts: tuple[Path, LaunchScript]) -> None:
    path, script = artifacts
    path.write_bytes(b"picture")
    assert drawn(script) == ""
    copied = script.phases[1].artifact
    assert copied is not None
    assert Path(copied).read_bytes() == b"picture"


def test_a_kept_artifact_is_no_record_of_a_run_and_goes_with_its_run(tmp_path: Path) -> None:
    """Whatever its name: the profile chooses that, and the guest writes the content. Control: it is in the folder."""
    report, logs = tmp_path / "report", tmp_path / "logs"
    for folder in (report, logs):
        folder.mkdir()
    record = logs / f"run-{'1' * 32}.json"
    record.write_text("{}")
    kept = LaunchArtifacts(report, PurePosixPath("/report"), record.with_suffix(""))
    for name in ("state.json", "x.stdout", "list.artifacts", "tests"):
        (report / name).write_text("{}")
        kept.keep(LaunchProbe(id="a", argv=("draw",), artifact=name))
    assert len(list(logs.iterdir())) == 5, "void"
    assert newest_files(logs) == [record]
    assert [path for kind in ("stdout", "artifacts", "tests") for path in logs.glob(f"run-*.{kind}")] == []
    retention._remove_runs([record])
    assert list(logs.iterdir()) == []


def test_an_artifact_that_is_missing_large_or_a_link_fails_its_probe(
    artifacts: tuple[Path, LaunchScript], tmp_path: Path
) -> None:
    path, _ = artifacts
    secret = tmp_path / "secret"
    secret.write_text("secret")
    steps = LaunchSteps(
        ready=LaunchReady(file="<run>/up"), soak_s=0.0, stop=LaunchStop(deadline_s=0.1),
        probes=(LaunchProbe(id="a", argv=("draw", "<artifact>"), artifact="f.png", artifact_bytes=10),),
    )  # fmt: skip
    for make in (lambda: None, lambda: path.write_bytes(b"x" * 11), lambda: os.symlink(secret, path)):  # noqa: PTH211
        path.unlink(missing_ok=True)
        make()
        kept = LaunchArtifacts(tmp_path / "report", PurePosixPath("/report"), tmp_path / "run-2")
        assert drawn(LaunchScript(steps, RUN, kept)).startswith("no artifact")
    assert not list(tmp_path.glob("*run-2*"))
