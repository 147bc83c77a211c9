"""The flaky tests of each repository: a file, bounded, written under a lock."""

from __future__ import annotations

from collections.abc import Iterable

from sandbox.models.flaky import FlakyTest
from sandbox.models.model import Model
from sandbox.private_folders import make_private
from sandbox.store.home import Home, read_record, write_json

MOST_TESTS = 1000
"""How many tests of a repository are kept: those that were seen last."""


class _FlakyRecord(Model):
    tests: tuple[FlakyTest, ...] = ()


def list_flaky_tests(home: Home, repo_id: str) -> tuple[FlakyTest, ...]:
    """The tests of a repository, the last seen first. Raises: `internal` for a damaged record."""
    record = read_record(home.flaky_tests(repo_id), _FlakyRecord)
    return () if record is None else record.tests


def record_flaky_tests(home: Home, repo_id: str, seen: Iterable[FlakyTest]) -> None:
    """Add what was seen on a tree to what is known of these tests."""
    with home.locked(f"flaky-{repo_id}"):
        known = {(test.check_id, test.test): test for test in list_flaky_tests(home, repo_id)}
        for test in seen:
            before = known.pop((test.check_id, test.test), None)
            known[(test.check_id, test.test)] = test if before is None else _add(before, test)
        _write(home, repo_id, known.values())


def forget_flaky_tests(home: Home, repo_id: str, test: str | None) -> tuple[FlakyTest, ...]:
    """Delete what is known of one test, in all checks, or of all tests; returns it."""
    with home.locked(f"flaky-{repo_id}"):
        known = list_flaky_tests(home, repo_id)
        gone = tuple(one for one in known if test is None or one.test == test)
        if gone:
            _write(home, repo_id, [one for one in known if one not in gone])
    return gone


def _add(before: FlakyTest, seen: FlakyTest) -> FlakyTest:
    return seen.model_copy(
        update={
            "ran": before.ran + seen.ran,
            "failed": before.failed + seen.failed,
            "first_seen": before.first_seen,
        }
    )


def _write(home: Home, repo_id: str, tests: Iterable[FlakyTest]) -> None:
    newest = sorted(tests, key=lambda test: test.last_seen, reverse=True)[:MOST_TESTS]
    path = home.flaky_tests(repo_id)
    make_private(path.parent)
    document = _FlakyRecord(tests=tuple(newest)).model_dump(mode="json", exclude={"tests": {"__all__": {"rate"}}})
    write_json(path, document)
