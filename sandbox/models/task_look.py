"""A look from afar at the checks that run in a task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import Base64Bytes, Field, NonNegativeInt, StringConstraints

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

    run_id: Annotated[str, StringConstraints(pattern=r"^run-[0-9a-f-]{8,64}$")]
    check_id: CheckId | None = None
    is_over: bool = False
    stdout: LookedAtOutput = LookedAtOutput()
    stderr: LookedAtOutput = LookedAtOutput()


class TaskLook(Model):
    """The checks that run in a task now, in the order in which they began, and those that the caller followed.
    `journal_bytes`: the size of its journal, which says whether there is more to read in it.
    """

    runs: Annotated[Sequence[LookedAtRun], Field(max_length=2 * MOST_LOOKED_AT)] = ()
    journal_bytes: NonNegativeInt = 0
