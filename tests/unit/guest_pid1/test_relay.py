"""images/init/relay.c: it passes bytes between loopback and a Unix socket, and ends as its command does."""

from __future__ import annotations

import shlex
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from sandbox.images.supervisor import require_static_program
from tests.unit.conftest import ROOT, compiled, open_folder

DEADLINE_S = 60


@pytest.fixture(scope="session")
def relay() -> Iterator[Path]:
    with open_folder(0o755) as found:
        yield compiled(ROOT / "images" / "init" / "relay.c", found / "relay", "-fstack-protector-strong")


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


@contextmanager
def proxying(path: Path, answer: Callable[[socket.socket], None]) -> Iterator[None]:
    """A server on the Unix socket, with a thread for each connection."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        listener.settimeout(0.1)
        ended = threading.Event()
        threads: list[threading.Thread] = []

        def one(connection: socket.socket) -> None:
            with connection, suppress(OSError):
                connection.settimeout(DEADLINE_S)
                answer(connection)

        def serve() -> None:
            while not ended.is_set():
                with suppress(OSError):
                    threads.append(threading.Thread(target=one, args=(listener.accept()[0],)))
                    threads[-1].start()

        server = threading.Thread(target=serve)
        server.start()
        try:
            yield
        finally:
            ended.set()
            for thread in (server, *threads):
                thread.join()


def run(relay: Path, path: Path, port: int, *argv: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([relay, path, str(port), *argv], capture_output=True, timeout=DEADLINE_S, check=False)


@contextmanager
def running(relay: Path, path: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """A relay whose command waits until its stdin is closed. It listens when its command begins."""
    command = [str(relay), str(path), str(port), "sh", "-c", "echo begins; cat"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdout.readline() == b"begins\n"
        yield process
        process.communicate(timeout=DEADLINE_S)


def read_all(client: socket.socket) -> bytes:
    found = b""
    while more := client.recv(65536):
        found += more
    return found


def echo_all(connection: socket.socket) -> None:
    """Answer only when the other side has sent everything."""
    connection.sendall(read_all(connection)[::-1])


def test_whole_program_can_be_handed_out(relay: Path) -> None:
    printed = subprocess.run([relay, "--hand-out"], capture_output=True, check=True, timeout=DEADLINE_S).stdout
    assert printed == relay.read_bytes()
    require_static_program(printed)


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137), ("kill $$", 143)])
def test_it_ends_as_its_command_does(relay: Path, folder: Path, port: int, script: str, code: int) -> None:
    assert run(relay, folder / "socket", port, "sh", "-c", script).returncode == code


def test_command_that_is_not_there_is_named(relay: Path, folder: Path, port: int) -> None:
    ended = run(relay, folder / "socket", port, "/nonexistent/pip")
    assert ended.returncode == 127
    assert b"/nonexistent/pip" in ended.stderr


@pytest.mark.parametrize("words", ["", "s 3128", "s 0 true", "s 65536 true", "s x true", f"{'s' * 108} 3128 true"])
def test_other_words_are_refused(relay: Path, words: str) -> None:
    assert subprocess.run([relay, *shlex.split(words)], check=False, timeout=DEADLINE_S).returncode == 64


def test_port_in_use_ends_it_before_the_command(relay: Path, folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as used:
        ended = run(relay, folder / "socket", used.getsockname()[1], "sh", "-c", "echo ran")
    assert (ended.returncode, ended.stdout) == (71, b"")


def test_bytes_go_both_ways_and_each_end_of_stream_is_passed_on(relay: Path, folder: Path, port: int) -> None:
    message = bytes(range(256)) * 4096  # more than all buffers
    with (
        proxying(folder / "socket", echo_all),
        running(relay, folder / "socket", port),
        socket.create_connection(("127.0.0.1", port), DEADLINE_S) as client,
    ):
        client.sendall(message)
        client.shutdown(socket.SHUT_WR)
        assert read_all(client) == message[::-1]


def test_slow_connection_does_not_stop_others_and_more_than_it_has_room_for_wait(
    relay: Path, folder: Path, port: int
) -> None:
    with proxying(folder / "socket", echo_all), running(relay, folder / "socket", port):
        waiting = [socket.create_connection(("127.0.0.1", port), DEADLINE_S) for _ in range(80)]
        for client in waiting:
            client.sendall(b"ab")
        for client in waiting:
            with client:
                client.shutdown(socket.SHUT_WR)
                assert read_all(client) == b"ba"


def test_without_a_proxy_a_connection_is_closed(relay: Path, folder: Path, port: int) -> None:
    with (
        running(relay, folder / "socket", port),
        socket.create_connection(("127.0.0.1", port), DEADLINE_S) as client,
        suppress(ConnectionError),
    ):
        assert client.recv(1) == b""


def test_closed_or_reset_connections_cost_no_processor_time(relay: Path, folder: Path, port: int) -> None:
    """Each end that is half gone must not wake it again and again."""

    def hold(connection: socket.socket) -> None:
        connection.recv(1)
        connection.sendall(bytes(8 * 1024**2))

    with (
        proxying(folder / "socket", hold),
        running(relay, folder / "socket", port) as process,
        socket.create_connection(("127.0.0.1", port), DEADLINE_S) as client,
    ):
        client.sendall(b"x")
        client.shutdown(socket.SHUT_WR)
        client.recv(1)
        before = processor_time_s(process.pid)
        time.sleep(1.0)  # nothing happens: that is what is measured
        assert processor_time_s(process.pid) - before < 0.2


def processor_time_s(pid: int) -> float:
    """proc(5): user and system time, in ticks of 10 ms."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100
