"""What a push that needs no verified tree records about the task's last verification of the tree."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.cli import deliver
from sandbox.models import CheckRun, Verdict
from sandbox.store import journal
from sandbox.store.home import Home
from sandbox.workbench import VerifyOptions
from sandbox.workbench.checks import repetition, verify
from tests.unit.conftest import Upstream
from tests.unit.desk import Desk
from tests.unit.receipt_samples import made_run

HEAD = """
label = "Own"
image = "build"
[[detect.all]]
file = "f"
matches = "one"
"""
CHECK = """
[[check]]
id = "{0}"
label = "{0}"
argv = ["true"]
shuffle = {{ SEED = "<seed>" }}
"""
NAMES = [f"c{number}" for number in range(21)]
ALL = dict.fromkeys(NAMES, Verdict.PASSED)
LAST_FAILS = ALL | {NAMES[-1]: Verdict.FAILED}
STOPPED = dict.fromkeys(NAMES[:1], Verdict.PASSED)


@pytest.fixture
def desk(upstream: Upstream, tmp_path: Path) -> Iterator[Desk]:
    (tmp_path / "home" / "profiles").mkdir(parents=True)
    (tmp_path / "home" / "profiles" / "own.toml").write_text(HEAD + "".join(map(CHECK.format, NAMES)))
    found = Desk(upstream, tmp_path / "home")
    found.write("new", b"1\n")
    found.workbench.commit(found.task.id, "change")
    yield found
    found.workbench.__exit__(None, None, None)


def verify_as(desk: Desk, verdicts: dict[str, Verdict], monkeypatch: pytest.MonkeyPatch, shuffle: int | None) -> bool:
    tree = desk.workbench.snapshot(desk.task.id).tree

    def run(*_: object) -> tuple[CheckRun, ...]:
        return tuple(made_run(name, verdict, tree=tree) for name, verdict in verdicts.items())

    for module in (verify, repetition):
        monkeypatch.setattr(module, "run_in_rooms", run)
    monkeypatch.setattr(verify, "explain_disagreements", lambda *_: ())
    return desk.workbench.verify(desk.task.id, None, VerifyOptions(shuffle=shuffle)).verified


@pytest.mark.parametrize(
    ("rounds", "recorded", "warns"),
    [
        pytest.param([], (None, "not_asked"), False, id="none"),
        pytest.param([(ALL, None)], (True, ""), False, id="passed"),
        pytest.param([(LAST_FAILS, None)], (False, ""), True, id="the last of 21 checks failed"),
        pytest.param([(STOPPED, None)], (False, ""), True, id="stopped after a pass"),
        pytest.param([(ALL, 7)], (None, "not_asked"), False, id="with shuffled tests"),
        pytest.param([(LAST_FAILS, None), (ALL, 7)], (False, ""), True, id="failed, then with shuffled tests"),
        pytest.param([(LAST_FAILS, None), (ALL, None)], (True, ""), False, id="failed, then passed"),
    ],
)
def test_a_push_records_what_the_last_verification_of_its_tree_said(
    rounds: list[tuple[dict[str, Verdict], int | None]],
    recorded: tuple[bool | None, str],
    warns: bool,
    desk: Desk,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for verdicts, shuffle in rounds:
        assert verify_as(desk, verdicts, monkeypatch, shuffle) is (verdicts is ALL)
    desk.workbench.push(desk.task.id)
    sent = desk.workbench.log(desk.task.id, limit=1)[0].sent
    assert sent is not None
    assert (sent.gate.verified, sent.gate.unknown) == recorded
    monkeypatch.setattr(deliver, "add_home", lambda line: line)
    assert ("is not verified" in deliver._find_warning(desk.workbench, desk.task.id)) is warns


def test_an_entry_of_an_older_version_says_nothing(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its names were cut. Control: the same entry with the fact."""
    verify_as(desk, ALL, monkeypatch, None)
    entry = desk.workbench.log(desk.task.id, limit=1)[0]
    assert entry.facts == {"verified": "yes"}
    for facts, verified in (({}, None), (entry.facts, True)):
        journal.append_entry(Home(desk.home), desk.task.id, entry.model_copy(update={"facts": facts}))
        assert desk.workbench.push(desk.task.id).commit
        sent = desk.workbench.log(desk.task.id, limit=1)[0].sent
        assert sent is not None
        assert sent.gate.verified is verified
