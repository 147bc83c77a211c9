"""Commands beside a check, in its own guest: how a script starts them, asks for files and ports, and sends signals.

A script is a generator that the session advances once in each turn of its loop, so one thread does all. It yields
where it waits. PID 1 bounds each command by its deadline and kills its process group (docs/adr/0111).

Commands beside a check have its user: a hostile check can forge what they print. The report of the check itself it
cannot forge.
"""

from __future__ import annotations

import errno
import os
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath

from sandbox.engine import pid1_messages
from sandbox.engine.pid1_messages import Busy, Command, ExitReport, Message, OutputChunk, PlaceAnswer

OVERDUE_S = 15.0
"""How long the report of a command may take after its deadline."""

ANSWER_S = 5.0
"""How long PID 1 may take to say whether a port or a file is there."""

_NOT_FOUND, _NOT_EXECUTABLE, _SIGNALLED = 127, 126, 128

Sender = Callable[[bytes], None]


def decode_exit(done: ExitReport) -> tuple[int | None, int | None]:
    """Return exit code and signal as a shell reports them: 128 plus the signal, 127 for a missing program.

    Both are None for a process that could not be killed.
    """
    if done.start_errno:
        return _NOT_FOUND if done.start_errno == errno.ENOENT else _NOT_EXECUTABLE, None
    if done.wait_status < 0:
        return None, None
    code = os.waitstatus_to_exitcode(done.wait_status)
    return (code, None) if code >= 0 else (_SIGNALLED - code, -code)


class BesideCommand:
    """A command beside the check. `ended`: its report is there, or it will have none. `cut_streams`: those with more
    output than is kept.
    """

    def __init__(self, deadline_s: float, keep_bytes: int) -> None:
        self._gives_up_at = time.monotonic() + deadline_s + OVERDUE_S
        self._keep_bytes = keep_bytes
        self._refused = False
        self.report: ExitReport | None = None
        self.outputs = {pid1_messages.STDOUT: bytearray(), pid1_messages.STDERR: bytearray()}
        self.output_bytes = 0
        self.cut_streams: set[str] = set()

    @property
    def ended(self) -> bool:
        return self.report is not None or self._refused or time.monotonic() > self._gives_up_at

    def receive(self, message: OutputChunk | ExitReport | Busy) -> None:
        """Take output, of which the first `keep_bytes` of each stream are kept, or the report."""
        if isinstance(message, ExitReport):
            self.report = message
        elif isinstance(message, Busy):
            self._refused = True
        else:
            kept = self.outputs[message.stream]
            room = max(0, self._keep_bytes - len(kept))
            kept += message.data[:room]
            if len(message.data) > room:
                self.cut_streams.add(message.stream)
            self.output_bytes += len(message.data)


class PlaceQuestion:
    """Whether a port or a file is there. `found`: None while there is no answer."""

    def __init__(self) -> None:
        self._gives_up_at = time.monotonic() + ANSWER_S
        self.found: bool | None = None

    @property
    def ended(self) -> bool:
        return self.found is not None or time.monotonic() > self._gives_up_at


class GuestControl:
    """What a script may do in the guest of its check. No method waits: the script yields until `ended`."""

    def __init__(self, nonce: bytes, send: Sender) -> None:
        self._nonce = nonce
        self._send = send
        self._commands: dict[bytes, BesideCommand] = {}
        self._questions: dict[bytes, PlaceQuestion] = {}
        self.ended = False

    def start(self, command: Command, deadline_s: float, keep_bytes: int) -> BesideCommand:
        """Start a command beside the check. Raises: ValueError for a command that does not fit a frame."""
        nonce = secrets.token_bytes(pid1_messages.NONCE_BYTES)
        self._send(pid1_messages.beside_frame(nonce, command, deadline_s))
        started = self._commands[nonce] = BesideCommand(deadline_s, keep_bytes)
        return started

    def ask_port(self, port: int) -> PlaceQuestion:
        """Ask whether something listens on this port of the guest's loopback."""
        return self._ask(lambda token: pid1_messages.port_frame(token, port))

    def ask_file(self, path: PurePosixPath) -> PlaceQuestion:
        """Ask whether the guest has this regular file."""
        return self._ask(lambda token: pid1_messages.file_frame(token, path))

    def signal(self, number: int) -> None:
        """Send a signal to the check's own process."""
        self._send(pid1_messages.signal_frame(self._nonce, number))

    def end(self) -> None:
        """Kill the check: its script is over."""
        self.ended = True
        self._send(pid1_messages.kill_frame(self._nonce))

    def receive(self, message: Message) -> None:
        """Take a message of PID 1; those that do not answer this script are ignored."""
        if isinstance(message, PlaceAnswer):
            question = self._questions.pop(message.token, None)
            if question is not None:
                question.found = message.error == 0
        elif isinstance(message, OutputChunk | ExitReport | Busy):
            command = self._commands.get(message.nonce)
            if command is not None:
                command.receive(message)

    def _ask(self, build: Callable[[bytes], bytes]) -> PlaceQuestion:
        token = secrets.token_bytes(pid1_messages.NONCE_BYTES)
        self._send(build(token))
        asked = self._questions[token] = PlaceQuestion()
        return asked


Beside = Callable[[GuestControl], Iterator[None]]
"""Begins a script for one check."""
