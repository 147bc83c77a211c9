"""The end of a connection to a Temporal server."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from temporalio.client import Client

from sandbox.cluster import server_thread
from sandbox.cluster.asked_operations import AskedOperations
from sandbox.cluster.server_thread import ServerThread
from sandbox.cluster.temporal_client import ClusterAddress
from sandbox.errors import ErrorCode
from tests.unit.conftest import refused

_PROGRAM = '''
import os, socket, sys, threading, time
from asyncio.selector_events import BaseSelectorEventLoop
from sandbox.cluster import temporal_client
from sandbox.cluster.server_thread import ServerThread
from sandbox.errors import SandboxError

reads, writes = os.pipe()

class End:
    """Of the interpreter: lets the thread go on, and gives it time."""

    def __init__(self):
        self.write, self.sleep, self.pipe = os.write, time.sleep, writes

    def __del__(self):
        self.write(self.pipe, b"x")
        self.sleep(1.0)

end, wake_up, is_answered = End(), BaseSelectorEventLoop._write_to_self, threading.Event()

def wake_up_slowly(loop):
    wake_up(loop)
    if isinstance(threading.current_thread(), threading._DummyThread):
        is_answered.set()
        os.read(reads, 1) if sys.argv[1] == "leave" else time.sleep(0.3)

BaseSelectorEventLoop._write_to_self = wake_up_slowly
temporal_client.CONNECT_S = 60.0
if sys.argv[1] == "leave":
    temporal_client.end_threads = lambda *_: None
if sys.argv[1] == "silent":
    temporal_client.CONNECT_S = 0.5
    is_answered.set()
server = socket.create_server(("127.0.0.1", 0))
place = temporal_client.ClusterAddress(f"127.0.0.1:{server.getsockname()[1]}")

def refuse():
    connection, _ = server.accept()
    server.close()
    connection.close()

if sys.argv[1] != "silent":
    threading.Thread(target=refuse).start()
try:
    ServerThread(place)
except SandboxError as error:
    print(error.code.value)
assert is_answered.is_set()

def find_name(thread):
    try:
        with open(f"/proc/self/task/{thread}/comm") as stream:
            return stream.read()
    except OSError:
        return "ended"

print(sum(find_name(thread).startswith("tokio") for thread in os.listdir("/proc/self/task")))
'''
"""The client library answers from a thread that is then slow to leave the interpreter, which ends slowly."""


@pytest.mark.parametrize("how", ["end", "silent", "leave"])
def test_a_process_ends_well_while_a_thread_of_the_client_library_has_just_answered(how: str) -> None:
    """`silent`: the server accepts and says no word. The control leaves the threads of the library as they are: as a
    rule it is killed by a signal.
    """
    argv = [sys.executable, "-I", "-c", _PROGRAM, how]
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    code, threads = ended.stdout.split()
    assert (code, threads == "0") == ("network_error", how != "leave"), ended.stderr
    assert how == "leave" or ended.returncode == 0, ended.stderr


@pytest.fixture
def connection(monkeypatch: pytest.MonkeyPatch) -> Iterator[ServerThread]:
    async def connect(*_: Any, **__: Any) -> Client:
        return await Client.connect("127.0.0.1:9", lazy=True)

    monkeypatch.setattr(server_thread, "connect_client", connect)
    made = ServerThread(ClusterAddress("127.0.0.1:9"))
    yield made
    made.close()


def test_callers_that_wait_when_a_connection_is_closed_get_an_error_of_their_own(connection: ServerThread) -> None:
    """Also one that takes the first cancellation for a failure of the server. Control: before, it answers."""
    begun = threading.Semaphore(0)

    async def wait() -> None:
        begun.release()
        await asyncio.sleep(60)

    async def wait_stubbornly() -> None:
        try:
            await wait()
        except asyncio.CancelledError:
            await asyncio.sleep(60)

    async def answer() -> str:
        return "answer"

    assert connection.wait(answer()) == "answer"
    assert connection.client is not None
    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(connection.wait, work) for work in (wait(), wait_stubbornly())]
        assert all(begun.acquire(timeout=60) for _ in waiting)
        connection.close()
        connection.close()
    later: list[Callable[[], object]] = [lambda: connection.wait(answer()), lambda: connection.client]
    for question in [*later, *(one.result for one in waiting)]:
        with refused(ErrorCode.NETWORK_ERROR) as error:
            question()
        assert error.value.reason == "connection_closed"


def test_a_thread_that_outlives_the_connection_makes_no_other_one() -> None:
    asked = AskedOperations(lambda: pytest.fail("connected"))
    asked.close()
    with refused(ErrorCode.NETWORK_ERROR) as error:
        _ = asked.dispatcher
    assert error.value.reason == "connection_closed"
