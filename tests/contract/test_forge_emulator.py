"""The emulated GitHub, validated, and how it differs from the real one."""

from __future__ import annotations

import github as pygithub
import pytest

from devtools.forges.emulator import DEVIATIONS
from devtools.forges.fixtures import EmulatedGitHub, client_of

pytestmark = pytest.mark.xdist_group("emulator")


def test_the_emulator_is_a_github_but_for_what_is_known(emulated_github: EmulatedGitHub) -> None:
    first = emulated_github.repository.push("topic")
    note = {"path": "a.py", "start_line": 1, "end_line": 1, "annotation_level": "failure", "message": "Unused"}
    output = {"title": "Lint", "summary": "One", "annotations": [note]}
    number = emulated_github.repository.check(first, name="lint", status="in_progress", output=output)
    with client_of(emulated_github) as client:
        repository = client.get_repo(emulated_github.repository.full_name)
        pull = repository.create_pull(base="main", head="topic", title="A title", body="Words", draft=True)
        assert (pull.head.sha, pull.draft) == (first, True)
        pull.edit(title="Another", body="New")
        assert [p.title for p in repository.get_pulls(head="demo-owner:topic", base="main")] == ["Another"]
        assert [(r.name, r.status) for r in repository.get_commit(first).get_check_runs()] == [("lint", "in_progress")]
        list(repository.get_check_run(number).get_annotations())
        with pytest.raises(pygithub.UnknownObjectException):
            pull.mark_ready_for_review()
    assert emulated_github.rules.deviated == set(DEVIATIONS), "a deviation is gone: strike it from the list"


def test_what_the_emulator_does_differently_the_scripted_github_does_right(emulated_github: EmulatedGitHub) -> None:
    """When this fails, the emulator has learnt it: use it instead."""
    emulated_github.repository.push("topic")
    with client_of(emulated_github) as client:
        repository = client.get_repo(emulated_github.repository.full_name)
        numbers = [repository.create_pull(base="main", head=h, title="x").number for h in ("topic", "topic", "gone")]
        assert numbers == [1, 2, 3]
        assert (
            repository.get_pull(1).head.sha
            != emulated_github.repository.push("topic", "more")
            != repository.get_pull(1).head.sha
        )
