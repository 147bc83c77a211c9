"""THREATS L: a guest that eats, floods, hides or stays. Real containers; the verdict comes from facts."""

from __future__ import annotations

import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from devtools.host_speed import slowness
from sandbox.engine.connection import DockerEngine
from sandbox.errors import ErrorCode, SandboxError
from sandbox.store.home import Home
from tests.attack.arena import Arena, outcome, variants

pytestmark = pytest.mark.must
SMALL = "limits = {{ memory_bytes = 67108864, cpus = 1.0, pids = 32, output_bytes = {output} }}\ntimeout_s = {seconds}"


def limits(*, output: int = 65536, seconds: float = 30) -> str:
    return SMALL.format(output=output, seconds=seconds)


def only_run(arena: Arena) -> Any:
    return arena.workbench.run(str(arena.remote)).runs[0]


def plain(engine: DockerEngine, *argv: str, **host: Any) -> dict[str, Any]:
    """The same command in a container with the engine's defaults: its state at the end."""
    body = {"Image": "space-sandbox/base", "Entrypoint": list(argv), "HostConfig": {"NetworkMode": "none", **host}}
    made = engine.api.create_container_from_config(body)
    try:
        engine.api.start(made["Id"])
        engine.api.wait(made["Id"], timeout=30)
        state: dict[str, Any] = engine.api.inspect_container(made["Id"])["State"]
        state["log"] = engine.api.logs(made["Id"]).decode(errors="replace")
    finally:
        engine.api.remove_container(made["Id"], force=True, v=True)
    return state


FORKS = "i=0; while [ $i -lt 100 ]; do sleep 5 & i=$((i+1)); done; echo all"


@pytest.mark.thorough  # the suite has it as the entry that ships, L01
def test_l01_fork_bomb_is_contained(guests: Callable[..., Arena], engine: DockerEngine) -> None:
    """Control: without a limit of processes they all start. In the guest the fork fails, and so does the check."""
    assert "all" in plain(engine, "sh", "-c", FORKS)["log"], "void"
    before = len(list(Path("/proc").glob("[0-9]*")))
    run = only_run(guests("sh", "-c", f"({FORKS}) || exit 9", extra=limits()))
    assert run.verdict == "failed"
    assert "fork" in run.stderr_tail.lower()
    assert run.usage.pids_peak is None or run.usage.pids_peak <= 32
    assert len(list(Path("/proc").glob("[0-9]*"))) < before + 20


EATER = "head -c 200000000 /dev/zero | tail -c 150000000 >/dev/null; echo $?; exit 0"  # tail keeps that much


@pytest.mark.thorough  # the suite has it as the entry that ships, L02
def test_l02_oom_in_a_child_is_not_passed(guests: Callable[..., Arena], engine: DockerEngine) -> None:
    """Control: the container's own exit code is 0 although the kernel killed what ate."""
    control = plain(engine, "sh", "-c", EATER, Memory=64 * 1024**2, MemorySwap=64 * 1024**2)
    assert control["ExitCode"] == 0, "void"
    assert "137" in control["log"], "void"
    run = only_run(guests("sh", "-c", EATER, extra=limits()))
    assert run.stdout_tail == "137\n", "void: nothing was killed"
    assert run.verdict == "oom_killed"
    assert run.exit_code == 0


def test_l07_l08_output_floods_are_bounded_and_cost_no_deadline(guests: Callable[..., Arena]) -> None:
    """50 MB of lines and one line of 50 MB, on both streams at once."""
    script = "yes aaaaaaaaaaaaaaaaaaaaaaaa | head -c 50000000 & head -c 50000000 /dev/zero >&2 & wait"
    arena = guests("sh", "-c", script, extra=limits(output=65536, seconds=60))
    run = only_run(arena)
    assert run.verdict == "passed"
    assert (run.stdout_bytes, run.stderr_bytes) == (50_000_000, 50_000_000), "void: it did not print that much"
    assert run.truncated
    logs = [p for p in (arena.home / "repositories" / "logs").rglob("*") if p.suffix in {".stdout", ".stderr"}]
    assert len(logs) == 2
    assert max(p.stat().st_size for p in logs) < 70_000
    assert len(run.stdout_tail) <= 8192


def test_l08_a_reader_that_stalls_does_not_stop_the_deadline(guests: Callable[..., Arena]) -> None:
    from sandbox.workbench import Watch  # noqa: PLC0415

    arena = guests("sh", "-c", "while :; do echo flood; done", extra=limits(seconds=2))
    stalled = threading.Event()

    def follow(_name: str, _chunk: bytes) -> None:
        stalled.set()
        time.sleep(5)

    started = time.monotonic()
    summary = arena.workbench.run(str(arena.remote), watch=Watch(follow=follow))
    assert stalled.is_set(), "void"
    assert summary.runs[0].verdict == "timed_out"
    assert time.monotonic() - started < 20 * slowness()


TRAPS = "trap '' TERM INT HUP QUIT ALRM; while :; do sleep 1; done"


@pytest.mark.thorough  # the suite has it as the entry that ships, L09
def test_l09_deadline_ends_what_ignores_every_signal(guests: Callable[..., Arena], engine: DockerEngine) -> None:
    """Control: SIGTERM alone does not."""
    body = {"Image": "space-sandbox/base", "Entrypoint": ["sh", "-c", TRAPS], "HostConfig": {"NetworkMode": "none"}}
    made = engine.api.create_container_from_config(body)
    try:
        engine.api.start(made["Id"])
        time.sleep(0.3)  # until the traps are set
        engine.api.kill(made["Id"], signal="SIGTERM")
        time.sleep(0.3)
        assert engine.api.inspect_container(made["Id"])["State"]["Running"], "void"
    finally:
        engine.api.remove_container(made["Id"], force=True)
    run = only_run(guests("sh", "-c", TRAPS, extra=limits(seconds=2)))
    assert run.verdict == "timed_out"
    assert 2 <= run.wall_time_s < 8 * slowness()


def test_l10_l14_stopped_main_process_dies_at_the_deadline(guests: Callable[..., Arena]) -> None:
    """It stops itself and its parent (PID 1 ignores that), so nothing but the kill from outside can end it."""
    run = only_run(
        guests("sh", "-c", "kill -STOP 1; echo stopping; kill -STOP $$; echo never", extra=limits(seconds=2))
    )
    assert run.verdict == "timed_out"
    assert "stopping" in run.stdout_tail
    assert "never" not in run.stdout_tail


ORPHANS = (
    "for i in 1 2 3; do setsid sh -c 'while :; do date +%N >>/workspace/{name}; sleep 0.05; done' & done; "
    "sleep 0.3; {end}"
)


@pytest.mark.parametrize(("end", "verdict"), [("exit 0", "passed"), ("sleep 60", "timed_out")])
def test_l11_l12_l13_orphans_end_with_the_check(
    guests: Callable[..., Arena], end: str, verdict: str, engine: DockerEngine
) -> None:
    """Control: they do write while the check runs. Afterwards the container runs PID 1 alone, nothing is written."""
    name = f"orphan-{uuid.uuid4().hex}"  # other tests' orphans run at the same time
    arena = guests("sh", "-c", ORPHANS.format(name=name, end=end), extra=limits(seconds=2))
    arena.new_task()
    (run,) = arena.workbench.run_checks(arena.task.id, ["go"])
    assert run.verdict == verdict
    size = (arena.worktree / name).stat().st_size
    assert size > 0, "void"
    label = f"space.sandbox.instance={Home(arena.home).instance_id}"
    (kept,) = engine.api.containers(all=True, filters={"label": label})
    assert len(engine.api.top(kept["Id"])["Processes"]) == 1
    time.sleep(0.5)
    assert (arena.worktree / name).stat().st_size == size
    assert not [p for p in Path("/proc").glob("[0-9]*/cmdline") if name.encode() in _bytes(p)]


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


@pytest.mark.parametrize("code", variants([0, 1, 125, 126, 127, 137, 143, 255], 0, 125, 137, 255))
def test_l18_l19_exit_codes_are_the_programs_own(guests: Callable[..., Arena], code: int) -> None:
    run = only_run(guests("sh", "-c", f"exit {code}", extra=limits()))
    assert run.exit_code == code
    assert run.verdict == ("passed" if code == 0 else "failed")


def test_l19_a_child_killed_by_itself_is_no_infrastructure_error(guests: Callable[..., Arena]) -> None:
    run = only_run(guests("sh", "-c", "kill -KILL $$", extra=limits()))
    assert (run.verdict, run.exit_code) == ("failed", 137)
    missing = guests("/no/such/program", extra=limits())
    error = outcome(lambda: only_run(missing))
    assert error is None or error.code is not ErrorCode.TIMEOUT


def test_l16_no_descriptor_is_left_per_check(guests: Callable[..., Arena]) -> None:
    """The SDK keeps a pool of connections; past that nothing may grow. Control: one that is opened is counted."""
    arena = guests("true", extra=limits())
    for _ in range(6):
        only_run(arena)
    before = len(list(Path("/proc/self/fd").iterdir()))
    with Path("/dev/null").open():
        assert len(list(Path("/proc/self/fd").iterdir())) == before + 1, "void"
    for _ in range(4):
        only_run(arena)
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + 1


@contextmanager
def wedged(path: Path, real: str, hang_at: bytes) -> Iterator[list[bytes]]:
    """An engine before the real one that stops answering at one call."""
    seen: list[bytes] = []
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen()
    open_sockets: list[socket.socket] = []

    def serve(client: socket.socket) -> None:
        upstream = socket.socket(socket.AF_UNIX)
        upstream.connect(real)
        open_sockets.extend((client, upstream))

        def back() -> None:
            while data := _received(upstream):
                client.sendall(data)
            with suppress(OSError):  # closed by then
                client.shutdown(socket.SHUT_WR)

        threading.Thread(target=back, daemon=True).start()
        while data := _received(client):
            seen.append(data.split(b"\r\n")[0])
            if hang_at in data:
                return
            upstream.sendall(data)

    def accept() -> None:
        while True:
            try:
                client, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(client,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield seen
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        for each in open_sockets:
            each.close()


def _received(stream: socket.socket) -> bytes:
    try:
        return stream.recv(1 << 16)
    except OSError:
        return b""


@pytest.mark.parametrize("hang_at", [b"/containers/create", b"/start", b"/json HTTP", b"/attach"])
def test_l20_wedged_engine_ends_in_a_typed_error(
    guests: Callable[..., Arena], engine: DockerEngine, hang_at: bytes, tmp_path: Path
) -> None:
    """Control: the calls before it went through. On a busy host one of them may take longer than the first patience;
    then this says nothing about the call that hangs, and is repeated with more.
    """
    for timeout_s in (1.0, 4.0, 16.0):
        path = tmp_path / f"engine-{timeout_s}.sock"
        arena = guests("true", extra=limits(), settings={"engine": {"host": f"unix://{path}", "timeout_s": timeout_s}})
        real = engine.endpoint.url.removeprefix("unix://")
        started = time.monotonic()
        with wedged(path, real, hang_at) as seen:
            with pytest.raises(SandboxError) as caught:
                only_run(arena)
            arena.workbench.__exit__(None, None, None)
        took_s = time.monotonic() - started
        assert caught.value.code in {ErrorCode.TIMEOUT, ErrorCode.ENGINE_UNAVAILABLE, ErrorCode.INTERNAL}
        assert list((arena.home / "repositories" / "rooms").iterdir()) == []
        _sweep(engine, arena)
        if _was_reached(hang_at, seen):
            break
    assert _was_reached(hang_at, seen), "void"
    assert took_s < 15 * timeout_s * slowness()


def _was_reached(hang_at: bytes, seen: list[bytes]) -> bool:
    return any(hang_at in line for line in seen)


def _sweep(engine: DockerEngine, arena: Arena) -> None:
    """What the wedged engine kept us from removing is the reaper's, which is a later issue."""
    instance = arena.home / "instance"
    if instance.exists():
        label = f"space.sandbox.instance={Home(arena.home).instance_id}"
        for container in engine.api.containers(all=True, filters={"label": label}):
            engine.api.remove_container(container["Id"], force=True)
