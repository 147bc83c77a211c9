"""The states of a task as a graph."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from sandbox.daemon.snapshot_graph import MAX_STATES, Graph, build_graph
from sandbox.models import Actor, JournalEntry, Snapshot

TASK, FORK = (f"task-{digit * 8}-0000-4000-8000-000000000000" for digit in "12")
START = datetime(2026, 1, 1, tzinfo=UTC)
A, B, C = (f"snap-{number:013x}-aaaaaa" for number in (1, 2, 3))


def snapshot(at_s: float, name: str) -> Snapshot:
    return Snapshot(
        id=name, tree="a" * 40, commit="b" * 40, created_at=START + timedelta(seconds=at_s), label=name[-3:]
    )


def entry(at_s: float, operation: str, *names: str, result: str = "ok") -> JournalEntry:
    return JournalEntry(
        at=START + timedelta(seconds=at_s),
        actor=Actor.CLI,
        operation=operation,
        arguments=f"sha256:{'0' * 64}",
        names=names,
        result=result,
        duration_s=1.0,
    )


def parents(graph: Graph) -> dict[str, str | None]:
    return {state.name: state.parent for state in graph.states}


def test_what_is_taken_after_a_restore_branches_from_what_was_restored() -> None:
    entries = [entry(3, "restore", A, B), entry(6, "fork", A, FORK)]
    graph = build_graph(TASK, [snapshot(1, A), snapshot(3.5, B), snapshot(9, C)], entries)
    assert parents(graph) == {"base": None, A: "base", B: A, C: A, FORK: A}
    assert [(state.name, state.column) for state in graph.states] == [("base", 0), (A, 0), (B, 0), (FORK, 1), (C, 2)]
    assert [state.name for state in graph.states if state.is_current] == [C]
    assert len(graph.edges) == 4
    assert graph.edges[0] == "M18 18L18 36L18 54"


def test_commits_are_states_and_head_is_the_last_one() -> None:
    commits = ["c" * 40, "d" * 40]
    entries = [
        entry(1, "commit", "message", commits[0]),
        entry(3, "commit", commits[1]),
        entry(7, "restore", "head", B),
    ]
    graph = build_graph(TASK, [snapshot(5, A), snapshot(7.5, B)], entries)
    assert parents(graph) == {"base": None, commits[0]: "base", commits[1]: commits[0], A: commits[1], B: A}
    assert [state.name for state in graph.states if state.is_current] == [commits[1]]


def test_failed_operations_and_the_tasks_own_origin_change_nothing() -> None:
    entries = [
        entry(0, "fork", A, TASK),
        entry(2, "restore", A, result="conflict"),
        entry(3, "restore"),
        entry(4, "fork"),
    ]
    graph = build_graph(TASK, [snapshot(1, B)], entries)
    assert parents(graph) == {"base": None, B: "base"}
    assert [state.name for state in graph.states if state.is_current] == [B]


def test_the_newest_states_are_shown() -> None:
    many = [snapshot(number, f"snap-{number:013x}-aaaaaa") for number in range(2 * MAX_STATES)]
    graph = build_graph(TASK, many, [])
    assert [state.name for state in graph.states] == [one.id for one in many[-MAX_STATES:]]
    assert len(graph.edges) == MAX_STATES - 1
