"""What a kept verdict is bound to, when it is used, and which ones are kept at all."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from sandbox.models import (
    Check,
    CheckRun,
    Limits,
    Pressure,
    ServiceLimits,
    ServiceRule,
    ServiceRun,
    ServiceSetup,
    Usage,
    Verdict,
)
from sandbox.store import verdicts
from sandbox.store.home import Home
from sandbox.store.verdicts import (
    VERDICTS_LOCK,
    Binding,
    doubt_failure,
    find_last_run,
    find_verdict,
    forget_pass,
    is_conclusive,
    save_verdict,
)

TREE, OTHER_TREE = "a" * 40, "b" * 40
CHECK = Check(id="test", label="make test", argv=("make", "<goal>"), env={"A": "1"}, requires=("build",))
PARAMETER = {"name": "goal", "pattern": "test"}
SERVICE = ServiceSetup(
    rule=ServiceRule(name="db", image="redis", ready=("true",), port=6379), image_digest="sha256:3", argv=("serve",)
)
BINDING = Binding(
    tree=TREE,
    image_digest="sha256:1",
    check=CHECK,
    policy="sha256:2",
    runtime="runc",
    platform="linux/x86_64",
    user=(64000, 64000),
    after="f" * 64,
)
DETERMINISTIC = BINDING.model_copy(update={"check": CHECK.model_copy(update={"deterministic": True})})


def made(verdict: Verdict = Verdict.PASSED, exit_code: int | None = 0, **others: Any) -> CheckRun:
    """A run in a clean room that answers `BINDING`."""
    fields: dict[str, Any] = {
        "run_id": "run-1",
        "check_id": "test",
        "task_id": None,
        "verdict": verdict,
        "exit_code": exit_code,
        "signal": None,
        "started_at": datetime(2026, 1, 2, tzinfo=UTC),
        "wall_time_s": 1.5,
        "usage": Usage(limits=Limits()),
        "stdout_tail": "out",
        "stderr_tail": "",
        "stdout_bytes": 3,
        "stderr_bytes": 0,
        "truncated": False,
        "tree": TREE,
        "clean_room": True,
        "cached": False,
        "image_digest": "sha256:1",
        "runtime": "runc",
        "report": None,
    }
    return CheckRun(**fields | others)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    found = Home(tmp_path / "home")
    found.prepare()
    return found


def leaves(value: Any, where: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where each value lies that holds no other, empty containers too."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    below = [leaf for key, inner in items for leaf in leaves(inner, (*where, key))]
    return below or [where]


OTHERS = (
    1,
    2,
    2**24,  # no limit is too low
    False,
    True,
    "x",
    "build",
    OTHER_TREE,
    "filesystem-read",
    "read-only",
    ["build"],
    {"B": "2"},
    None,
    [SERVICE],
    [PARAMETER],
    {"ready": {"port": 8080}},
    {"passed": "^ok (.*)"},
    [{"path": "dist/*"}],
)
"""Values of many types: one of them is another one, whatever a field takes."""


def with_another(where: tuple[Any, ...]) -> Binding:
    """The binding with another value in one place."""
    for value in OTHERS:
        document = BINDING.model_dump(mode="json")
        inner = document
        for key in where[:-1]:
            inner = inner[key]
        inner[where[-1]] = value
        with contextlib.suppress(ValidationError):
            changed = Binding.model_validate(document)
            if changed != BINDING:
                return changed
    pytest.fail(f"no other value is known for {where}")


BOUND = leaves(BINDING.model_dump(mode="json") | {"submodules_with_lfs": []})


@pytest.mark.parametrize("where", BOUND, ids=[".".join(map(str, leaf)) for leaf in BOUND])
def test_whatever_changes_in_a_binding_changes_its_key(where: tuple[Any, ...]) -> None:
    assert with_another(where).key != BINDING.key


def test_an_older_controller_reads_what_it_could_have_written(home: Home) -> None:
    """It refuses unknown fields. Control: a binding with remotes of submodules has another key, and says which."""
    save_verdict(home, BINDING, made())
    stored = json.loads(home.verdict(BINDING.key).read_text())["binding"]
    assert set(stored) == set(Binding.model_fields) - {"submodules_with_lfs"}
    with_lfs = BINDING.model_copy(update={"submodules": True, "submodules_with_lfs": ("https://h/a/b",)})
    save_verdict(home, with_lfs, made())
    assert json.loads(home.verdict(with_lfs.key).read_text())["binding"]["submodules_with_lfs"] == ["https://h/a/b"]
    assert find_verdict(home, with_lfs) is not None


def test_every_field_of_a_check_and_its_limits_is_bound() -> None:
    """Also those that somebody adds later: the key is over the whole definition."""
    bound = {where[1] for where in BOUND if where[0] == "check"}
    assert bound == set(Check.model_fields)
    assert {where[2] for where in BOUND if where[:2] == ("check", "limits")} == set(Limits.model_fields)


WORDS = st.text(alphabet=st.sampled_from(["a", " ", "\0", '"', ",", "\\", "\u00e9", "\U0001f600"]), max_size=4)


@given(st.lists(WORDS, min_size=1, max_size=3), st.lists(WORDS, min_size=1, max_size=3))
def test_two_commands_have_one_key_only_when_they_are_the_same(first: list[str], second: list[str]) -> None:
    keys = [
        BINDING.model_copy(update={"check": CHECK.model_copy(update={"argv": tuple(argv)})}).key
        for argv in (first, second)
    ]
    assert (keys[0] == keys[1]) == (first == second)


def test_a_key_is_the_same_in_another_process_and_order_of_the_environment() -> None:
    one, two = ({"A": "1", "B": "2"}, {"B": "2", "A": "1"})
    keys = {BINDING.model_copy(update={"check": CHECK.model_copy(update={"env": env})}).key for env in (one, two)}
    assert len(keys) == 1


@pytest.mark.parametrize("run", [made(), made(Verdict.FAILED, 3)], ids=["passed", "failed"])
def test_what_a_check_decided_itself_is_kept_and_found_as_cached(home: Home, run: CheckRun) -> None:
    save_verdict(home, DETERMINISTIC, run)
    assert find_verdict(home, DETERMINISTIC) == run.model_copy(update={"cached": True})


def later(seconds: float, verdict: Verdict = Verdict.FAILED, **others: Any) -> CheckRun:
    """A run that begins so many seconds after `made` does; each takes 1.5 s."""
    started_at = made().started_at + timedelta(seconds=seconds)
    return made(
        verdict, 0 if verdict is Verdict.PASSED else 1, run_id=f"run-{seconds}", started_at=started_at, **others
    )


def served(home: Home, *runs: CheckRun, binding: Binding = BINDING) -> str | None:
    """The run that answers after these."""
    for run in runs:
        save_verdict(home, binding, run)
    found = find_verdict(home, binding)
    return found.run_id if found else None


def test_s03_a_first_failure_answers_nothing_and_is_remembered(home: Home) -> None:
    first = later(0)
    assert served(home, first) is None
    assert find_last_run(home, BINDING) == first.model_copy(update={"cached": True})


def test_s03_a_second_failure_is_served_and_so_are_those_after_it(home: Home) -> None:
    assert served(home, later(0), later(9)) == "run-9"
    assert served(home, later(9.5)) == "run-9.5", "it failed twice before"


def test_s03_a_pass_replaces_a_first_failure_and_a_pass_and_a_failure_are_not_two(home: Home) -> None:
    assert served(home, later(0), later(9, Verdict.PASSED)) == "run-9"
    assert served(home, later(20)) is None
    assert served(home, later(30)) == "run-30"


@pytest.mark.parametrize("seconds", [-1, 0, 1, 1.5])
def test_s03_runs_that_overlap_had_the_same_busy_host(home: Home, seconds: float) -> None:
    assert served(home, later(0), later(seconds)) is None
    assert served(home, later(60)) == "run-60"


def test_s03_a_run_that_a_limit_ended_confirms_nothing(home: Home) -> None:
    assert served(home, later(0), later(9, Verdict.TIMED_OUT), later(20)) is None


@pytest.mark.parametrize(
    ("usage", "kept"),
    [
        pytest.param(Usage(limits=Limits()), True, id="quiet"),
        pytest.param(Usage(limits=Limits(), pressure=Pressure(of="host", cpu_s=60, memory_s=0.2)), True, id="busy"),
        pytest.param(Usage(limits=Limits(), pressure=Pressure(of="host", memory_s=1)), False, id="short of memory"),
        pytest.param(Usage(limits=Limits(), forks_refused=1), False, id="a fork was refused"),
    ],
)
def test_s03_a_failure_counts_unless_the_host_failed_it(home: Home, usage: Usage, kept: bool) -> None:
    """Once for a deterministic check, else as either of two; further ones confirm each other when they are quiet."""
    assert (served(home, later(0, usage=usage), binding=DETERMINISTIC) == "run-0") is kept
    assert (served(home, later(0), later(9, usage=usage)) == "run-9") is kept, "the second"
    assert (served(home, later(20, Verdict.PASSED), later(30, usage=usage), later(40)) == "run-40") is kept, "the first"
    assert served(home, later(50)) == "run-50"
    assert (served(home, later(60, usage=usage)) == "run-60") is kept, "after two that count"


def test_s03_a_check_that_reached_its_own_limit_of_processes_fails_twice(home: Home) -> None:
    """Also a deterministic one: how many it has at once is chance. Control: a fork that the host refused."""
    own, of_host = (Usage(limits=Limits(), forks_refused=1, own_pids_limit=known) for known in (True, False))
    assert served(home, later(0, usage=own), binding=DETERMINISTIC) is None
    assert served(home, later(9, usage=own), binding=DETERMINISTIC) == "run-9"
    assert served(home, later(0, usage=own), later(9, usage=of_host)) is None, "control"
    assert served(home, later(20, usage=own)) is None
    assert served(home, later(30, usage=own)) == "run-30"


@pytest.mark.parametrize("failures", [1, 2, 3])
def test_s03_a_pass_that_is_no_evidence_starts_the_count_of_failures_again(home: Home, failures: int) -> None:
    """The failure stays the last run, so a gate stays closed. Control: without the pass the next failure is served."""
    runs = [later(10 * number) for number in range(failures)]
    assert served(home, *runs, later(90)) == "run-90"
    served(home, later(95, Verdict.PASSED), *runs)
    doubt_failure(home, BINDING)
    assert find_verdict(home, BINDING) is None
    assert find_last_run(home, BINDING) == runs[-1].model_copy(update={"cached": True})
    assert served(home, later(90)) is None, "the first one after the pass"
    assert served(home, later(99)) == "run-99"


def test_a_pass_that_is_no_evidence_changes_no_other_record(home: Home) -> None:
    doubt_failure(home, BINDING)
    assert find_last_run(home, BINDING) is None
    assert served(home, later(0, Verdict.PASSED)) == "run-0"
    doubt_failure(home, BINDING)
    assert served(home) == "run-0"
    assert "passed_since" not in home.verdict(BINDING.key).read_text(), "an older controller would refuse it"


@pytest.mark.parametrize("failures", [1, 2])
@pytest.mark.parametrize("seconds", [-20, -1, 0, 1, 1.5])
def test_a_pass_that_began_before_a_failure_had_ended_does_not_replace_it(
    home: Home, failures: int, seconds: float
) -> None:
    """It may end last, and was the luckier one. Control: a pass that began after that."""
    last = later(10 * failures)
    served(home, *[later(10 * number) for number in range(1, failures)], last)
    assert served(home, later(10 * failures + seconds, Verdict.PASSED, wall_time_s=90)) is None
    assert find_last_run(home, BINDING) == last.model_copy(update={"cached": True})
    assert served(home, later(90)) is None, "the first failure after a pass"
    assert served(home, later(99, Verdict.PASSED)) == "run-99", "control"


def test_a_failure_replaces_a_pass_beside_it_whichever_is_stored_first(home: Home) -> None:
    assert served(home, later(5, Verdict.PASSED), later(1)) is None
    found = find_last_run(home, BINDING)
    assert found is not None
    assert found.run_id == "run-1"


@pytest.mark.parametrize(
    ("first", "change"),
    [
        (Verdict.FAILED, lambda home: save_verdict(home, BINDING, later(9, Verdict.PASSED))),
        (Verdict.FAILED, lambda home: doubt_failure(home, BINDING)),
        (Verdict.PASSED, lambda home: forget_pass(home, BINDING)),
    ],
)
def test_a_change_waits_for_one_that_began_to_look(home: Home, first: Verdict, change: Callable[[Home], None]) -> None:
    """Another process has read the record, and has not written its own. Control: it does change the record."""
    save_verdict(home, BINDING, later(0, first))
    before = home.verdict(BINDING.key).read_bytes()
    other = threading.Thread(target=change, args=(home,))
    with home.locked(VERDICTS_LOCK):
        other.start()
        other.join(0.1)
        assert other.is_alive()
        assert home.verdict(BINDING.key).read_bytes() == before
    other.join()
    path = home.verdict(BINDING.key)
    assert not path.exists() or path.read_bytes() != before, "control"


def test_a_process_that_hangs_with_the_lock_costs_a_pass_and_no_failure(
    home: Home, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(verdicts, "_LOCK_WAIT_S", 0.0)
    with home.locked(VERDICTS_LOCK):
        assert served(home, later(0, Verdict.PASSED)) is None
        assert "is not cached" in caplog.text
        save_verdict(home, BINDING, later(9))
        assert find_last_run(home, BINDING) is not None
    assert served(home, later(20, Verdict.PASSED)) == "run-20", "control"
    with home.locked(VERDICTS_LOCK):
        assert served(home, later(30)) is None, "the failure is stored"
    assert served(home, later(40, Verdict.PASSED)) == "run-40"
    with home.locked(VERDICTS_LOCK):
        forget_pass(home, BINDING)
    assert find_last_run(home, BINDING) is None


def test_a_record_without_the_mark_of_a_first_failure_is_not_believed(home: Home) -> None:
    save_verdict(home, BINDING, later(0))
    path = home.verdict(BINDING.key)
    document = json.loads(path.read_text())
    assert document.pop("first_failure") is True
    path.write_text(json.dumps(document))
    assert (find_verdict(home, BINDING), find_last_run(home, BINDING)) == (None, None)


UNDECIDED = {
    "timed-out": made(Verdict.TIMED_OUT, 137, signal=9),
    "oom-killed": made(Verdict.OOM_KILLED, 137, signal=9),
    "killed": made(Verdict.KILLED, None),
    "output-limit": made(Verdict.OUTPUT_LIMIT, 1),
    "disk-limit": made(Verdict.DISK_LIMIT, 1),
    "could-not-be-started": made(Verdict.FAILED, 126),
    "by-a-signal": made(Verdict.FAILED, None, signal=11),
    "by-a-signal-as-a-shell-says-it": made(Verdict.FAILED, 139, signal=11),
}


@pytest.mark.parametrize("run", UNDECIDED.values(), ids=UNDECIDED)
def test_what_a_limit_or_a_signal_decided_is_not_kept_and_takes_a_luckier_answer_away(
    home: Home, run: CheckRun
) -> None:
    save_verdict(home, BINDING, made())
    assert find_verdict(home, BINDING) is not None
    save_verdict(home, BINDING, run)
    assert not is_conclusive(run)
    assert find_verdict(home, BINDING) is None


@pytest.mark.parametrize("run", UNDECIDED.values(), ids=UNDECIDED)
@pytest.mark.parametrize("failures", [1, 2])
def test_s231_what_a_limit_or_a_signal_decided_leaves_a_failure_a_failure(
    home: Home, run: CheckRun, failures: int
) -> None:
    """It answers no request any more, and confirms nothing. Control: a pass is deleted, and replaces the failure."""
    undecided = run.model_copy(update={"started_at": later(50).started_at})
    served(home, *[later(10 * number) for number in range(failures)], undecided)
    assert find_verdict(home, BINDING) is None
    assert find_last_run(home, BINDING) == undecided.model_copy(update={"cached": True})
    assert served(home, later(60)) is None, "a first failure"
    assert served(home, undecided, later(90, Verdict.PASSED)) == "run-90", "control"
    save_verdict(home, BINDING, undecided)
    assert find_last_run(home, BINDING) is None, "control"


def test_s231_a_pass_that_is_not_conclusive_replaces_no_failure(home: Home) -> None:
    """A service of it had ended. Control: the next pass does."""
    failed = made(Verdict.FAILED, 1, services=(ran(),))
    save_verdict(home, SERVED, failed)
    early = later(9, Verdict.PASSED, services=(ran(ended_early=True),))
    save_verdict(home, SERVED, early)
    assert find_last_run(home, SERVED) == failed.model_copy(update={"cached": True})
    assert find_verdict(home, SERVED) is None
    save_verdict(home, SERVED, later(20, Verdict.PASSED, services=(ran(),)))
    assert find_verdict(home, SERVED) is not None


FOREIGN = {
    "from-a-worktree": made(clean_room=False),
    "of-another-tree": made(tree=OTHER_TREE),
    "of-another-image": made(image_digest="sha256:9"),
    "of-another-check": made(check_id="build"),
    "of-another-runtime": made(runtime="runsc"),
    "an-answer-itself": made(cached=True),
}


@pytest.mark.parametrize("run", FOREIGN.values(), ids=FOREIGN)
def test_a_run_that_is_no_answer_to_the_question_is_neither_kept_nor_believed(home: Home, run: CheckRun) -> None:
    save_verdict(home, BINDING, run)
    assert find_verdict(home, BINDING) is None
    save_verdict(home, BINDING, made())
    path = home.verdict(BINDING.key)
    document = json.loads(path.read_text())
    path.write_text(json.dumps(document | {"run": run.model_dump(mode="json")}))
    assert find_verdict(home, BINDING) is None


DAMAGED = {
    "empty": b"",
    "cut": b'{"schema_version": 1, "bind',
    "no-json": b"\xff\xfe",
    "a-list": b"[]",
    "another-version": b'{"schema_version": 99}',
    "no-record": b'{"schema_version": 1}',
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_record_is_ignored_and_written_again(home: Home, content: bytes) -> None:
    save_verdict(home, BINDING, made())
    path = home.verdict(BINDING.key)
    path.write_bytes(content)
    assert find_verdict(home, BINDING) is None
    save_verdict(home, BINDING, made())
    assert find_verdict(home, BINDING) is not None


def test_a_record_under_another_name_is_not_believed(home: Home) -> None:
    save_verdict(home, BINDING, made())
    other = BINDING.model_copy(update={"policy": "sha256:3"})
    home.verdict(BINDING.key).rename(home.verdict(other.key))
    assert find_verdict(home, other) is None


def test_a_home_that_takes_no_verdict_costs_the_answer_only(home: Home, caplog: pytest.LogCaptureFixture) -> None:
    home.verdict(BINDING.key).parent.touch()  # a file where the folder should be: nobody can write in there, root too
    save_verdict(home, BINDING, made())
    assert "is not cached" in caplog.text
    assert find_verdict(home, BINDING) is None


SERVED = BINDING.model_copy(update={"services": (SERVICE,)})


def ran(*, ended_early: bool = False, digest: str = "sha256:3") -> ServiceRun:
    return ServiceRun(
        name="db",
        image_digest=digest,
        ready_after_s=0.1,
        ended_early=ended_early,
        output_bytes=0,
        limits=ServiceLimits(),
    )


@pytest.mark.parametrize(
    ("services", "cached"),
    [((ran(),), True), ((ran(ended_early=True),), False), ((ran(digest="sha256:4"),), False), ((), False)],
    ids=["as bound", "ended before the check", "of another image", "none"],
)
def test_a_verdict_is_cached_if_its_services_ran_to_the_end(
    tmp_path: Path, services: tuple[ServiceRun, ...], cached: bool
) -> None:
    home = Home(tmp_path)
    home.prepare()
    save_verdict(home, SERVED, made(services=services))
    assert (find_verdict(home, SERVED) is not None) == cached
