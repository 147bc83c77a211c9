"""The pool of spare tasks."""

from __future__ import annotations

from pydantic import Field

from sandbox.models.model import Model
from sandbox.models.tasks import Task


class Pool(Model):
    """What filling or draining the pool did. `spares`: those that are there now. `made`, `closed`: ids of tasks.
    `problems`: ids of repositories without a spare and of spares without a container, each with the reason.
    """

    spares: tuple[Task, ...] = ()
    made: tuple[str, ...] = ()
    closed: tuple[str, ...] = ()
    problems: dict[str, str] = Field(default_factory=dict)
