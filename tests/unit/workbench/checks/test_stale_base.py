"""THREATS S229: a base that was red, and is mended on the branch that the task goes to, excuses no failure."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sandbox.agent.tool_hints import replace_commands
from sandbox.errors import ErrorCode, SandboxError
from sandbox.gate import DeliveryStep
from sandbox.models import Check, SyncState, TestOutcome, Verdict
from sandbox.store.home import Home
from sandbox.workbench import VerifyOptions
from sandbox.workbench.checks import differential, tree_bindings
from sandbox.workbench.checks.gate import TreeGate
from sandbox.workbench.checks.guest_setup import GuestSetup
from sandbox.workbench.delivery import description
from tests.unit.conftest import Upstream, refused
from tests.unit.desk import Desk
from tests.unit.workbench.checks.scripted_rooms import BAD, GOOD, ScriptedRooms, Tests
from tests.unit.workbench.checks.test_verify import PROFILE

_SAVE, _FIND_VERDICTS = differential._save, differential._find_verdicts
BROKEN, MENDED = b"one\nbroken\n", b"mended\n"
BOTH_BAD: Tests = {"a": TestOutcome.FAILED, "b": TestOutcome.FAILED}


class RedMain:
    """A repository whose main branch is red: `d/e/x` breaks the test `a`, and so does `BROKEN` in the file `f`."""

    def __init__(self, upstream: Upstream, home: Path, monkeypatch: pytest.MonkeyPatch, *, settings: str = "") -> None:
        (home / "profiles").mkdir(parents=True)
        (home / "profiles" / "own.toml").write_text(PROFILE)
        (home / "config.toml").write_text('[gate]\nrequire = "push"\naccept = "no-new-failures"\n' + settings)
        self.desk, self.said = Desk(upstream, home), dict[str, list[Tests | Verdict]]()
        self.red = self.tip
        ScriptedRooms(Home(home), monkeypatch, self._say)
        monkeypatch.setattr(differential, "_save", _SAVE)
        monkeypatch.setattr(differential, "_find_verdicts", _FIND_VERDICTS)
        monkeypatch.setattr(description, "_wheelhouse", lambda *_: "")
        monkeypatch.setattr(tree_bindings, "_resolve_setups", lambda *_: {"": GuestSetup("sha256:1", "runc")})

    @property
    def tip(self) -> str:
        return self.desk.git("rev-parse", "refs/remotes/origin/main").strip()

    def _say(self, tree: str, _check: Check, number: int) -> Tests | Verdict:
        if tree in self.said:
            return self.said[tree][min(number, len(self.said[tree]) - 1)]
        is_broken = self.desk.git("show", f"{tree}:f").encode() == BROKEN
        return BAD if is_broken or self.desk.git("show", f"{tree}:d/e/x").encode() != MENDED else GOOD

    def advance(self, path: str, content: bytes) -> str:
        """A commit of others on the main branch, which this home fetches."""
        self.desk.upstream.write(path, content)
        self.desk.upstream.commit()
        self.desk.workbench.clone(str(self.desk.upstream.root))
        return self.tip

    def begin(self, ref: str, **files: bytes) -> None:
        """A task at a commit or branch, with a commit of its own."""
        desk = self.desk
        desk.task = desk.workbench.create_task(desk.repo_id, "work", ref)
        desk.root = desk.worktree(desk.task)
        self.change(files)

    def change(self, files: dict[str, bytes]) -> None:
        for path, content in files.items():
            self.desk.write(path, content)
        self.desk.workbench.commit(self.desk.task.id, "a change")

    def compare(self) -> bool | None:
        return self.desk.workbench.verify(self.desk.task.id, None, VerifyOptions(against="base")).no_new_failures

    @property
    def gate(self) -> TreeGate:
        workbench = self.desk.workbench
        return TreeGate(workbench._services, workbench.task(self.desk.task.id))

    @property
    def opens(self) -> bool:
        """Any other error than that of a closed gate is raised."""
        try:
            self.gate.require_open(DeliveryStep.PUSH)
        except SandboxError as error:
            if error.code is not ErrorCode.GATE_CLOSED:
                raise
            return False
        return True

    def describe(self) -> str:
        workbench = self.desk.workbench
        return description.gather_facts(workbench._services, workbench.task(self.desk.task.id)).gate


@contextmanager
def _closed(main: RedMain) -> Iterator[SandboxError]:
    with refused(ErrorCode.GATE_CLOSED) as caught:
        main.gate.require_open(DeliveryStep.PUSH)
    yield caught.value


@pytest.fixture
def main(
    upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[RedMain]:
    """With a parameter: further settings of the gate."""
    found = RedMain(upstream, tmp_path / "home", monkeypatch, settings=getattr(request, "param", ""))
    yield found
    found.desk.workbench.__exit__(None, None, None)


def test_s229_a_task_at_an_old_red_commit_is_not_excused_by_it(main: RedMain) -> None:
    """Control: before the branch is mended, the same comparison opens the gate."""
    main.begin(main.red, f=BROKEN)
    assert main.compare()
    assert main.opens, "control"
    assert main.describe().endswith("satisfied.")
    green = main.advance("d/e/x", MENDED)
    assert main.compare(), "void: the base does not excuse it"
    task_id = main.desk.task.id
    with _closed(main) as error:
        assert error.hint == (
            f"Merge that branch and compare again: `sandbox task sync {task_id} --onto main`, then "
            f"`sandbox verify {task_id} --against base`."
        )
        assert f"the base is {main.red[:12]}, and main is at {green[:12]}" in error.details
        told = "`space_repo_sync` (`onto`: main), then `space_repo_verify` (`against`: base)."
        assert replace_commands(error.hint).endswith(told)
    assert main.describe().endswith("not satisfied.")
    assert main.desk.workbench.sync_task(task_id, "main").base_commit == green
    assert main.compare() is False
    assert not main.opens


def test_s229_a_task_that_mends_what_it_meets_is_let_through_once_it_is_compared_again(main: RedMain) -> None:
    """A commit of the branch that mends nothing closes the gate, too: only a comparison says that it mends nothing."""
    main.begin("main", new=b"1\n")
    assert main.compare()
    assert main.opens, "control"
    main.advance("other", b"1\n")
    with _closed(main) as error:
        assert f"`sandbox task sync {main.desk.task.id}`, then" in error.hint, "it began at the branch"
    main.desk.workbench.sync_task(main.desk.task.id)
    assert main.compare()
    assert main.opens


def test_s229_a_base_with_the_files_of_the_branch_excuses(main: RedMain) -> None:
    """A commit without a change, such as a merge, mends nothing."""
    main.begin("main", new=b"1\n")
    assert main.compare()
    main.desk.upstream.git("commit", "-q", "--allow-empty", "-m", "nothing")
    main.desk.workbench.clone(str(main.desk.upstream.root))
    assert main.tip != main.red
    assert main.opens


@pytest.mark.parametrize("own", ["a flaky test", "every test passes"])
def test_s229_a_comparison_without_excuses_needs_no_newer_base(main: RedMain, own: str) -> None:
    """Control: with one excused failure beside the flaky one, it does."""
    green = main.advance("d/e/x", MENDED)
    main.begin(green, new=b"1\n")
    tree = main.gate.tree
    main.said[tree] = [BAD, GOOD] if own == "a flaky test" else [GOOD]
    main.advance("other", b"1\n")
    assert main.compare()
    assert main.opens
    main.begin(main.red, new=b"2\n")
    main.said[main.gate.tree] = [BOTH_BAD, BAD]
    assert main.compare(), "void"
    assert not main.opens


def test_s229_a_branch_that_is_gone_leaves_the_default_branch_to_compare_with(main: RedMain) -> None:
    upstream, desk = main.desk.upstream, main.desk
    upstream.git("checkout", "-q", "-b", "release")
    main.advance("other", b"1\n")
    upstream.git("checkout", "-q", "main")
    main.begin("release", new=b"1\n")
    assert main.compare()
    assert main.opens, "control: it is the branch that the task goes to, and the default one"
    upstream.git("tag", "kept", "release")
    upstream.git("branch", "-q", "-D", "release")
    desk.workbench.clone(str(upstream.root))
    with _closed(main) as error:
        assert f"`sandbox task sync {desk.task.id} --onto BRANCH`" in error.hint
    desk.workbench.sync_task(desk.task.id, "main")
    assert desk.workbench.task(desk.task.id).base_branch == "main"
    assert main.compare()
    assert main.opens


def _move_to_a_red_branch(main: RedMain) -> None:
    """A task of a green main branch that breaks a test, then goes to a branch where it is broken, too."""
    upstream, desk = main.desk.upstream, main.desk
    main.advance("d/e/x", MENDED)
    upstream.git("checkout", "-q", "-b", "release/1")
    upstream.write("f", BROKEN)
    upstream.commit()
    upstream.git("checkout", "-q", "main")
    desk.workbench.clone(str(upstream.root))
    main.begin("main", f=BROKEN)
    assert main.compare() is False
    desk.workbench.sync_task(desk.task.id, "release/1")
    assert main.compare(), "void"


def test_s229_a_red_branch_that_the_task_was_moved_to_excuses_nothing(main: RedMain) -> None:
    """An agent chooses it, by a sync. Control: a red default branch excuses (above)."""
    _move_to_a_red_branch(main)
    with _closed(main) as error:
        assert error.hint.startswith("The task goes to release/1, which excuses no failure: mend them.")


_NAMED = pytest.mark.parametrize("main", ['excusing_branches = ["release/*"]'], indirect=True)


@_NAMED
def test_s229_a_branch_that_a_person_named_excuses(main: RedMain) -> None:
    _move_to_a_red_branch(main)
    assert main.opens


@_NAMED
def test_s229_a_named_branch_excuses_with_its_own_files_only(main: RedMain) -> None:
    """What was red there is mended since."""
    _move_to_a_red_branch(main)
    upstream, desk = main.desk.upstream, main.desk
    upstream.git("checkout", "-q", "release/1")
    upstream.write("f", b"mended\n")
    upstream.commit()
    upstream.git("checkout", "-q", "main")
    desk.workbench.clone(str(upstream.root))
    with _closed(main) as error:
        assert f"`sandbox task sync {desk.task.id}" in error.hint


def test_the_hint_for_a_task_that_began_at_a_tag_names_no_branch(main: RedMain) -> None:
    """It may go to a branch of that release. Control: a commit of the default branch (above)."""
    main.desk.upstream.git("tag", "v1")
    main.advance("other", b"1\n")
    main.begin("v1", new=b"1\n")
    assert main.compare(), "void"
    with _closed(main) as error:
        assert f"`sandbox task sync {main.desk.task.id} --onto BRANCH`" in error.hint


def test_s229_a_base_ahead_of_the_branch_excuses_none_and_a_sync_moves_it_back(main: RedMain) -> None:
    """It is on another branch of the remote, red by itself: main is not. Control: main is red, too."""
    upstream, desk = main.desk.upstream, main.desk
    green = main.advance("d/e/x", MENDED)
    upstream.git("checkout", "-q", "-b", "red")
    upstream.write("f", BROKEN)
    red = upstream.commit()
    upstream.git("checkout", "-q", "main")
    desk.workbench.clone(str(upstream.root))
    main.begin(red, new=b"1\n")
    assert main.compare()
    assert not main.opens
    synced = desk.workbench.sync_task(desk.task.id, "main")
    assert (synced.state, synced.base_commit) == (SyncState.SYNCED, green)
    assert desk.workbench.task(desk.task.id).base_branch == "main"
    assert desk.workbench.sync_task(desk.task.id).state is SyncState.UP_TO_DATE
    assert main.compare() is False
    assert not main.opens
