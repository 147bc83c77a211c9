"""The flaky tests of a repository, and comparisons, as stored."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sandbox.errors import ErrorCode
from sandbox.models import FlakyTest, TreeComparison
from sandbox.store import flaky_tests
from sandbox.store.flaky_tests import forget_flaky_tests, list_flaky_tests, record_flaky_tests
from sandbox.store.home import Home
from sandbox.store.kept_comparisons import find_comparison, save_comparison
from tests.unit.conftest import refused

NOW = datetime(2026, 1, 2, tzinfo=UTC)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    found = Home(tmp_path / "home")
    found.prepare()
    return found


def seen(test: str, at: datetime = NOW, ran: int = 3) -> FlakyTest:
    return FlakyTest(
        check_id="test", test=test, ran=ran, failed=1, tree="a" * 40, first_seen=at, last_seen=at, remark="chance"
    )


def test_runs_add_up_and_the_first_sight_is_kept(home: Home) -> None:
    later = NOW + timedelta(days=1)
    record_flaky_tests(home, "repo", [seen("a"), seen("b")])
    record_flaky_tests(home, "repo", [seen("a", later)])
    first, second = list_flaky_tests(home, "repo")
    assert (first.test, first.ran, first.failed, first.rate) == ("a", 6, 2, 0.333)
    assert (first.first_seen, first.last_seen, second.test) == (NOW, later, "b")
    assert list_flaky_tests(home, "other") == ()


def test_one_or_all_are_forgotten(home: Home) -> None:
    record_flaky_tests(home, "repo", [seen("a"), seen("b"), seen("c")])
    assert [one.test for one in forget_flaky_tests(home, "repo", "a")] == ["a"]
    assert forget_flaky_tests(home, "repo", "a") == ()
    assert len(forget_flaky_tests(home, "repo", None)) == 2
    assert list_flaky_tests(home, "repo") == ()


def test_the_record_is_bounded_and_a_damaged_one_is_an_error(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flaky_tests, "MOST_TESTS", 2)
    record_flaky_tests(home, "repo", [seen(str(n), NOW + timedelta(hours=n)) for n in range(4)])
    assert [one.test for one in list_flaky_tests(home, "repo")] == ["3", "2"]
    home.flaky_tests("repo").write_text('{"schema_version": 1, "tests": [{}]}')
    with refused(ErrorCode.INTERNAL):
        list_flaky_tests(home, "repo")


def test_a_comparison_is_found_by_what_both_sides_are_bound_to(home: Home) -> None:
    found = TreeComparison(against="base", commit="b" * 40, tree="a" * 40, checks=(), no_new_failures=True)
    save_comparison(home, ["k1"], ["k2", "k3"], found, {})
    assert find_comparison(home, ["k1"], ["k2", "k3"], {}) == found
    for before, after in ((["k1"], ["k2"]), (["k1", "k2"], ["k3"]), (["k2", "k3"], ["k1"]), ([], [])):
        assert find_comparison(home, before, after, {}) is None
    (path,) = home.verdict("x").parent.iterdir()
    text = path.read_text()
    path.write_text(text.replace('"k1"', '"k9"'))
    assert find_comparison(home, ["k1"], ["k2", "k3"], {}) is None, "stored under another name"
    path.write_text("no json")
    assert find_comparison(home, ["k1"], ["k2", "k3"], {}) is None
