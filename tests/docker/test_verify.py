"""Verification in clean rooms: what runs, what is answered from before, what the gate makes of it. Real engine."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from devtools.command import Command
from devtools.copied_clones import copied_clones
from devtools.loaded_modules import CLICK, LOCKS, MODELS, Budget, check_budget, find_loaded
from sandbox.engine.connection import DockerEngine
from sandbox.errors import ErrorCode
from sandbox.files.mount_points import unmount_below
from sandbox.models import Check, CheckRun, Verdict, Verification
from sandbox.store.home import Home
from sandbox.workbench import VerifyOptions, Watch, Workbench
from tests.docker.conftest import remove_tags
from tests.unit.conftest import initialised, refused

CHECK = """
[[check]]
id = "{id}"
label = "{id}"
argv = ["sh", "-c", "{script}"]
requires = {requires}
timeout_s = 300
limits = {{ memory_bytes = 134217728, cpus = 1.0, pids = 64 }}
"""
HEAD = 'label = "bench"\nimage = "{image}"\npriority = 99\n[[detect.any]]\nfile = "bench"\n'
Scripts = dict[str, tuple[str, list[str]]]
"""Of each check: what its shell does, and which checks it requires."""

CHAIN: Scripts = {
    "build": ("cp source built; echo building", []),
    "test": ("grep -qx good built", ["build"]),
}
APART: Scripts = {
    "one": ("test ! -e two-was-here && touch one-was-here", []),
    "two": ("test ! -e one-was-here && touch two-was-here", []),
}


class Bench:
    """A home with a task on a repository of one file that the checks look at."""

    def __init__(self, root: Path, scripts: Scripts) -> None:
        self.home = root / "home"
        (self.home / "profiles").mkdir(parents=True)
        self.define(scripts)
        self.upstream = initialised(root / "upstream")
        self.upstream.write("bench")
        self.upstream.write("source", b"good\n")
        self.upstream.write(".gitignore", b"/built\n/out/\n")
        self.upstream.commit()
        self.workbench = self.open()
        with copied_clones():
            self.repo_id = self.workbench.clone(str(self.upstream.root)).repository.id
        self.task_id = self.workbench.create_task(self.repo_id).id

    def define(self, scripts: Scripts, image: str = "base") -> None:
        """Checks as the operator writes them; workbenches opened later have them."""
        checks = [
            CHECK.format(id=name, script=script, requires=str(requires).replace("'", '"'))
            for name, (script, requires) in scripts.items()
        ]
        (self.home / "profiles" / "bench.toml").write_text(HEAD.format(image=image) + "".join(checks))

    def open(self) -> Workbench:
        return Workbench(self.home, environ=dict(os.environ), allow_file=True)

    def again(self, scripts: Scripts, image: str = "base") -> None:
        """Go on with other checks, in another process as it were."""
        self.define(scripts, image)
        self.close()
        self.workbench = self.open()

    def close(self) -> None:
        self.workbench.__exit__(None, None, None)

    @property
    def root(self) -> Path:
        found = self.workbench.task(self.task_id).worktree_path
        assert found is not None
        return found

    def commit(self, content: bytes) -> None:
        """A commit that gives the one file this content."""
        before = self.workbench.base_hash(self.task_id, "source")
        self.workbench.write_file(self.task_id, "source", content, before)
        self.workbench.commit(self.task_id, "a change")

    def verify(self, watch: Watch | None = None, **options: bool | int) -> Verification:
        return self.workbench.verify(self.task_id, watch, VerifyOptions(**options))  # type: ignore[arg-type]  # by name

    def executed(self) -> int:
        """How many runs have a record: those that were answered from before have none of their own."""
        return len(list((self.home / "repositories" / "logs" / self.task_id).glob("*.json")))


def told(found: Verification) -> list[tuple[str, str, bool]]:
    """Check, verdict, and whether it was known already."""
    return [(run.check_id, run.verdict.value, run.cached) for run in found.runs]


@pytest.fixture
def bench(request: pytest.FixtureRequest, tmp_path: Path, base_image: str) -> Iterator[Bench]:
    found = Bench(tmp_path, getattr(request, "param", CHAIN))
    yield found
    found.close()
    unmount_below(found.home)


@pytest.fixture(autouse=True)
def nothing_runs(bench: Bench, engine: DockerEngine) -> Iterator[None]:
    """After each test: no container of its home is there but the task's own, and no clean room."""
    yield
    bench.workbench.close_task(bench.task_id)
    label = f"space.sandbox.instance={Home(bench.home).instance_id}"
    assert engine.api.containers(all=True, filters={"label": label}) == []
    assert list((bench.home / "repositories" / "rooms").iterdir()) == []


def test_the_image_of_a_check_is_built_when_it_is_needed_first(
    bench: Bench, engine: DockerEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"test-first-use-{uuid.uuid4().hex[:8]}"
    recipe = bench.home / "images" / name
    recipe.mkdir(parents=True)
    (recipe / "Dockerfile").write_text(f"ARG BASE\nFROM ${{BASE}}\nUSER root\nRUN echo {name} > /made\n")
    lines: list[str] = []
    made: Scripts = {"made": ("grep -q first-use /made", [])}
    try:
        monkeypatch.setenv("SANDBOX_IMAGES_BUILD", "never")
        bench.again(made, image=name)
        with refused(ErrorCode.IMAGE_MISSING):
            bench.verify()
        monkeypatch.delenv("SANDBOX_IMAGES_BUILD")
        bench.again(made, image=name)
        assert told(bench.verify(Watch(building=lines.append))) == [("made", "passed", False)]
        assert any("/made" in line for line in lines)
    finally:
        remove_tags(engine, name)


def test_the_same_question_is_answered_without_running_anything(bench: Bench) -> None:
    first = bench.verify()
    assert told(first) == [("build", "passed", False), ("test", "passed", False)]

    again = bench.verify()

    assert told(again) == [("build", "passed", True), ("test", "passed", True)]
    assert (again.verified, again.tree, bench.executed()) == (True, first.tree, 2)
    assert again.commit == first.commit == bench.workbench.task(bench.task_id).head_commit
    assert [run.run_id for run in again.runs] == [run.run_id for run in first.runs]


def test_without_the_cache_everything_runs_and_is_known_afterwards(bench: Bench) -> None:
    first, second = bench.verify(), bench.verify(cache=False)

    assert not {run.run_id for run in first.runs} & {run.run_id for run in second.runs}
    assert [run.run_id for run in bench.verify().runs] == [run.run_id for run in second.runs]


def test_a_failure_is_known_too_and_what_follows_it_does_not_run(bench: Bench) -> None:
    """Known after two runs: the first failure may be chance."""
    bench.commit(b"bad\n")
    bench.again({**CHAIN, "after": ("true", ["test"])})

    first, again, second = bench.verify(), bench.verify(), bench.verify()

    assert told(first) == told(again) == [("build", "passed", False), ("test", "failed", False)]
    assert {run.run_id for run in first.runs}.isdisjoint(run.run_id for run in again.runs)
    assert told(second) == [("build", "passed", True), ("test", "failed", True)]
    assert [run.run_id for run in second.runs] == [run.run_id for run in again.runs]
    assert not second.verified


def test_a_deterministic_check_needs_to_fail_only_once(bench: Bench) -> None:
    bench.again({"test": ("exit 1", [])})
    profile = bench.home / "profiles" / "bench.toml"
    profile.write_text(profile.read_text() + "deterministic = true\n")
    bench.close()
    bench.workbench = bench.open()

    assert [told(bench.verify()) for _ in range(2)] == [[("test", "failed", False)], [("test", "failed", True)]]


BUSY = "for i in 1 2 3 4; do timeout 1 sha256sum /dev/zero & done; wait"


def test_pressure_is_part_of_the_record(bench: Bench) -> None:
    """Four programs, one CPU: three of them wait. A kernel without PSI says nothing."""
    bench.again({"busy": (BUSY, [])})

    (run,) = bench.verify().runs

    assert run.verdict is Verdict.PASSED
    if Path("/proc/pressure/cpu").exists():
        assert run.usage.pressure is not None
        assert (run.usage.pressure.cpu_s or 0.0) > 0.2
    else:
        assert run.usage.pressure is None


def test_another_tree_or_another_check_is_another_question(bench: Bench) -> None:
    bench.verify()
    bench.commit(b"good\n\n")
    assert [cached for *_, cached in told(bench.verify())] == [False, False]
    bench.again({**CHAIN, "test": ("grep -qx good built && true", ["build"])})
    assert [cached for *_, cached in told(bench.verify())] == [False, False]  # test needs what build builds


def test_what_ended_at_a_limit_is_never_an_answer(bench: Bench) -> None:
    bench.again({"hungry": ("tail /dev/zero", [])})
    for _ in range(2):
        assert told(bench.verify()) == [("hungry", "oom_killed", False)]


@pytest.mark.parametrize("bench", [APART], indirect=True)
@pytest.mark.parametrize("jobs", [1, 2])
def test_checks_that_do_not_require_each_other_do_not_see_each_other(bench: Bench, jobs: int) -> None:
    """Control: in one room the second fails."""
    assert told(bench.verify(jobs=jobs)) == [("one", "passed", False), ("two", "passed", False)]
    bench.again({**APART, "two": (APART["two"][0], ["one"])})
    assert [verdict for _, verdict, _ in told(bench.verify())] == ["passed", "failed"]


LONG: Scripts = {
    "long": ("echo started; sleep 1000", []),
    "fails": ("echo started; exit 1", []),
}


@pytest.mark.parametrize("bench", [LONG], indirect=True)
def test_the_first_failure_ends_what_runs_beside_it(bench: Bench) -> None:
    found = bench.verify(jobs=2)  # control: without that it would take 1000 s

    verdicts = {run.check_id: run.verdict for run in found.runs}
    assert verdicts.pop("fails") is Verdict.FAILED
    assert set(verdicts.values()) <= {Verdict.KILLED}  # none when it had not begun
    assert not found.verified


@pytest.mark.parametrize(
    "bench", [{"fails": ("exit 1", []), "next": ("true", []), "needs": ("true", ["fails"])}], indirect=True
)
def test_keeping_going_runs_what_does_not_need_the_failure(bench: Bench) -> None:
    for _ in range(2):  # a first failure is not kept
        assert [name for name, *_ in told(bench.verify())] == ["fails"]
    assert told(bench.verify(keep_going=True)) == [("fails", "failed", True), ("next", "passed", False)]


def test_build_output_in_the_task_cannot_make_verify_pass_and_is_named(bench: Bench) -> None:
    bench.commit(b"bad\n")
    bench.again({"test": ("test -e built || cp source built; grep -qx good built", [])})
    (bench.root / "built").write_text("good\n")
    (bench.root / "out" / "deep").mkdir(parents=True)
    for name in ("out/one", "out/deep/two"):
        (bench.root / name).write_text("mine\n")

    fooled = bench.workbench.run_checks(bench.task_id, ["test"])  # control: in the worktree it does
    assert [run.verdict for run in fooled] == [Verdict.PASSED]
    (bench.root / "notes").write_text("later\n")
    (bench.root / "note\x1b[31m\nverified").touch()
    found = bench.verify()

    assert not found.verified
    first, *paths = found.differences
    assert first.startswith("test: passed in the task")
    assert first.endswith("failed in the clean room")
    assert paths == [
        "not committed: note\\nverified (added)",
        "not committed: notes (added)",
        "only in the task: built (ignored)",
        "only in the task: out/ (ignored, 2 files)",
    ]
    for _ in range(2):
        again = bench.verify()
        assert again.differences == found.differences  # a known failure is explained again
    assert again.runs[0].cached


def test_a_failure_that_only_the_task_has_is_explained(bench: Bench) -> None:
    bench.again({"test": ("test ! -e built", [])})
    (bench.root / "built").touch()
    bench.workbench.run_checks(bench.task_id, ["test"])

    found = bench.verify()

    assert found.verified
    assert "failed in the task" in found.differences[0]
    assert found.differences[1:] == ("only in the task: built (ignored)",)


def test_where_task_and_room_agree_nothing_is_explained(bench: Bench) -> None:
    (bench.root / "out").mkdir()
    (bench.root / "out" / "left").touch()
    bench.workbench.run_checks(bench.task_id, ["test"])

    assert bench.verify().differences == ()


def test_no_file_that_tells_them_apart_is_told_too(bench: Bench) -> None:
    """What a task's container keeps from one check to the next."""
    bench.again({"first": ("touch /tmp/made", []), "test": ("test -e /tmp/made", ["first"])})
    own = bench.workbench.run_checks(bench.task_id, ["test"])

    found = bench.verify()

    assert [run.verdict for run in own] == [Verdict.PASSED] * 2  # control: it keeps /tmp
    assert not found.verified
    assert found.differences[1].startswith("no file differs")


@pytest.mark.parametrize("bench", [LONG], indirect=True)
def test_what_fails_on_our_side_ends_what_runs_beside_it_and_keeps_nothing(bench: Bench) -> None:
    """The second check's directory is not there, so its guest cannot be made."""
    profile = bench.home / "profiles" / "bench.toml"
    profile.write_text(profile.read_text() + 'cwd = "missing"\n')
    bench.close()
    bench.workbench = bench.open()

    with refused(ErrorCode.NOT_FOUND, ErrorCode.UNSAFE_PATH):
        bench.verify(jobs=2)

    assert not list((bench.home / "repositories").glob("verdicts/*"))


@pytest.fixture
def interruptible() -> Iterator[None]:
    """A suite in the background of a shell ignores SIGINT: give the test Python's own handler."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("bench", [{"a": ("sleep 1000", []), "b": ("sleep 1000", [])}], indirect=True)
def test_an_interrupt_ends_all_that_runs_at_once(bench: Bench) -> None:
    begun: set[str] = set()
    both = threading.Lock()

    def announce(check: Check, run: CheckRun | None) -> None:
        with both:
            begun.add(check.id)
            if begun == {"a", "b"} and run is None:
                os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        bench.verify(Watch(announce=announce), jobs=2)
    assert bench.executed() == 2


def test_an_interrupt_of_the_command_ends_all_that_runs_at_once(bench: Bench, engine: DockerEngine) -> None:
    bench.again({"a": ("sleep 1000", []), "b": ("sleep 1000", [])})
    process = Command(bench.home).start("verify", bench.task_id, "--jobs", "2")
    task = f"space.sandbox.task={bench.task_id}"
    deadline = time.monotonic() + 120
    while not all(engine.api.containers(filters={"label": [task, f"space.sandbox.check={id_}"]}) for id_ in "ab"):
        assert time.monotonic() < deadline, "they never ran at once"
        time.sleep(0.05)

    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=120)

    assert process.returncode == 130, stderr
    assert "Traceback" not in stderr


def test_two_processes_with_the_same_question_both_get_its_answer(bench: Bench) -> None:
    sandbox = Command(bench.home)
    both = [sandbox.start("verify", bench.task_id, "--json") for _ in range(2)]
    answers = [(*process.communicate(timeout=240), process.returncode) for process in both]

    assert [code for *_, code in answers] == [0, 0], answers
    assert all(json.loads(out)["verified"] for out, *_ in answers)
    assert [cached for *_, cached in told(bench.verify())] == [True, True]


def test_the_command_says_what_is_known_and_runs_it_again_when_told_to(bench: Bench) -> None:
    sandbox = Command(bench.home)
    assert "cached" not in sandbox("verify", bench.task_id).stdout
    known = sandbox("verify", bench.task_id)
    assert (known.code, known.stdout.count("cached")) == (0, 2)
    assert "uncommitted" not in known.stderr
    bench.workbench.write_file(bench.task_id, "more", b"", None)
    assert "1 uncommitted change(s) of the task are not verified" in sandbox("verify", bench.task_id).stderr
    found = sandbox.ok("verify", bench.task_id)  # the only place where a program sees it
    assert (found["verified"], found["uncommitted"]) == (True, 1)
    run_id = bench.workbench.start_verify(bench.task_id).run_id
    assert "1 uncommitted change(s)" in sandbox("check", "wait", run_id).stderr
    assert "cached" not in sandbox("verify", bench.task_id, "--no-cache", "--jobs", "2", "--keep-going").stdout


def test_a_check_and_a_cached_verdict_load_no_sdk(bench: Bench) -> None:
    bench.verify()
    home = ("--home", str(bench.home))
    cached = find_loaded(*home, "verify", bench.task_id)
    fresh, warm = (find_loaded(*home, "check", "run", bench.task_id, "build") for _ in range(2))
    assert cached.stdout.count("cached") == 2
    assert (cached.code, fresh.code, warm.code) == (0, 0, 0)
    assert check_budget(cached, Budget(CLICK | MODELS, 268)) == ""
    # usage over time, results of tests, images, process, tunnels, terminals, sockets and uncharged memory of a guest,
    # missing packages, operations in progress, tables of manifests
    warmed = Budget(CLICK | MODELS | LOCKS | {"defusedxml"}, 279)
    assert check_budget(warm, warmed) == ""
    assert check_budget(fresh, Budget(warm.libraries | {"tenacity"}, 279)) == ""


def test_run_and_verify_share_what_they_know(bench: Bench) -> None:
    bench.verify()

    summary = Command(bench.home).ok("run", str(bench.upstream.root))

    assert [(run["check_id"], run["cached"]) for run in summary["runs"]] == [("build", True), ("test", True)]
