"""Hand a command to the daemon of its home, if one answers; `sandbox serve` is that daemon (docs/adr/0123).

Theory. Most of what a short command costs is imports, and the daemon has them done. So this module imports almost no
other: no `socket`, `json` or `signal`, which bring `enum` and `re`. It passes on its arguments, its environment and its
three standard streams themselves. The daemon finds the rest of what a process is (directory, umask, limits, ignored
signals) in `/proc`, forks, and the copy runs the same command as this process would. What is written goes straight to
our streams; we only forward signals, and end as the command did.

Until the daemon has answered that it will run the command, it has done no work. So whatever is in the way - no socket,
another user behind it, another version, a process that is more confined than the daemon - the command runs here.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # typeshed lacks it
import _socket
import os
import sys

FOLDER, SOCKET = "serve", "commands.sock"
PROTOCOL = b"1"
RUNS, REFUSES = b"R", b"N"
"""The daemon's first byte. It is followed by the status of the command (`STATUS_BYTES`), or by the reason."""

STATUS_BYTES = 4
LENGTH_BYTES = 4
OPTION = "--no-daemon"
IN_PROCESS = frozenset({"credentials", "dashboard", "doctor", "mcp", "serve"})
"""Commands that are servers, ask for a secret at the terminal, or are about the very process that runs them."""

FORWARDED = (_signal.SIGHUP, _signal.SIGINT, _signal.SIGQUIT, _signal.SIGTERM, _signal.SIGUSR1, _signal.SIGUSR2)
_LOST_CODE = 5  # as for an engine or network that fails
_CREDENTIALS_BYTES = 12  # struct ucred: pid, uid, gid
_ANSWER_S = 10.0


def run_in_daemon(arguments: list[str]) -> int | None:
    """Run the command in the daemon and return its exit code; None: this process has to run it."""
    home = _find_home(arguments)
    streams = _describe_streams()
    if home is None or streams is None:
        return None
    connection = _connect(home)
    if connection is None:
        return None
    try:
        connection.settimeout(_ANSWER_S)
        _send(connection, _build_request(arguments, streams))
        if connection.recv(1) != RUNS:
            return None
        connection.settimeout(None)
    except OSError:
        return None
    return _wait(connection)


def _find_home(arguments: list[str]) -> str | None:
    """The home that the command line names; None for commands that always run in their own process."""
    named, command, words = None, None, iter(arguments)
    for word in words:
        if word in {"--", OPTION}:
            if word == OPTION:
                return None
            break
        if word == "--home":
            named = next(words, None)
        elif word.startswith("--home="):
            named = word[len("--home=") :]
        elif command is None and not word.startswith("-"):
            command = word
    return None if command is None or command in IN_PROCESS else named or default_home(os.environ)


def default_home(environ: os._Environ[str] | dict[str, str]) -> str:
    """As `sandbox.store.home.default_home`, without its imports; '' if there is no home directory."""
    if configured := environ.get("SANDBOX_HOME"):
        return os.path.expanduser(configured)  # noqa: PTH111 - pathlib costs more than all of this module
    data = environ.get("XDG_DATA_HOME", "")
    return os.path.join(data if data.strip() else os.path.expanduser("~/.local/share"), "space")  # noqa: PTH111, PTH118 - as above


def _describe_streams() -> str | None:
    """Encodings and error handlers of the standard streams; None if one is closed, which only its own process shows."""
    words = []
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if stream is None:
            return None
        words += [stream.encoding, stream.errors or "strict"]
    return " ".join([*words, sys.getfilesystemencoding()])


def _connect(home: str) -> _socket.socket | None:
    """A connection to a daemon of our own user; through a descriptor, as the path of a socket has 107 bytes at most."""
    try:
        folder = os.open(os.path.join(home, FOLDER), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)  # noqa: PTH118 - as above
    except (OSError, ValueError):
        return None
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC)
    try:
        connection.settimeout(_ANSWER_S)
        connection.connect(f"/proc/self/fd/{folder}/{SOCKET}")
        peer = connection.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, _CREDENTIALS_BYTES)
        if int.from_bytes(peer[4:8], sys.byteorder) == os.geteuid():
            return connection
    except OSError:
        pass
    finally:
        os.close(folder)
    connection.close()
    return None


def _build_request(arguments: list[str], streams: str) -> bytes:
    """Words with NUL between them, which neither arguments nor variables can contain."""
    package = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - as above
    variables = [name + b"=" + value for name, value in os.environb.items()]
    head = [PROTOCOL, os.fsencode(package), streams.encode(), b"%d" % len(arguments)]
    return b"\0".join([*head, *map(os.fsencode, arguments), *variables])


def _send(connection: _socket.socket, request: bytes) -> None:
    descriptors = b"".join(number.to_bytes(4, sys.byteorder) for number in (0, 1, 2))
    message = len(request).to_bytes(LENGTH_BYTES, "big") + request
    sent = connection.sendmsg([message], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, descriptors)])
    connection.sendall(message[sent:])


def _wait(connection: _socket.socket) -> int:
    """Forward signals until the command ends."""

    def forward(number: int, _frame: object) -> None:
        try:  # noqa: SIM105 - contextlib costs more than all of this module
            connection.send(bytes([number]))
        except OSError:
            pass  # it has ended

    def stop(_number: int, frame: object) -> None:
        forward(_signal.SIGSTOP, frame)
        os.kill(os.getpid(), _signal.SIGSTOP)
        forward(_signal.SIGCONT, frame)

    for number in FORWARDED:
        if _signal.getsignal(number) is not _signal.SIG_IGN:
            _signal.signal(number, forward)
    if _signal.getsignal(_signal.SIGTSTP) is not _signal.SIG_IGN:
        _signal.signal(_signal.SIGTSTP, stop)
    status = _receive_status(connection)
    if status is None:
        os.write(2, b"error [internal] The process that ran this command in the daemon was killed\n")
        return _LOST_CODE
    if status < 0:
        _signal.signal(-status, _signal.SIG_DFL) if -status not in {_signal.SIGKILL, _signal.SIGSTOP} else None
        os.kill(os.getpid(), -status)
    return status if status >= 0 else 128 - status


def _receive_status(connection: _socket.socket) -> int | None:
    """The exit code, or minus the signal that ended the command; None if that is not known."""
    answer = b""
    while len(answer) < STATUS_BYTES:
        try:
            chunk = connection.recv(STATUS_BYTES - len(answer))
        except OSError:
            return None
        if not chunk:
            return None
        answer += chunk
    return int.from_bytes(answer, "big", signed=True)
