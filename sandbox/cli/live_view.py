"""Show a view that is drawn again and again on a whole terminal, until q or Ctrl-C. Leaves the terminal as it was."""

from __future__ import annotations

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sandbox.cli.streams import drawing
from sandbox.cli.terminal import is_interactive

if TYPE_CHECKING:
    from rich.console import RenderableType

_QUIT = set(b"qQ\x1b\x04")


def show_live(draw: Callable[[], RenderableType], interval_s: float) -> None:
    """Draw on the alternate screen every `interval_s` seconds. Returns at q, Escape, Ctrl-D or Ctrl-C."""
    from rich.live import Live  # noqa: PLC0415 - rich loads slowly, and other commands do not need it

    from sandbox.cli.tables import make_console  # noqa: PLC0415 - as above

    try:
        with (
            drawing(sys.stdout),
            _read_keys() as quit_within,
            Live(console=make_console(), screen=True, auto_refresh=False) as live,
        ):
            while True:
                live.update(draw(), refresh=True)
                if quit_within(interval_s):
                    return
    except KeyboardInterrupt:
        return


@contextmanager
def _read_keys() -> Iterator[Callable[[float], bool]]:
    """Yield a function that waits so many seconds and says whether a key to quit was pressed before. Without a terminal
    at stdin it only waits.
    """
    if not is_interactive(sys.stdin):
        yield _only_wait
        return
    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)  # single keys, without echo; Ctrl-C is still a signal
        yield _quit_within
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _only_wait(seconds: float) -> bool:
    time.sleep(seconds)
    return False


def _quit_within(seconds: float) -> bool:
    ends_at = time.monotonic() + seconds
    while (left_s := ends_at - time.monotonic()) > 0:
        if select.select([sys.stdin], [], [], left_s)[0]:
            keys = os.read(sys.stdin.fileno(), 64)  # not through the stream: select does not see what that has buffered
            if not keys or _QUIT & set(keys):
                return True
    return False
