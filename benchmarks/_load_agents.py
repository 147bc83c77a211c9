"""Agents that work on a cluster at the same time: each creates a task, edits, checks, reads what it wrote, and closes.

An agent knows what its file must contain and what each check must say. After an operation that ended with an error the
file may be as before or as asked for; any other content is a lost edit.
"""

from __future__ import annotations

import base64
import queue
import threading
import time
import traceback
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from benchmarks._cluster import Cluster
from benchmarks._load_plan import Step, StepKind, Tally, expect_verdict, hash_content, judge_check, strip_lost
from sandbox.errors import SandboxError
from sandbox.models import Verdict
from sandbox.models.operations import OperationAnswer, OperationName, TaskOperation

ANSWER_S = 180.0
"""How long an operation may have no answer; reached: it counts as a fault."""

CANCEL_AFTER_S, AFTER_ERROR_S = 1.0, 2.0
_SHOWN = 6
_FIRST = "wrong\n"
_READ_TRIES, _READ_AGAIN_S = 60, 1.0
_WAITING = frozenset({"cluster_busy", "no_worker"})


class Kills:
    """The kills of workers, and which tasks have not been answered since. Thread-safe."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._lock = threading.Lock()
        self._places: dict[str, tuple[str, int]] = {}  # of open tasks: worker and epoch
        self._waiting: dict[str, tuple[str, float, int]] = {}  # of each task: kill, time, epoch before
        self._back: dict[str, float] = {}

    def note_kill(self, kill: str, worker: str) -> int:
        """A worker was killed just now; how many tasks are on it."""
        now = time.monotonic()
        with self._lock:
            self._back.pop(worker, None)
            found = {task: (kill, now, epoch) for task, (name, epoch) in self._places.items() if name == worker}
            self._waiting.update(found)
        return len(found)

    def note_return(self, worker: str) -> None:
        """A killed worker takes tasks again."""
        with self._lock:
            self._back[worker] = time.monotonic()

    def note_answer(self, answer: OperationAnswer) -> None:
        """A task was answered. One that was on its way when the worker was killed does not count."""
        with self._lock:
            self._places[answer.task_id] = (answer.worker, answer.epoch)
            waiting = self._waiting.get(answer.task_id)
            if waiting is None or (answer.epoch <= waiting[2] and answer.worker not in self._back):
                return
            del self._waiting[answer.task_id]
        self._tally.note_recovery(waiting[0], time.monotonic() - waiting[1])

    def forget(self, task: str) -> None:
        """A task was closed."""
        with self._lock:
            self._places.pop(task, None)
            self._waiting.pop(task, None)


class Agents:
    """`run` starts them; `stop` lets each end its operation. They are daemon threads: a cluster that does not answer
    does not keep the benchmark from ending.
    """

    def __init__(self, cluster: Cluster, tally: Tally, plans: Iterable[tuple[Step, ...]]) -> None:
        self.cluster, self.tally, self.kills = cluster, tally, Kills(tally)
        self.stopped = threading.Event()
        self.doing: dict[str, tuple[str, float]] = {}  # by task: what its agent waits for, and since when
        self._plans: queue.SimpleQueue[tuple[Step, ...]] = queue.SimpleQueue()
        for plan in plans:
            self._plans.put(plan)
        self._threads: list[threading.Thread] = []

    def run(self, clients: int) -> None:
        """Start so many at once."""
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(clients)]
        for thread in self._threads:
            thread.start()

    def is_running(self) -> bool:
        """Whether one of them has work."""
        return any(thread.is_alive() for thread in self._threads)

    def describe(self) -> str:
        """What the agents wait for, and for how long, the longest first."""
        now = time.monotonic()
        found = sorted(((now - since, what) for what, since in [*self.doing.values()]), reverse=True)
        return ", ".join(f"{what} {waited:.0f} s" for waited, what in found[:_SHOWN])

    def _work(self) -> None:
        while not self.stopped.is_set():
            try:
                plan = self._plans.get_nowait()
            except queue.Empty:
                return
            task = AgentTask(self)
            try:
                task.work(plan)
                self.doing.pop(task.id, None)
            except Exception:  # noqa: BLE001 - the edge of a thread: what is no typed error is counted as a fault
                self.tally.note_fault("untyped errors", traceback.format_exc()[-500:])


class AgentTask:
    """One task, from its creation to its end. `id`: of the task."""

    def __init__(self, agents: Agents) -> None:
        self._agents, self._cluster, self._tally = agents, agents.cluster, agents.tally
        self._dispatcher = agents.cluster.dispatcher
        self.id = f"task-{uuid.uuid4()}"
        self._content = _FIRST
        self._seen: list[tuple[TaskOperation, OperationAnswer]] = []

    def work(self, plan: Iterable[Step]) -> None:
        """Do the steps of a plan."""
        acts = {
            StepKind.WRITE: self._write,
            StepKind.CHECK: self._check,
            StepKind.CANCEL: self._cancel,
            StepKind.COMMIT: self._commit,
        }
        if not self._create():
            return
        for step in plan:
            if self._agents.stopped.is_set():
                return
            acts[step.kind](step)
        self._compare_answers()
        self._read("at the end")
        self._close()

    def _create(self) -> bool:
        ends_at = time.monotonic() + ANSWER_S
        self._agents.doing[self.id] = ("create", time.monotonic())
        while True:
            try:
                answer = self._dispatcher.place(self._cluster.url, {"prompt": "Answer right"}, self.id)
                break
            except SandboxError as error:
                if error.reason not in _WAITING or time.monotonic() > ends_at:
                    self._tally.note_error(error.code.value, error.reason, f"create: {error.brief} {error.details}")
                    self._tally.note_fault("tasks not created", f"{error.brief} {error.details}")
                    return False
        if answer.error is not None:
            self._tally.note_error(answer.error.code, answer.error.reason, f"create: {answer.error}")
            self._tally.note_fault("tasks not created", str(answer.error))
            return False
        self._agents.kills.note_answer(answer)
        return True

    def _ask(self, name: OperationName, arguments: Mapping[str, Any] | None = None) -> OperationAnswer | None:
        """The answer of an operation that succeeded."""
        operation = TaskOperation(id=uuid.uuid4().hex, task_id=self.id, name=name, arguments=arguments or {})
        self._agents.doing[self.id] = (name, time.monotonic())
        return self._find_answer(operation, is_new=True)

    def _find_answer(self, operation: TaskOperation, *, is_new: bool) -> OperationAnswer | None:
        try:
            if is_new:
                self._dispatcher.submit(operation)
            answer = self._dispatcher.result(operation, ANSWER_S)
        except SandboxError as error:
            self._tally.note_error(error.code.value, error.reason, f"{operation.name}: {error.brief} {error.details}")
            return None
        if answer is None:
            self._tally.note_fault("operations without an answer", f"{operation.name} of {self.id}")
            return None
        self._agents.kills.note_answer(answer)
        self._seen.append((operation, answer))
        if answer.error is not None:
            said = answer.error
            self._tally.note_error(said.code, said.reason, f"{operation.name}: {said.brief} {said.details}")
            self._agents.stopped.wait(AFTER_ERROR_S)
        if answer.lost:
            self._tally.add(moved=1)
            if operation.name not in {OperationName.READ_FILE, OperationName.CLOSE} and answer.error is None:
                self._read("after a move", also=self._content)
        return None if answer.error is not None else answer

    def _write(self, step: Step) -> None:
        before = self._content
        encoded = base64.b64encode(step.content.encode()).decode()
        arguments = {"path": "answer", "content": encoded, "expected_sha256": hash_content(before)}
        self._content = step.content
        if self._ask(OperationName.WRITE_FILE, arguments) is None:
            self._read("after a failed edit", also=before)

    def _check(self, _step: Step) -> None:
        answer = self._ask(OperationName.CHECK, {"check_ids": ["answer"]})
        if answer is None:
            self._tally.note_check("error")
        else:
            verdicts = [str(run["verdict"]) for run in answer.value]
            judge_check(self._tally, verdicts, expect_verdict(self._content), f"check of {self.id}")

    def _cancel(self, _step: Step) -> None:
        operation = TaskOperation(
            id=uuid.uuid4().hex, task_id=self.id, name=OperationName.CHECK, arguments={"check_ids": ["wait"]}
        )
        began = time.monotonic()
        self._agents.doing[self.id] = ("cancel", began)
        try:
            self._dispatcher.submit(operation)
            self._agents.stopped.wait(CANCEL_AFTER_S)
            self._dispatcher.cancel(operation)
        except SandboxError as error:
            self._tally.note_error(error.code.value, error.reason, f"cancel: {error.brief} {error.details}")
        answer = self._find_answer(operation, is_new=False)
        if answer is None:
            self._tally.note_check("cancelled, with an error")
            return
        verdicts = [str(run["verdict"]) for run in answer.value]
        if verdicts == [Verdict.KILLED]:
            self._tally.note_check("cancelled")
        else:
            took = time.monotonic() - began
            self._tally.note_check("not cancelled")
            self._tally.note_fault("cancellations without effect", f"{', '.join(verdicts)} after {took:.0f} s")

    def _commit(self, _step: Step) -> None:
        self._ask(OperationName.COMMIT, {"message": "Answer"})

    def _compare_answers(self) -> None:
        """Ask for each operation again: an answer that was given is given again."""
        for operation, answer in [*self._seen]:
            try:
                self._dispatcher.submit(operation)
                again = self._dispatcher.result(operation, ANSWER_S)
            except SandboxError as error:
                self._tally.note_error(error.code.value, error.reason, f"again: {error.brief} {error.details}")
                continue
            if again is not None and strip_lost(again) != strip_lost(answer):
                self._tally.note_fault("answers given twice differently", f"{strip_lost(answer)} {strip_lost(again)}")
        self._tally.add(compared=len(self._seen))

    def _read(self, when: str, also: str | None = None) -> None:
        """Compare the file with what it must be, `also` being as good. Tries until the task answers."""
        for _ in range(_READ_TRIES):
            if (answer := self._ask(OperationName.READ_FILE, {"path": "answer"})) is not None:
                break
            if self._agents.stopped.wait(_READ_AGAIN_S):
                return
        else:
            self._tally.note_fault("tasks lost", f"{self.id} did not answer {when}")
            return
        found = str(answer.value["content"])
        if found not in {self._content, also}:
            self._tally.note_fault("edits lost", f"{when}: {found!r} instead of {self._content!r}")
        self._content = found

    def _close(self) -> None:
        arguments = {"delete_worktree": True, "discard": True}
        for _ in range(_READ_TRIES):
            if self._ask(OperationName.CLOSE, arguments) is not None:
                self._tally.add(closed=1)
                break
            if self._agents.stopped.wait(_READ_AGAIN_S):
                return
        else:
            self._tally.note_fault("tasks lost", f"{self.id} could not be closed")
        self._agents.kills.forget(self.id)
