"""Faults in what reads a guest's reports and output: they are logged and noted, and the run keeps its verdict.

A guest chooses what its readers get. An error of theirs that ended the run before its record is saved would let a guest
erase the verdict that it failed. So what a reader raises, whatever it is, costs what it would have found and no more.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from sandbox.text import one_line

_SHOWN = 200
_log = logging.getLogger(__name__)


class ReaderFaults:
    """The faults of the readers of one run. `notes`: sentences for the record of the run."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self.notes: tuple[str, ...] = ()

    def add(self, note: str) -> None:
        """Note what was not read for another reason; '' for none."""
        self.notes += (note,) if note else ()

    @contextmanager
    def note_errors(self, what: str) -> Iterator[None]:
        """End the block at an error, and note that `what` could not be read."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - see above: no error of a reader may lose a verdict
            self.notes += (f"{what} could not be read: {type(error).__name__}, a fault of the sandbox (see its log)",)
            frames = "".join(traceback.format_tb(error.__traceback__))
            # the message may have text of the guest, so no `exc_info`
            _log.error("%s: %s could not be read: %s\n%s", self._run_id, what, _describe(error), frames)


def _describe(error: Exception) -> str:
    return one_line(f"{type(error).__name__}: {error}"[:_SHOWN])
