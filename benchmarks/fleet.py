"""A cluster on paper: 1,000 hosts and 100,000 tasks a day, simulated from service times that are measured here first.

Measured: what an operation, the container of a check, and sending a state to a hub take, on this machine and a git
server on it. Assumed, and printed with the results: what agents ask for, how long their projects' checks run, the
hosts. The simulation (simpy) gives tasks to workers as the workflow of a task does (sandbox/cluster/task_placement.py):
to one that has the clone if one of them has a free place; as a comparison, to any worker. It counts what would run out
first.
"""

from __future__ import annotations

import itertools
import math
import random
import statistics
import tempfile
import time
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import simpy

from benchmarks._harness import read_figures, timed
from benchmarks.cluster_load import DISPATCH
from devtools.gitserver import GitServer, introduce
from sandbox import Workbench

DAY_S = 86_400.0
HEARTBEAT_S = 3.0
"""A worker sends no more often (`_SENT_EVERY_S` of `sandbox.cluster.temporal_worker`)."""
APS = 500
"""Actions a second of a namespace of Temporal Cloud by default (docs.temporal.io/cloud/limits, read in 2026)."""
USD_A_MILLION = 50.0
"""The list price of a million actions without discount (temporal.io/pricing, read in 2026)."""
DISPATCH_S = 0.05
"""Of `benchmarks/cluster_load.py` on two slow cores (docs/benchmarks.md)."""
ROUNDS, SENDERS, SENDS = 15, 8, 6


@dataclass(frozen=True)
class Measured:
    """Seconds of one operation; of the container of a check; of a push to the hub, of whose server `pushes_a_second`
    are the most; the bytes that a push sends; and the seconds that Temporal adds to an operation.
    """

    edit_s: float
    check_s: float
    push_s: float
    pushes_a_second: float
    push_bytes: float
    dispatch_s: float


@dataclass(frozen=True)
class Assumed:
    """What is not measured. Checks take a log-normal time. Repositories are chosen by Zipf's law."""

    hosts: int = 1000
    places: int = 16  # checks at once: 8 cores
    clones: int = 50  # that a host keeps
    repositories: int = 5000
    zipf: float = 1.1
    tasks: int = 100_000  # a day
    peak: float = 1.8  # of the busiest hour, to the mean
    edits: int = 8  # of a task
    checks: int = 3
    known_verdicts: float = 0.3  # of the verifications
    check_median_s: float = 20.0
    check_sigma: float = 1.2
    think_s: float = 15.0  # of the agent, before each operation
    clone_s: float = 6.0
    clone_bytes: float = 60e6
    verdict_bytes: float = 6000.0


@dataclass
class Host:
    """A worker: places for checks, and the clones that it has, the one used longest ago first."""

    places: simpy.Resource
    clones: OrderedDict[int, None] = field(default_factory=OrderedDict)
    tasks: int = 0

    def fetch(self, repository: int, most: int) -> bool:
        """Whether it had the clone; it has it afterwards."""
        had = repository in self.clones
        self.clones[repository] = None
        self.clones.move_to_end(repository)
        while len(self.clones) > most:
            self.clones.popitem(last=False)
        return had


class Fleet:
    """One day of all hosts. `prefers_clones`: a task goes to a worker that has the clone."""

    def __init__(self, measured: Measured, assumed: Assumed, *, prefers_clones: bool) -> None:
        self.measured, self.assumed, self.prefers_clones = measured, assumed, prefers_clones
        self.random = random.Random(1)  # noqa: S311 - a simulation
        self.clock = simpy.Environment()
        self.hosts = [Host(simpy.Resource(self.clock, assumed.places)) for _ in range(assumed.hosts)]
        weights = [1 / (rank + 1) ** assumed.zipf for rank in range(assumed.repositories)]
        self.chosen = self.random.choices(range(assumed.repositories), weights, k=assumed.tasks)
        self.with_clone: dict[int, set[int]] = {}
        self.hits = 0
        self.waits: list[float] = []
        self.busy_s: defaultdict[int, float] = defaultdict(float)
        self.actions: Counter[int] = Counter()  # by hour
        self.pushes: Counter[int] = Counter()
        self.cloned_bytes = self.stored_bytes = 0.0

    def run(self) -> None:
        self.clock.process(self._arrive())
        self.clock.run(until=DAY_S)

    def _arrive(self) -> Generator[simpy.Event, None, None]:
        mean = self.assumed.tasks / DAY_S
        for repository in self.chosen:
            rate = mean * (1 + (self.assumed.peak - 1) * math.sin(2 * math.pi * self.clock.now / DAY_S))
            yield self.clock.timeout(self.random.expovariate(max(rate, mean / 10)))
            self.clock.process(self._work(repository))

    def _choose(self, repository: int) -> int:
        """Of two workers that offer at random, as pollers of one queue do, the one with fewer tasks."""
        known = self.with_clone.get(repository, ()) if self.prefers_clones else ()
        free = [number for number in known if self.hosts[number].places.count < self.assumed.places]
        offers: Sequence[int] = free or range(len(self.hosts))
        return min(self.random.choice(offers), self.random.choice(offers), key=lambda n: self.hosts[n].tasks)

    def _work(self, repository: int) -> Generator[simpy.Event, None, None]:
        number = self._choose(repository)
        host = self.hosts[number]
        host.tasks += 1
        self._act(3)  # the workflow, the offer, the first update with its activity
        if host.fetch(repository, self.assumed.clones):
            self.hits += 1
        else:
            self.cloned_bytes += self.assumed.clone_bytes
            yield self.clock.timeout(self.assumed.clone_s)
        self.with_clone.setdefault(repository, set()).add(number)
        for kind in self._operations():
            yield self.clock.timeout(self.random.expovariate(1 / self.assumed.think_s))
            yield from self._perform(host, kind)
        self._act(2)
        host.tasks -= 1

    def _operations(self) -> Iterator[str]:
        """Edits with checks between them, a commit, a verification."""
        every = max(1, self.assumed.edits // self.assumed.checks)
        for place in range(1, self.assumed.edits + 1):
            yield "edit"
            if place % every == 0:
                yield "check"
        yield "edit"
        yield "verify"

    def _perform(self, host: Host, kind: str) -> Generator[simpy.Event, None, None]:
        took = self.measured.edit_s
        if kind == "verify" and self.random.random() < self.assumed.known_verdicts:
            pass  # the shared store answers
        elif kind in {"check", "verify"}:
            asked = self.clock.now
            with host.places.request() as place:
                yield place
                self.waits.append(self.clock.now - asked)
                took = self.random.lognormvariate(math.log(self.assumed.check_median_s), self.assumed.check_sigma)
                took += self.measured.check_s
                yield self.clock.timeout(took)
            self.busy_s[self._hour()] += took
            self.stored_bytes += self.assumed.verdict_bytes
        else:
            yield self.clock.timeout(took)
        yield self.clock.timeout(self.measured.dispatch_s + self.measured.push_s)
        self.pushes[self._hour()] += 1
        self._act(2 + int(took / HEARTBEAT_S))  # update, activity, heartbeats

    def _act(self, count: int) -> None:
        self.actions[self._hour()] += count

    def _hour(self) -> int:
        return int(self.clock.now // 3600)


def measure() -> Measured:
    """Service times on this machine, with a git server on it as hub."""
    with GitServer() as server, tempfile.TemporaryDirectory() as name:
        root = Path(name)
        (root / "files").mkdir()
        (root / "files" / "Makefile").write_text("all:\n\ttrue\ntest:\n\ttrue\n")
        server.seed("fleet", "project", root / "files")
        server.create("fleet", "hub")
        with Workbench(introduce(root / "home", server)) as workbench:
            try:
                return _measure(workbench, server)
            finally:
                for task in workbench.tasks():
                    workbench.close_task(task.id, delete_worktree=True, discard=True)


def _measure(workbench: Workbench, server: GitServer) -> Measured:
    hub = server.https_url("fleet", "hub")
    repo_id = workbench.clone(server.https_url("fleet", "project")).repository.id
    tasks = [workbench.create_task(repo_id).id for _ in range(SENDERS)]
    numbers = itertools.count()

    def edit(task_id: str) -> None:
        workbench.write_file(task_id, f"file{next(numbers)}", "text\n", None)

    def send(task_id: str) -> None:
        workbench.send_task_state(hub, task_id, 1)

    def edit_and_send(task_id: str) -> None:
        for _ in range(SENDS):
            edit(task_id)
            send(task_id)

    edits, pushes, checks = [], [], []
    for task_id in tasks:
        workbench.run_checks(task_id, ["test"])  # starts the container
    before = _count_bytes()
    for _ in range(ROUNDS):
        edits.append(timed(lambda: edit(tasks[0])))
        pushes.append(timed(lambda: send(tasks[0])))
    sent = (_count_bytes() - before) / ROUNDS
    for _ in range(ROUNDS):
        checks.append(timed(lambda: workbench.run_checks(tasks[0], ["test"])))
    started = time.monotonic()
    with ThreadPoolExecutor(SENDERS) as senders:
        list(senders.map(edit_and_send, tasks))
    rate = SENDERS * SENDS / (time.monotonic() - started)
    edit_s, check_s, push_s = (statistics.median(each) / 1000 for each in (edits, checks, pushes))
    return Measured(edit_s, check_s, push_s, rate, sent, find_dispatch_s())


def find_dispatch_s() -> float:
    """What the load on a real cluster measured here last; without one, what it measured elsewhere."""
    found = read_figures(DISPATCH)
    return DISPATCH_S if found is None else (found.product - found.floor) / 1000


def _count_bytes() -> int:
    """Sent over the loopback since the host started, by whomever."""
    return int(Path("/sys/class/net/lo/statistics/tx_bytes").read_text())


@dataclass(frozen=True)
class Day:
    """What one day needed. A load is a share of what there is."""

    hits: float
    waits: list[float]
    loads: dict[str, float]
    lines: dict[str, str]


def judge_day(fleet: Fleet) -> Day:
    """The day of a fleet, with the loads of its busiest hour."""
    assumed, measured = fleet.assumed, fleet.measured
    pushes, actions = (max(each.values()) / 3600 for each in (fleet.pushes, fleet.actions))
    total, busiest = sum(fleet.actions.values()), max(fleet.busy_s.values()) / 3600
    loads = {
        "places for checks": busiest / (assumed.hosts * assumed.places),
        f"one hub like this machine's, {measured.pushes_a_second:.0f} pushes/s": pushes / measured.pushes_a_second,
        f"a namespace of Temporal Cloud, {APS} actions/s": actions / APS,
    }
    lines = {
        "pushes to the hub in the busiest hour": f"{pushes:.0f}/s, {pushes * measured.push_bytes / 1e6:.1f} MB/s",
        "enough at a load of 70 %": f"{math.ceil(busiest / assumed.places / 0.7)} hosts, "
        f"{math.ceil(pushes / measured.pushes_a_second / 0.7)} hubs",
        "clones": f"{fleet.cloned_bytes / 1e12:.2f} TB a day",
        "shared store": f"{fleet.stored_bytes / 1e9:.1f} GB more a day",
        "Temporal": f"{total / 1e6:.1f} million actions a day, {actions:.0f}/s in the busiest hour, "
        f"{total / 1e6 * USD_A_MILLION:.0f} USD at the list price",
    }
    return Day(fleet.hits / assumed.tasks, fleet.waits, loads, lines)


def show(title: str, day: Day) -> None:
    cuts = statistics.quantiles(day.waits, n=100)
    print(f"{title}: {day.hits:.0%} of the tasks found a clone; a check waits {cuts[49]:.1f} s, p95 {cuts[94]:.1f} s")
    for name, value in day.lines.items():
        print(f"  {name}: {value}")
    for name, load in sorted(day.loads.items(), key=lambda pair: -pair[1]):
        print(f"  {load:8.0%} of {name}")
    print(f"  first to run out: {max(day.loads, key=lambda name: day.loads[name])}", flush=True)


def main() -> None:
    measured, assumed = measure(), Assumed()
    print(f"measured: {measured}\nassumed: {assumed}", flush=True)
    for title, prefers_clones in (("any worker", False), ("a worker with the clone", True)):
        fleet = Fleet(measured, assumed, prefers_clones=prefers_clones)
        fleet.run()
        show(title, judge_day(fleet))


if __name__ == "__main__":
    main()
