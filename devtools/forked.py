"""Run `sandbox` commands as forks of one process that has imported the package: 0.03 CPU seconds a start, not 0.5.

A fork is a process of its own. Its arguments, environment, directory and streams are those of the call, and it waits
for its threads and runs its exit handlers. What it cannot show is that the modules of a command import each other in
the order of that command, and that they are taken down in peace. `devtools.command` therefore starts the first command
of each kind as users do.

The file is also the program of that process. It runs isolated, as the command does, so it imports no other devtool.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from typing import NoReturn

_MESSAGE_BYTES = 1 << 20
_INTERPRETER = (sys.executable, "-I", __file__)


class ForkServer:
    """`environment`: what the process starts with; the package may read it while it is imported."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = dict(environment)
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - ours
                ["env", "--default-signal=INT,HUP,TERM", *_INTERPRETER, str(theirs.fileno())],  # noqa: S607 - as Command
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                env=self.environment,
            )
        atexit.register(self.close)

    def close(self) -> None:
        """End the process; commands that still run are left to end by themselves."""
        self._channel.close()
        self._process.wait()

    def run(self, arguments: Sequence[str], environment: Mapping[str, str], deadline_s: float) -> tuple[int, str, str]:
        """Exit code, stdout and stderr of one command. Raises: TimeoutError, after it has killed the command."""
        readers, writers = zip(*(os.pipe() for _ in range(3)), strict=True)
        order = {"arguments": list(arguments), "environment": dict(environment), "directory": os.getcwd()}  # noqa: PTH109
        try:
            socket.send_fds(self._channel, [json.dumps(order).encode()], writers)
        finally:
            for writer in writers:
                os.close(writer)
        stdout, stderr, status = _read_all(readers, time.monotonic() + deadline_s)
        return int(status.split()[1]), stdout.decode(), stderr.decode()


def _read_all(readers: Sequence[int], deadline: float) -> list[bytes]:
    """What each pipe gave until its end; all of them are closed."""
    found = {reader: b"" for reader in readers}
    with selectors.DefaultSelector() as selector:
        for reader in readers:
            selector.register(reader, selectors.EVENT_READ)
        try:
            while selector.get_map():
                ready = selector.select(max(0.0, deadline - time.monotonic()))
                if not ready:
                    _kill(found[readers[-1]])
                    raise TimeoutError("a forked command did not end, or did not close its output")
                for key, _ in ready:
                    chunk = os.read(key.fd, 1 << 16)
                    found[key.fd] += chunk
                    if not chunk:
                        selector.unregister(key.fd)
        finally:
            for reader in readers:
                os.close(reader)
    return list(found.values())


def _kill(status: bytes) -> None:
    if len(status.split()) == 1:  # its id, and no exit code yet
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(status), signal.SIGKILL)


def _serve(channel: socket.socket) -> None:
    """Fork for each message until the other end closes."""
    while True:
        message, descriptors, _, _ = socket.recv_fds(channel, _MESSAGE_BYTES, 3)
        if not message:
            return
        if os.fork() == 0:
            channel.close()
            _become(json.loads(message), descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _become(order: Mapping[str, object], descriptors: Sequence[int]) -> NoReturn:
    """Run the command in a child, and report its id and how it ended."""
    stdout, stderr, status = descriptors
    child = os.fork()
    if child:
        os.close(stdout)
        os.close(stderr)
        os.write(status, f"{child}\n".encode())
        os.write(status, f"{os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}\n".encode())
        os._exit(0)
    os.close(status)
    for source, target in ((stdout, 1), (stderr, 2)):
        os.dup2(source, target)
        os.close(source)
    _run_command(**order)  # type: ignore[arg-type]  # as `run` sends it


def _run_command(arguments: list[str], environment: dict[str, str], directory: str) -> NoReturn:
    """End as the interpreter does, but for taking down every module: 0.1 of its 0.15 CPU seconds."""
    command = importlib.import_module("sandbox.__main__")
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = [str(command.__file__), *arguments]
    try:
        code = command.main()
    except BaseException:  # noqa: BLE001 - the interpreter prints what reaches it
        traceback.print_exc()
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]  # as forks of multiprocessing do
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _main(descriptor: str) -> None:
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # as the command does before its imports
    package = importlib.import_module("sandbox")
    for module in pkgutil.walk_packages(package.__path__, "sandbox."):
        importlib.import_module(module.name)
    if threading.active_count() != 1:
        raise RuntimeError("an import started a thread, which no fork would have")
    gc.freeze()  # forks share these pages as long as no collection writes to them
    _serve(socket.socket(fileno=int(descriptor)))


if __name__ == "__main__":
    _main(sys.argv[1])
