"""Load on a cluster of two workers, each with a home and an engine of its own, on this one machine.

Measured: a check through Temporal against the same check without it; checks of one worker and of two; then many tasks
at once, while checks are cancelled, a worker is killed twice, and an engine once. Each check there has a known verdict.
Both workers, the servers and the agents share the cores of this machine, so a second worker can add little.

Arguments: sizes, as for the other scripts; the largest sets how many tasks and checks; or `--tasks N --checks N`.
Exit code 1 if a promise was broken.
"""

from __future__ import annotations

import argparse
import math
import signal
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import NoReturn

from benchmarks._cluster import Cluster, WorkerHost, running_cluster
from benchmarks._harness import ROUNDS, judge, timed
from benchmarks._load_agents import ANSWER_S, Agents
from benchmarks._load_plan import LoadScale, Tally, describe_counts, describe_times, plan_tasks
from sandbox.cluster.dispatcher import PlacementTerms
from sandbox.cluster.worker import ClusterWorker
from sandbox.models import Verdict
from sandbox.models.operations import OperationName, TaskOperation

SCALES = {"small": LoadScale(6, 24, 4), "medium": LoadScale(40, 200, 12), "large": LoadScale()}
KILLS = ((0.2, "worker"), (0.45, "engine"), (0.7, "worker"))
"""After which share of the checks what is killed: the first worker, and the engine of the second one.
"""
WORKER_AWAY_S, ENGINE_AWAY_S = 12.0, 5.0
PROGRESS_S = 15.0
LIMIT_S = 900.0
"""Of the load with kills; reached: it is stopped, and says so."""

OVERHEAD = "S43 check of `true` through Temporal"
DISPATCH = "S43 the same, beside its push"
CONTAINERS_GONE_S = 100.0
TASKS_AT_ONCE, CHECKS_EACH, THROUGHPUT_ROUNDS = 8, 5, 5
PROMISES = ("wrong verdicts", "answers given twice differently", "tasks lost", "edits lost", "untyped errors",
            "operations without an answer", "cancellations without effect", "containers left")  # fmt: skip
_LOOK_S = 0.2


class Load:
    """A cluster whose two hosts have the clone."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.one, self.two = cluster.hosts["one"], cluster.hosts["two"]

    def begin(self, host: WorkerHost) -> str:
        """A new task on this host."""
        answer = self.cluster.dispatcher.place(
            self.cluster.url, {}, terms=PlacementTerms(requirements={"host": host.name})
        )
        if answer.error is not None or answer.worker != host.worker:
            raise RuntimeError(f"No task on {host.name}: {answer}")
        return answer.task_id

    def check(self, task: str) -> None:
        """A check through Temporal that passes."""
        operation = _make_check(task)
        self.cluster.dispatcher.submit(operation)
        answer = self.cluster.dispatcher.result(operation, ANSWER_S)
        if answer is None or answer.error is not None or answer.value[0]["verdict"] != Verdict.PASSED:
            raise RuntimeError(f"A check that passes did not: {answer}")

    def close(self, task: str) -> None:
        """End a task."""
        arguments = {"delete_worktree": True, "discard": True}
        operation = TaskOperation(id="close", task_id=task, name=OperationName.CLOSE, arguments=arguments)
        self.cluster.dispatcher.submit(operation)
        self.cluster.dispatcher.result(operation, ANSWER_S)


def _make_check(task: str) -> TaskOperation:
    arguments = {"check_ids": ["true"]}
    return TaskOperation(id=uuid.uuid4().hex, task_id=task, name=OperationName.CHECK, arguments=arguments)


def prepare(cluster: Cluster) -> Load:
    """Give both hosts the clone, one after the other: a task goes to one that has it."""
    load = Load(cluster)
    for host in (load.one, load.two):
        host.start()
        load.close(load.begin(host))
    return load


def compare_with_local(load: Load) -> None:
    """A warm check of `true` by the controller of a worker's home, by its worker with the hub, and through Temporal."""
    task = load.begin(load.one)
    with load.one.open() as workbench:
        repository = workbench.clone(load.cluster.url).repository.id
        plain, sent = (workbench.create_task(repository).id for _ in range(2))
        worker = ClusterWorker(workbench, load.cluster.hub)

        def check_locally() -> None:
            if workbench.run_checks(plain, ["true"])[0].verdict is not Verdict.PASSED:
                raise RuntimeError("A check that passes did not")

        def check_and_send() -> None:
            if (error := worker.perform(_make_check(sent)).error) is not None:
                raise RuntimeError(f"The worker failed: {error}")

        acts: Sequence[Callable[[], None]] = (lambda: load.check(task), check_locally, check_and_send)
        for act in acts:
            act()  # starts the container
        rounds = [tuple(timed(act) for act in acts) for _ in range(ROUNDS)]
        for each in (plain, sent):
            workbench.close_task(each, delete_worktree=True, discard=True)
        workbench.end_task_state(load.cluster.hub, sent, 1)
    load.close(task)
    judge(OVERHEAD, [(a, b) for a, b, _ in rounds], floor_name="the controller alone", target="-")
    judge(DISPATCH, [(a, c) for a, _, c in rounds], floor_name="its worker without Temporal, with its push", target="-")


def compare_throughput(load: Load) -> None:
    """Checks a minute with eight tasks on one worker, and with four on each of two."""
    tasks = {host.name: [load.begin(host) for _ in range(TASKS_AT_ONCE)] for host in (load.one, load.two)}
    half = TASKS_AT_ONCE // 2
    alone, both = tasks["one"], tasks["one"][:half] + tasks["two"][half:]

    def check_often(task: str) -> None:
        for _ in range(CHECKS_EACH):
            load.check(task)

    def find_rate(chosen: Sequence[str]) -> float:
        with ThreadPoolExecutor(len(chosen)) as pool:
            return len(chosen) * CHECKS_EACH * 60_000 / timed(lambda: list(pool.map(check_often, chosen)))

    find_rate(alone + tasks["two"])
    pairs = [(find_rate(both), find_rate(alone)) for _ in range(THROUGHPUT_ROUNDS)]
    judge("S44 checks a minute, two workers", pairs, floor_name="one worker, the same cores", target="-", unit="/min")
    for task in alone + tasks["two"]:
        load.close(task)


def run_load(load: Load, scale: LoadScale, tally: Tally) -> float:
    """Many tasks at once, with cancellations and kills; how long it took, in seconds."""
    agents = Agents(load.cluster, tally, plan_tasks(scale))
    began = time.monotonic()
    agents.run(min(scale.clients, scale.tasks))
    try:
        for share, what in KILLS:
            _wait(share * scale.checks, agents, began)
            if agents.is_running() and not agents.stopped.is_set():
                _kill(load, agents, what)
        _wait(math.inf, agents, began)
    finally:
        agents.stopped.set()
    return time.monotonic() - began


def _wait(checks: float, agents: Agents, began: float) -> None:
    """Until so many checks have ended, or all agents."""
    shown = time.monotonic()
    while agents.is_running() and agents.tally.done < checks:
        if time.monotonic() - shown > PROGRESS_S:
            shown = time.monotonic()
            _tell(f"{shown - began:.0f} s: {describe_counts(agents.tally.answered)}; {agents.describe()}")
        if time.monotonic() - began > LIMIT_S:
            agents.stopped.set()
            return
        time.sleep(_LOOK_S)


def _kill(load: Load, agents: Agents, what: str) -> None:
    if what == "engine":
        _tell("engine killed")
        load.two.engine.kill()
        time.sleep(ENGINE_AWAY_S)
        load.two.engine.start_again()
        return
    load.one.kill()
    count = agents.kills.note_kill(f"kill {len(agents.tally.recovered) + 1}", load.one.worker)
    _tell(f"worker killed, {count} tasks were on it")
    time.sleep(WORKER_AWAY_S)
    load.one.start()
    agents.kills.note_return(load.one.worker)


def _tell(progress: str) -> None:
    print(f"... {progress}", file=sys.stderr, flush=True)


def list_containers_left(load: Load) -> list[str]:
    """What the engines hold when all tasks have ended. The containers of tasks that a killed worker had end by
    themselves, and the next `gc` of its home removes them.
    """
    hosts = (load.one, load.two)
    ends_at = time.monotonic() + CONTAINERS_GONE_S
    while any(one.is_running for host in hosts for one in host.list_containers()) and time.monotonic() < ends_at:
        time.sleep(1.0)
    for host in hosts:
        host.collect_garbage()
    return [f"{host.name} {one.name}: {one.status}" for host in hosts for one in host.list_containers()]


def show(scale: LoadScale, tally: Tally, took_s: float) -> None:
    """One line for each figure."""
    samples = [seconds for each in tally.recovered.values() for seconds in each]
    print(
        f"S45 load of {scale.tasks} tasks, {scale.checks} checks, {scale.clients} at once: {took_s:.0f} s, "
        f"{tally.done * 60 / took_s:.0f} checks/min, {tally.closed} tasks closed, {tally.moved} answers after a move"
    )
    print(f"  checks ended: {describe_counts(tally.answered)}")
    print(f"  typed errors: {describe_counts(tally.errors)}")
    print(f"  answers asked for again: {tally.compared}")
    for kind in sorted({*PROMISES, *tally.faults}):
        print(f"  {kind}: {tally.faults[kind]}")
    for kind, example in sorted(tally.examples.items()):
        print(f"    {kind}: {example}", file=sys.stderr)
    print(f"S46 from the kill of a worker to the first answer: {describe_times(samples)}", flush=True)


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line. Ends the process for a wrong one."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster_load", description=__doc__)
    parser.add_argument("sizes", nargs="*", choices=[[], *SCALES], help="the largest counts; large without any")
    parser.add_argument("--tasks", type=int, help="instead of a size")
    parser.add_argument("--checks", type=int)
    parser.add_argument("--clients", type=int, help="agents at once")
    parser.add_argument("--load-only", action="store_true", help="do not compare a check with a local one")
    return parser.parse_args(arguments)


def find_scale(chosen: argparse.Namespace) -> LoadScale:
    """Of the largest size, with the numbers that were given."""
    scale = SCALES[max(chosen.sizes or ["large"], key=list(SCALES).index)]
    asked = {name: getattr(chosen, name) for name in ("tasks", "checks", "clients")}
    return replace(scale, **{name: max(1, value) for name, value in asked.items() if value is not None})


def _end(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def main() -> int:
    chosen = parse_arguments(sys.argv[1:])
    scale, tally = find_scale(chosen), Tally()
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGINT, _end)  # a shell lets its background jobs ignore it
    with running_cluster() as cluster:
        load = prepare(cluster)
        if not chosen.load_only:
            compare_with_local(load)
            compare_throughput(load)
        took_s = run_load(load, scale, tally)
        _tell(f"load ended after {took_s:.0f} s")
        if tally.closed == scale.tasks:
            for left in list_containers_left(load):
                tally.note_fault("containers left", left)
        for host in (load.one, load.two):
            host.stop()
    if tally.closed < scale.tasks:
        tally.faults["tasks not closed"] = scale.tasks - tally.closed
    show(scale, tally, took_s)
    return 1 if tally.faults.total() else 0


if __name__ == "__main__":
    sys.exit(main())
