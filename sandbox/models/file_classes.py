"""When an edit of an application takes effect: classes of its files, and which of them a task changed."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints, field_validator

from sandbox.models.ids import CheckId, TaskId
from sandbox.models.model import Model

EFFECT_CHARS = 200


class FileClass(Model):
    """`[[class]]` of a profile. The first class of the file that has a pattern for a changed path is the path's class,
    so the one with the strongest effect stands first.

    `paths`: patterns as in `.gitignore`, from the top of the project. `effect`: when the running application has such
    an edit, as the end of a sentence. `checks`: ids of those that must pass before.
    """

    name: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9.-]{0,63}$")]
    paths: Annotated[tuple[str, ...], Field(min_length=1, max_length=200)]
    effect: Annotated[str, StringConstraints(min_length=1, max_length=EFFECT_CHARS)]
    checks: tuple[CheckId, ...] = ()

    @field_validator("effect")
    @classmethod
    def _validate_effect(cls, value: str) -> str:
        if not value.isprintable():
            raise ValueError("the effect is one line of text")
        return value


class ClassImpact(Model):
    """The changed files of one class: how many, and the first of them. `effect` and `checks` are those of the class."""

    name: str
    effect: str
    checks: tuple[CheckId, ...]
    count: int
    files: tuple[str, ...]


class NeededCheck(Model):
    """A check that a class of changed files needs. `passed`: its newest result on exactly these files, in the task or a
    clean room; None: it has not run on them.
    """

    check_id: CheckId
    passed: bool | None


class Impact(Model):
    """What the changes of a task since its base mean for the application, the class with the strongest effect first.

    `unclassified`: changed files of no class. `checks`: needed by these classes, in the order in which they run.
    `lines`: the same as text.
    """

    task_id: TaskId
    classes: tuple[ClassImpact, ...]
    unclassified: int
    checks: tuple[NeededCheck, ...]
    lines: tuple[str, ...]
