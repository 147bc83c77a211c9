"""Subjects of commits as anybody may have written them."""

from __future__ import annotations

from collections.abc import Callable

from sandbox.errors import ErrorCode
from sandbox.git.log import (
    MESSAGES_BYTES,
    SUBJECT_BYTES,
    is_published_except,
    list_messages,
    list_subjects,
    read_messages,
)
from sandbox.git.process import Git
from tests.unit.conftest import Upstream, refused


def commit(upstream: Upstream, message: bytes, *, encoding: str = "UTF-8") -> str:
    settings = ("-c", f"i18n.commitEncoding={encoding}")
    upstream.git(*settings, "commit", "--quiet", "--allow-empty", "--allow-empty-message", "-F", "-", stdin=message)
    return upstream.oid("HEAD")


def test_subjects_come_oldest_first_each_on_its_own(upstream: Upstream, cached: Callable[[Upstream], Git]) -> None:
    base = upstream.commit("base")
    made = [
        commit(upstream, b"one\ntwo\n\nbody"),
        commit(upstream, "caf\u00e9".encode("latin-1"), encoding="ISO-8859-1"),
        commit(upstream, "\u0301".encode() * 200_000),
        commit(upstream, b""),
        commit(upstream, b"commit 0123456789012345678901234567890123456789\rnone"),
    ]
    git = cached(upstream)
    found = list_subjects(git, base, made[-1])
    assert [oid for oid, _ in found] == made
    assert [text for _, text in found[:2]] == ["one two", "caf\u00e9"]
    assert len(found[2][1].encode()) <= SUBJECT_BYTES + 65
    assert found[3][1] == ""
    assert found[4][1].startswith("commit 0123")
    assert list_subjects(git, base, base) == ()
    assert list_subjects(git, made[0], made[1]) == (found[1],)


def test_s23_branches_of_tasks_publish_no_commit(upstream: Upstream, cached: Callable[[Upstream], Git]) -> None:
    """Control: a branch of a person that has a part of the name."""
    base = upstream.commit("base")
    upstream.git("checkout", "--quiet", "-b", "feature/space-agent/x")
    of_person = upstream.commit("of a person")
    upstream.git("checkout", "--quiet", "-b", "space-agent/45c2abc0-work")
    of_task = upstream.commit("of a task")
    git = cached(upstream)
    assert [is_published_except(git, one, "space-agent/*") for one in (base, of_person, of_task)] == [True, True, False]


def test_messages_are_whole_with_their_authors_and_only_those_of_the_range(
    upstream: Upstream, cached: Callable[[Upstream], Git]
) -> None:
    base = upstream.commit("before")
    commit(upstream, b"one\n\nbody of one\n")
    head = commit(upstream, "caf\u00e9".encode("latin-1"), encoding="ISO-8859-1")
    git = cached(upstream)
    found = read_messages(git, base, head)
    assert "one\n\nbody of one\n" in found
    assert "caf\u00e9" in found
    assert "before" not in found
    assert found.count(upstream.git("log", "-1", "--format=%an <%ae>").decode().strip()) >= 2


def test_each_message_comes_whole_with_its_commit_oldest_first(
    upstream: Upstream, cached: Callable[[Upstream], Git]
) -> None:
    base = upstream.commit("before")
    one = commit(upstream, b"one two\n\nbody\n\n0123456789012345678901234567890123456789 none\n")
    empty = commit(upstream, b"")
    latin = commit(upstream, "caf\u00e9".encode("latin-1"), encoding="ISO-8859-1")
    git = cached(upstream)
    found = [(oid, text.rstrip("\n")) for oid, text in list_messages(git, base, latin)]
    whole = "one two\n\nbody\n\n0123456789012345678901234567890123456789 none"
    assert found == [(one, whole), (empty, ""), (latin, "caf\u00e9")]
    assert list_messages(git, base, base) == ()


def test_messages_too_long_to_be_searched_are_refused(upstream: Upstream, cached: Callable[[Upstream], Git]) -> None:
    base = upstream.commit("base")
    head = commit(upstream, b"x" * (MESSAGES_BYTES + 1))
    with refused(ErrorCode.QUOTA_EXCEEDED):
        read_messages(cached(upstream), base, head)
    with refused(ErrorCode.QUOTA_EXCEEDED):
        list_messages(cached(upstream), base, head)


def test_a_commit_that_is_not_there_is_an_error(upstream: Upstream, cached: Callable[[Upstream], Git]) -> None:
    base = upstream.commit("base")
    with refused(ErrorCode.NOT_FOUND):
        list_subjects(cached(upstream), base, "1" * 40)
