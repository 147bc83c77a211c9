"""The line of waiting checks: order, limit, and what is left of those who die in it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devtools.waiting import wait_until
from sandbox.store.queue_tickets import MIB, Ticket, draw_ticket, may_run, parse_ticket, sum_memory, waiting_in_order
from sandbox.store.run_queue import RUNNING_STALE_S, WAITING_STALE_S, NoMemoryDemand, RunQueue

DEADLINE_S = 60.0


def never() -> bool:
    return False


def unheard(_position: int) -> None:
    return None


# --- order


def drawn(owners: Sequence[str], tickets: Sequence[Ticket] = ()) -> list[Ticket]:
    found = list(tickets)
    for owner in owners:
        found.append(draw_ticket(found, owner, f"{len(found):016x}"))
    return found


def served(tickets: Sequence[Ticket]) -> str:
    """Owners in the order in which one slot serves them, each ending before the next begins."""
    order, left = "", list(tickets)
    while waiting := waiting_in_order(left):
        order += waiting[0].owner
        left.remove(waiting[0])
    return order


def test_a_ticket_of_an_earlier_version_needs_no_memory() -> None:
    """Its file would otherwise stay for ever."""
    found = parse_ticket(f"w-00000001-000000000002-{'a' * 16}-task-1")
    assert found == Ticket(False, 1, 2, "a" * 16, "task-1", 0)


def test_a_tickets_name_says_all_there_is_to_know() -> None:
    for ticket in drawn(["task-1", "github.com-a-b", "x" * 200]):
        for running in (True, False):
            assert parse_ticket(replace(ticket, running=running).name) == replace(ticket, running=running)
            assert len(ticket.name) <= 255


@pytest.mark.parametrize("name", ["", "line.lock", "w-1-1-1-x", ".w-00000001-000000000001-0000000000000000-x.ab.tmp"])
def test_other_files_are_no_tickets(name: str) -> None:
    assert parse_ticket(name) is None


def test_an_owner_with_thirty_checks_does_not_starve_another() -> None:
    assert served(drawn("a" * 30 + "b" * 3)) == "aba" + "bab" + "a" * 27


def test_owners_take_turns_whoever_came_first() -> None:
    assert served(drawn("aaabbbccc")) == "abcabcabc"
    assert served(drawn("abc" * 3)) == "abcabcabc"


def test_a_newcomer_waits_for_one_turn_of_those_being_served_at_most() -> None:
    tickets = drawn("a" * 10)
    at_work = [replace(t, running=True) for t in tickets[:2]]
    assert served(drawn("b", [*at_work, *tickets[2:]])) == "ab" + "a" * 7


def test_nobody_overtakes_the_head_of_the_line() -> None:
    """Also when what is being served lags behind, because a long check of an early round still runs."""
    early = replace(drawn("a")[0], running=True)
    waiting = [t for t in drawn("a" * 40, [early]) if not t.running][35:]
    for newcomer in "bcdefgh":
        assert waiting_in_order(drawn(newcomer, [early, *waiting]))[0] == waiting[0]


@given(st.lists(st.sampled_from("abcd"), min_size=1, max_size=40))
def test_between_two_turns_of_an_owner_no_other_one_gets_more_than_two(owners: list[str]) -> None:
    """The last of one round and the first of the next."""
    order = served(drawn(owners))
    assert Counter(order) == Counter(owners)
    for owner in set(owners):
        inner = order.split(owner)[1:-1]
        assert all(max(Counter(between).values(), default=0) <= 2 for between in inner)


def test_as_many_run_at_once_as_may() -> None:
    tickets = drawn("abc")
    assert [may_run(t, tickets, 1) for t in tickets] == [True, False, False]
    at_work = [replace(tickets[0], running=True), *tickets[1:]]
    assert not may_run(tickets[1], at_work, 1)
    assert may_run(tickets[1], at_work, 2)


# --- files


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "turns"
    path.mkdir()
    return path


def files(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir() if p.name != "line.lock")


def test_a_free_turn_comes_at_once_and_leaves_nothing(folder: Path) -> None:
    heard: list[int] = []
    with RunQueue(folder, 1).wait_for_slot("a", never, heard.append) as turn:
        assert turn.granted
        assert [t.running for t in RunQueue(folder, 1).list_tickets()] == [True]
    assert (heard, files(folder)) == ([], [])


def test_who_gives_up_leaves_the_line(folder: Path) -> None:
    turns, heard = RunQueue(folder, 1), list[int]()
    with turns.wait_for_slot("a", never, unheard), turns.wait_for_slot("b", lambda: bool(heard), heard.append) as turn:
        assert not turn.granted
    assert (heard, files(folder)) == ([1], [])


def test_an_error_in_the_body_gives_the_turn_back(folder: Path) -> None:
    with pytest.raises(ZeroDivisionError), RunQueue(folder, 1).wait_for_slot("a", never, unheard):
        _ = 1 // 0
    assert files(folder) == []


def test_threads_take_turns_and_no_more_run_than_may(folder: Path) -> None:
    turns, lock, at_work, most = RunQueue(folder, 3), threading.Lock(), 0, 0

    def work(owner: str) -> None:
        nonlocal at_work, most
        with turns.wait_for_slot(owner, never, unheard):
            with lock:
                at_work += 1
                most = max(most, at_work)
            time.sleep(0.002)
            with lock:
                at_work -= 1

    threads = [threading.Thread(target=work, args=(owner,)) for owner in "abcd" * 8]
    with finished(threads):
        pass
    assert 0 < most <= 3
    assert files(folder) == []


@contextmanager
def finished(threads: Sequence[threading.Thread]) -> Iterator[None]:
    """Started before the body, ended after it."""
    for thread in threads:
        thread.start()
    yield
    for thread in threads:
        thread.join(DEADLINE_S)
        assert not thread.is_alive()


@pytest.mark.parametrize("shared", [True, False], ids=["one controller", "many controllers"])
def test_waiting_threads_are_served_in_the_order_of_the_line(folder: Path, shared: bool) -> None:
    first, order, positions = RunQueue(folder, 1), list[str](), dict[str, list[int]]()

    def work(name: str) -> None:
        turns = first if shared else RunQueue(folder, 1)
        with turns.wait_for_slot(name[0], never, positions.setdefault(name, []).append):
            order.append(name)

    with first.wait_for_slot("z", never, unheard):
        threads = []
        for n, name in enumerate(["a1", "a2", "a3", "b1", "b2"], 2):
            threads.append(threading.Thread(target=work, args=(name,)))
            threads[-1].start()
            wait_until(lambda n=n: len(first.list_tickets()) == n)  # type: ignore[misc]  # a default binds the loop's value
            wait_until(lambda name=name: bool(positions.get(name)))  # type: ignore[misc]  # before the next one comes
    for thread in threads:
        thread.join(DEADLINE_S)
    assert order == ["a1", "b1", "a2", "b2", "a3"]
    assert [positions[name][0] for name in ("a1", "a2", "a3", "b1", "b2")] == [1, 2, 3, 2, 4]
    assert files(folder) == []


HOLDER = """
import sys, pathlib
from sandbox.store.run_queue import RunQueue
turns = RunQueue(pathlib.Path(sys.argv[1]), 1)
with turns.wait_for_slot("dead", lambda: False, lambda position: print("waits", flush=True)):
    print("runs", flush=True)
    sys.stdin.read()
"""


@contextmanager
def another_process(folder: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with process:
        yield process
        process.kill()


def heard(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.slow
def test_killing_who_runs_or_waits_frees_the_place(folder: Path) -> None:
    turns = RunQueue(folder, 1)
    with another_process(folder) as running, another_process(folder) as second:
        assert {heard(running), heard(second)} == {"runs", "waits"}
        assert sorted(t.running for t in turns.list_tickets()) == [False, True]
        for process in (running, second):
            process.kill()
            process.wait()
        with turns.wait_for_slot("alive", never, unheard) as turn:
            assert turn.granted
            assert [t.owner for t in turns.list_tickets()] == ["alive"]
    assert files(folder) == []


WORKER = """
import os, pathlib, sys, threading, time
from sandbox.store.run_queue import RunQueue
turns, log = RunQueue(pathlib.Path(sys.argv[1]), 3), os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND)

def work(owner):
    for _ in range(5):
        with turns.wait_for_slot(owner, lambda: False, lambda place: None):
            os.write(log, b"+")
            time.sleep(0.005)  # so that they would meet
            os.write(log, b"-")

threads = [threading.Thread(target=work, args=(owner,)) for owner in "abcd"]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


@pytest.mark.slow
def test_processes_with_threads_keep_to_the_limit_together(folder: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.touch()
    argv = [sys.executable, "-c", WORKER, str(folder), str(log)]
    workers = [subprocess.Popen(argv) for _ in range(8)]
    assert [worker.wait(DEADLINE_S * 4) for worker in workers] == [0] * 8
    at_work = [1 if event == "+" else -1 for event in log.read_text()]
    assert (len(at_work), sum(at_work)) == (8 * 4 * 5 * 2, 0)
    assert max(accumulate(at_work)) <= 3
    assert files(folder) == []


def asleep(path: Path, seconds: float) -> None:
    """As if its owner had not been awake since."""
    then = time.time() - seconds
    os.utime(path, (then, then))


def is_granted(folder: Path) -> bool:
    """Whether a turn of another process comes before it has looked twice."""
    asked: list[int] = []
    with RunQueue(folder, 1).wait_for_slot("b", lambda: len(asked) > 0, asked.append) as turn:
        return turn.granted


def test_who_does_not_look_is_passed_over(folder: Path) -> None:
    """A stopped process keeps its lock; control: while its ticket is fresh, it keeps everybody else waiting."""
    stopped, turns = RunQueue(folder, 1), RunQueue(folder, 1)
    with turns.wait_for_slot("z", never, unheard):
        ticket, held = stopped._join("stopped", NoMemoryDemand())
    assert not is_granted(folder)
    asleep(folder / ticket.name, 2 * WAITING_STALE_S)
    assert is_granted(folder)
    stopped._leave(ticket, held)
    assert files(folder) == []


def test_who_runs_and_is_stopped_does_not_count_for_ever(folder: Path) -> None:
    """Control: it counts as long as it says that it is there, and for minutes after."""
    with RunQueue(folder, 1).wait_for_slot("stopped", never, unheard) as turn:
        (name,) = files(folder)
        assert not is_granted(folder)
        asleep(folder / name, 2 * WAITING_STALE_S)
        assert not is_granted(folder)
        asleep(folder / name, 2 * RUNNING_STALE_S)
        assert is_granted(folder)
        turn.heartbeat()
        assert not is_granted(folder)


def test_a_slot_granted_at_once_goes_stale_for_other_threads_of_its_process_too(folder: Path) -> None:
    """Control: with a heartbeat it counts. Only the check's own heartbeat refreshes it, not a poll of its process."""
    queue, asked = RunQueue(folder, 1), list[int]()
    with queue.wait_for_slot("hangs", never, unheard) as slot:
        (name,) = files(folder)
        asleep(folder / name, 2 * RUNNING_STALE_S)
        slot.heartbeat()
        with queue.wait_for_slot("b", lambda: len(asked) > 0, asked.append) as other:
            assert not other.granted
        asleep(folder / name, 2 * RUNNING_STALE_S)
        with queue.wait_for_slot("b", lambda: len(asked) > 1, asked.append) as other:
            assert other.granted
    assert files(folder) == []


# --- memory


class Demand:
    """A demand on a bound of 100 MiB. `asked`: what running checks were promised when room was to be made."""

    def __init__(self, mib: int, idle_mib: int = 0) -> None:
        self.needed_bytes, self.idle_bytes, self.asked = mib * MIB, idle_mib * MIB, list[int]()

    def fits(self, running: Sequence[Ticket]) -> bool:
        return sum_memory(running) + self.needed_bytes + self.idle_bytes <= 100 * MIB

    def make_room(self, running: Sequence[Ticket]) -> bool:
        self.asked.append(sum_memory(running) // MIB)
        self.idle_bytes = 0
        return self.fits(running)


def test_a_check_waits_until_there_is_memory_for_it(folder: Path) -> None:
    """It has a slot from the start; a smaller check behind it does not overtake it."""
    queue, order, heard = RunQueue(folder, 8), list[str](), list[int]()

    def run(name: str, mib: int, on_position: Callable[[int], None]) -> None:
        with queue.wait_for_slot(name, never, on_position, Demand(mib)):
            order.append(name)

    with queue.wait_for_slot("a", never, unheard, Demand(60)):
        large = threading.Thread(target=run, args=("large", 50, heard.append))
        large.start()
        wait_until(lambda: heard == [1])
        small = threading.Thread(target=run, args=("small", 1, heard.append))
        small.start()
        wait_until(lambda: heard == [1, 2])
        assert order == []
    for thread in (large, small):
        thread.join(DEADLINE_S)
    assert order[0] == "large"
    assert files(folder) == []


def test_room_is_made_before_a_check_waits(folder: Path) -> None:
    queue = RunQueue(folder, 8)
    with queue.wait_for_slot("a", never, unheard, Demand(40)):
        demand, heard = Demand(50, idle_mib=30), list[int]()
        with queue.wait_for_slot("b", never, heard.append, demand) as slot:
            assert (slot.granted, demand.asked, heard) == (True, [40], [])
            assert sorted(t.memory_mib for t in queue.list_tickets()) == [40, 50]


def test_a_check_that_waits_for_memory_can_be_given_up(folder: Path) -> None:
    queue, heard = RunQueue(folder, 8), list[int]()
    with (
        queue.wait_for_slot("a", never, unheard, Demand(60)),
        queue.wait_for_slot("b", lambda: bool(heard), heard.append, Demand(50)) as slot,
    ):
        assert not slot.granted
    assert files(folder) == []
