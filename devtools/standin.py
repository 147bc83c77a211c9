"""The program that stands for a fork of `devtools.forked`, where a process is to be started: `standin.py SOCKET ...`.

The fork gets its arguments, environment, directory and standard streams, and this process keeps none of the streams.
It passes signals on, ends as the fork does, and when it is killed, so is the fork. Its id is not that of the fork.

It imports next to nothing, and no other devtool: a start costs 0.02 CPU seconds.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # typeshed lacks it
import _socket
import marshal
import os
import sys
from types import FrameType

_FORWARDED = (_signal.SIGHUP, _signal.SIGINT, _signal.SIGTERM)
_STREAMS = (0, 1, 2)


def _main(address: str, arguments: list[str]) -> None:
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    connection.connect(address)
    order = marshal.dumps((arguments, dict(os.environ), os.getcwd()))  # noqa: PTH109 - pathlib takes long to import
    streams = b"".join(number.to_bytes(4, sys.byteorder) for number in _STREAMS)
    connection.sendmsg([order], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])

    def forward(number: int, _frame: FrameType | None) -> None:
        connection.send(str(number).encode())

    for number in _FORWARDED:
        _signal.signal(number, forward)
    null = os.open(os.devnull, os.O_RDWR)
    for stream in _STREAMS:
        os.dup2(null, stream)
    code = int(connection.recv(16) or 1)
    if code < 0:
        if -code in _FORWARDED:
            _signal.signal(-code, _signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    _main(sys.argv[1], sys.argv[2:])
