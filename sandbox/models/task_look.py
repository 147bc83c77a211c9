"""A look from afar at the checks that run in a task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import Base64Bytes, Field, NonNegativeInt

from sandbox.models.ids import CheckId
from sandbox.models.model import Model

MOST_LOOKED_AT = 20
"""Runs of one look."""


class ReadUpTo(Model):
    """How many bytes of each stream of a run the caller has."""

    stdout: NonNegativeInt = 0
    stderr: NonNegativeInt = 0


Places = Annotated[Mapping[str, ReadUpTo], Field(max_length=MOST_LOOKED_AT)]
"""By run: those that the caller follows."""


class LookedAtOutput(Model):
    """What one stream got since the last look. `skipped`: bytes before `content` that are left out: it was too much.
    `upto`: how many bytes of the stream the caller has now.
    """

    content: Base64Bytes = b""
    skipped: NonNegativeInt = 0
    upto: NonNegativeInt = 0


class LookedAtRun(Model):
    """A check that runs, or that the caller follows. `check_id`: empty if it is not known any more."""

    run_id: str
    check_id: CheckId | None = None
    is_over: bool = False
    stdout: LookedAtOutput = LookedAtOutput()
    stderr: LookedAtOutput = LookedAtOutput()


class TaskLook(Model):
    """The checks that run in a task now, in the order in which they began, and those that the caller followed."""

    runs: Sequence[LookedAtRun] = ()
