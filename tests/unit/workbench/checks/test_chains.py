"""Which checks share a room, in which order they are asked, and when asking ends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.errors import ErrorCode
from sandbox.models import Check, CheckRun, Verdict
from sandbox.profiles import Profile
from sandbox.workbench.checks.chains import answer_chain, is_verified, split_into_chains
from sandbox.workbench.checks.verify_options import VerifyOptions
from tests.unit.conftest import refused
from tests.unit.store.test_verdicts import made, ran


def check(name: str, *requires: str) -> Check:
    return Check(id=name, label=name, argv=("true",), requires=requires)


SPACE = (check("build"), check("test", "build"), check("e2e", "build"))
MIXED = (check("lint"), check("build"), check("docs"), check("test", "build"))
JOINED = (check("a"), check("b"), check("c", "a", "b"), check("d"))


def names(chains: tuple[tuple[Check, ...], ...]) -> list[str]:
    return [" ".join(c.id for c in chain) for chain in chains]


@pytest.mark.parametrize(
    ("checks", "expected"),
    [
        (SPACE, ["build test e2e"]),
        (MIXED, ["lint", "build test", "docs"]),
        (JOINED, ["a b c", "d"]),
        ((), []),
    ],
    ids=["space", "independent", "joined-late", "none"],
)
def test_checks_that_require_each_other_share_a_chain(checks: tuple[Check, ...], expected: list[str]) -> None:
    assert names(split_into_chains(checks)) == expected


@given(st.lists(st.sets(st.integers(0, 7), max_size=2), max_size=8))
def test_chains_hold_every_check_once_after_what_it_requires(required: list[set[int]]) -> None:
    checks = tuple(check(f"c{n}", *(f"c{r}" for r in sorted(rs) if r < n)) for n, rs in enumerate(required))
    ordered = Profile(name="p", label="p", image="i", check=checks).order_checks([c.id for c in checks])
    chains = split_into_chains(ordered)
    assert sorted(c.id for chain in chains for c in chain) == sorted(c.id for c in checks)
    for chain in chains:
        for n, each in enumerate(chain):
            assert set(each.requires) <= {c.id for c in chain[:n]}


def asked(verdicts: dict[str, Verdict], *, keep_going: bool) -> list[str]:
    """The checks of SPACE that were asked for."""

    def answer(each: Check) -> CheckRun:
        return made(verdicts.get(each.id, Verdict.PASSED), check_id=each.id)

    runs = answer_chain(SPACE, answer, keep_going=keep_going)
    assert runs is not None
    return [run.check_id for run in runs]


@pytest.mark.parametrize("keep_going", [False, True])
def test_asking_goes_on_while_all_pass(keep_going: bool) -> None:
    assert asked({}, keep_going=keep_going) == ["build", "test", "e2e"]


def test_asking_ends_at_the_first_failure() -> None:
    assert asked({"test": Verdict.FAILED}, keep_going=False) == ["build", "test"]
    assert asked({"build": Verdict.TIMED_OUT}, keep_going=False) == ["build"]


def test_keeping_going_asks_for_what_does_not_require_the_failure() -> None:
    assert asked({"test": Verdict.FAILED}, keep_going=True) == ["build", "test", "e2e"]
    assert asked({"build": Verdict.FAILED}, keep_going=True) == ["build"]


def test_one_unknown_answer_makes_the_whole_chain_unknown() -> None:
    known = {"build": made(check_id="build"), "e2e": made(check_id="e2e")}
    assert answer_chain(SPACE, lambda each: known.get(each.id), keep_going=False) is None


def test_a_pass_that_opens_no_gate_does_not_verify() -> None:
    """A service of it had ended, or its command has no exit status. Control: the service ran to the end."""
    checks = (check("test"),)
    assert is_verified([made(services=(ran(),))], checks), "control"
    assert not is_verified([made(services=(ran(ended_early=True),))], checks)
    assert not is_verified([made(exit_code=None)], checks)


def test_no_jobs_are_refused() -> None:
    with refused(ErrorCode.INVALID_INPUT):
        VerifyOptions(jobs=0)
