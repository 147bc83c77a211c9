"""Run `sandbox` commands as forks of one process that has imported the package: 0.03 CPU seconds a start, not 0.5.

A fork is a process of its own. Its arguments, environment, directory and streams are those of the call, and it waits
for its threads and runs its exit handlers. What it cannot show is that the modules of a command import each other in
the order of that command, and that they are taken down in peace. `devtools.command` therefore starts the first command
of each kind as users do.

Each fork has a second process that is its parent. It passes on signals and reports how the fork ended, on a connection
of its own; when that is closed, it kills the fork. The other end is `ForkServer.run`, or a process that stands for the
fork where a program is to be started: `devtools.standin`.

The file is also the program of the process that forks. It runs isolated, as the command does, so it imports no other
devtool; one that stands beside it is loaded by its path: `devtools.extracted_programs`.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import importlib.util
import marshal
import os
import pkgutil
import select
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

_MESSAGE_BYTES = 1 << 20
_INTERPRETER = (sys.executable, "-I", __file__)
_STAND_IN = (sys.executable, "-I", "-S", str(Path(__file__).with_name("standin.py")))
_COMMAND = ("-I", "-m", "sandbox")
_EXTRACTED = Path(__file__).with_name("extracted_programs.py")


class ForkServer:
    """`environment`: what the process starts with; the package may read it while it is imported.

    `stand_in`: the start of a command line that is a fork for the process that starts it.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = dict(environment)
        self._folder = tempfile.mkdtemp(prefix="forked-")
        self._address = f"{self._folder}/socket"
        self.stand_in = (*_STAND_IN, self._address)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(self._address)
            listener.listen()
            self._process = subprocess.Popen(  # noqa: S603 - ours
                ["env", "--default-signal=INT,HUP,TERM", *_INTERPRETER, str(listener.fileno())],  # noqa: S607 - as Command
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                pass_fds=(listener.fileno(),),
                env=self.environment,
            )
        atexit.register(self.close)

    def close(self) -> None:
        """End the process; commands that still run are left to end by themselves."""
        self._process.communicate()  # closes its standard input
        shutil.rmtree(self._folder, ignore_errors=True)

    def run(self, arguments: Sequence[str], environment: Mapping[str, str], deadline_s: float) -> tuple[int, str, str]:
        """Exit code, stdout and stderr of one command. Raises: TimeoutError, after it has had the command killed."""
        readers, writers = zip(*(os.pipe() for _ in range(2)), strict=True)
        null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        order = marshal.dumps((list(arguments), dict(environment), os.getcwd()))  # noqa: PTH109
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            try:
                connection.connect(self._address)
                socket.send_fds(connection, [order], (null, *writers))
            finally:
                for descriptor in (null, *writers):
                    os.close(descriptor)
            stdout, stderr, code = _read_all((*readers, connection.fileno()), time.monotonic() + deadline_s)
        return int(code), stdout.decode(), stderr.decode()


def _read_all(readers: Sequence[int], deadline: float) -> list[bytes]:
    """What each descriptor gave until its end; all of them but the last are closed."""
    found = {reader: b"" for reader in readers}
    with selectors.DefaultSelector() as selector:
        for reader in readers:
            selector.register(reader, selectors.EVENT_READ)
        try:
            while selector.get_map():
                ready = selector.select(max(0.0, deadline - time.monotonic()))
                if not ready:
                    raise TimeoutError("a forked command did not end, or did not close its output")
                for key, _ in ready:
                    chunk = os.read(key.fd, 1 << 16)
                    found[key.fd] += chunk
                    if not chunk:
                        selector.unregister(key.fd)
        finally:
            for reader in readers[:-1]:
                os.close(reader)
    return list(found.values())


def _serve(listener: socket.socket) -> None:
    """Fork for each connection until the standard input is closed."""
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    poll.register(0, select.POLLIN)
    while all(descriptor != 0 for descriptor, _ in poll.poll()):
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            _attend(connection)
        connection.close()
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _attend(connection: socket.socket) -> NoReturn:
    """Run what the connection asks for in a child, pass signals on to it, and report how it ended."""
    message, descriptors, _, _ = socket.recv_fds(connection, _MESSAGE_BYTES, 3)
    if not message:
        os._exit(0)
    child = os.fork()
    if child == 0:
        connection.close()
        for target, source in enumerate(descriptors):
            os.dup2(source, target)
            os.close(source)
        _run_command(*marshal.loads(message))  # noqa: S302 - ours
    for descriptor in descriptors:
        os.close(descriptor)
    _pass_signals_on(connection, child)
    with contextlib.suppress(OSError):  # the other end waits no longer
        connection.send(str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])).encode())
    os._exit(0)


def _pass_signals_on(connection: socket.socket, child: int) -> None:
    """Until the child ends. A message is the number of a signal; the end of the connection kills."""
    ended, poll = os.pidfd_open(child), select.poll()
    poll.register(connection, select.POLLIN)
    poll.register(ended, select.POLLIN)
    while all(descriptor != ended for descriptor, _ in poll.poll()):
        try:
            word = connection.recv(16)
        except ConnectionError:
            word = b""
        os.kill(child, int(word or signal.SIGKILL))  # not reaped yet, so it is no other process
        if not word:
            poll.unregister(connection)


def _run_command(arguments: list[str], environment: dict[str, str], directory: str) -> NoReturn:
    """End as the interpreter does, but for taking down every module: 0.1 of its 0.15 CPU seconds."""
    command = importlib.import_module("sandbox.__main__")
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = [str(command.__file__), *arguments]
    sys.orig_argv = [sys.executable, *_COMMAND, *arguments]  # what a daemon executes that replaces its program
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
    _load(_EXTRACTED).use_again()
    if threading.active_count() != 1:
        raise RuntimeError("an import started a thread, which no fork would have")
    gc.freeze()  # forks share these pages as long as no collection writes to them
    _serve(socket.socket(fileno=int(descriptor)))


def _load(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no module")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    _main(sys.argv[1])
