"""Figures of a cluster whose server does not answer. Those of one that does: tests/e2e/test_line_of_tasks.py."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from sandbox.daemon import cluster_metrics
from sandbox.daemon.cluster_metrics import ClusterCollector
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models.operations import WaitingLine, WorkerInfo


class Workers:
    """A dispatcher that may be slow."""

    def __init__(self, may_answer: threading.Event) -> None:
        self.may_answer = may_answer

    def workers(self) -> tuple[WorkerInfo, ...]:
        self.may_answer.wait(60)
        able = WorkerInfo(id=f"worker-{'1' * 16}", version="2.0", slots=3)
        return (able, able.model_copy(update={"slots": 5}), WorkerInfo(id=f"worker-{'2' * 16}"))

    def line(self) -> WaitingLine:
        return WaitingLine(tasks=7, oldest_s=1.5, workers=3)


def read(collector: ClusterCollector) -> dict[str, float]:
    samples = [sample for family in collector.collect() for sample in family.samples]
    return {"".join((one.name.removeprefix("sandbox_cluster_"), *one.labels.values())): one.value for one in samples}


def test_a_slow_server_delays_no_other_figure_and_its_answer_is_shown_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_metrics, "READ_S", 0.05)
    may_answer = threading.Event()
    workers: Any = Workers(may_answer)
    collector = ClusterCollector(lambda: workers)
    assert read(collector) == {"up": 0}
    may_answer.set()
    monkeypatch.setattr(cluster_metrics, "READ_S", 30.0)
    assert read(collector) == {
        "up": 1, "workers2.0": 2, "workersunknown": 1, "slots": 8, "waiting_tasks": 7, "waiting_oldest_seconds": 1.5,
    }  # fmt: skip


def test_a_server_that_cannot_be_reached_is_asked_again_later() -> None:
    may_answer = threading.Event()
    may_answer.set()
    workers: Any = Workers(may_answer)
    answers = [SandboxError(ErrorCode.NETWORK_ERROR, "No Temporal server answers"), workers]

    def connect() -> Any:
        answer = answers.pop(0)
        if isinstance(answer, SandboxError):
            raise answer
        return answer

    collector = ClusterCollector(connect)
    assert read(collector) == {"up": 0}
    assert read(collector)["up"] == 1


def test_s140_versions_that_nobody_has_make_a_bounded_number_of_series() -> None:
    may_answer = threading.Event()
    may_answer.set()
    workers: Any = Workers(may_answer)
    told = [WorkerInfo(id=f"worker-{number:016x}", version=f"9.{number}", slots=1) for number in range(500)]
    workers.workers = lambda: tuple(told)
    found = read(ClusterCollector(lambda: workers))
    series = {name: count for name, count in found.items() if name.startswith("workers")}
    assert len(series) <= cluster_metrics.MOST_VERSIONS + 1
    assert sum(series.values()) == 500


def test_a_failure_that_was_not_foreseen_is_not_repeated_for_ever() -> None:
    may_answer = threading.Event()
    may_answer.set()
    workers: Any = Workers(may_answer)
    answers: list[Any] = [TimeoutError("of the connection"), ValueError("what cannot be read"), workers]

    def connect() -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    collector = ClusterCollector(connect)
    assert read(collector) == {"up": 0}
    assert read(collector) == {"up": 0}
    assert read(collector)["up"] == 1
