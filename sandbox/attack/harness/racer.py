"""The hostile side of a race, in a separate process: it ends with its parent and needs no compiler."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sandbox.attack.harness.outcomes import Void

CONTROL_S = 60.0
"""How long the control may take to be hit; usually milliseconds."""
ATTACK_S = 1.0
"""How long the product is attacked. A race is a statistical test, so the number of attempts is reported."""
MIN_TRIES = 3

_PROGRAM = """
import ctypes, os, signal, sys
libc = ctypes.CDLL(None)
libc.prctl(1, signal.SIGKILL)
if os.getppid() != int(sys.argv[1]): sys.exit()
how, a, b = sys.argv[2], os.fsencode(sys.argv[3]), sys.argv[4]
if how == "swap":
    b = os.fsencode(b)
    print(flush=True)
    while True: libc.renameat2(-100, a, -100, b, 2)
contents = [letter * int(b) for letter in (b"A", b"B")]
print(flush=True)
while True:
    fd = os.open(a, os.O_WRONLY | os.O_NOFOLLOW)
    for content in contents: os.pwrite(fd, content, 0)
    os.close(fd)
"""


@contextmanager
def run_racer(how: str, first: object, second: object) -> Iterator[None]:
    """Run the racer: `swap` exchanges two names for ever, `flip` overwrites a file in place with N bytes for ever.

    Raises: `Void` when the racer ended early.
    """
    words = [sys.executable, "-I", "-c", _PROGRAM, str(os.getpid()), how, str(first), str(second)]
    with subprocess.Popen(  # noqa: S603 - our own program
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        try:
            if not process.stdout or process.stdout.readline() != b"\n":
                raise Void("the racer did not start")
            yield
            if process.poll() is not None:
                raise Void("the racer ended")
        finally:
            process.kill()


def repeat_until_hit(attempt: Callable[[], bool], what: str) -> str:
    """A control: repeat the careless attempt until it is hit. Raises: `Void` when it is not hit in time."""
    tries, ends = 0, time.monotonic() + CONTROL_S
    while time.monotonic() < ends:
        tries += 1
        if attempt():
            return f"{what} after {tries} tries"
    raise Void(f"not hit in {tries} tries")


def attack_repeatedly(attempt: Callable[[], None]) -> int:
    """Attack the product as often as the time allows, at least `LEAST` times. Returns the number of attempts."""
    tries, ends = 0, time.monotonic() + ATTACK_S
    while tries < MIN_TRIES or time.monotonic() < ends:
        tries += 1
        attempt()
    return tries
