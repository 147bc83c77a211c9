"""How the repository map finds definitions in a language that ctags does not know."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import Field, StringConstraints, field_validator

from sandbox.models.model import Model

Suffix = Annotated[str, StringConstraints(pattern=r"^\.[A-Za-z0-9_+-]{1,15}$")]


class DefinitionRule(Model):
    r"""`[[definition]]` of a profile: a pattern for the lines that define something. ctags runs it in a guest.

    `language`: any word; rules of one language share their files. `suffixes`: of its files, such as `.fnl`. `pattern`:
    POSIX extended regular expression; its first group is the name. `kind`: what the map calls it.
    """

    language: Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9]{0,30}$")]
    suffixes: Annotated[tuple[Suffix, ...], Field(min_length=1, max_length=20)]
    pattern: Annotated[str, StringConstraints(min_length=3, max_length=300)]
    kind: Annotated[str, StringConstraints(pattern=r"^[a-z]{1,20}$")] = "function"

    @field_validator("pattern")
    @classmethod
    def _validate_pattern(cls, value: str) -> str:
        """What both dialects refuse is found here; what only ctags refuses, when the map is made."""
        try:
            has_group = re.compile(value).groups > 0
        except (re.error, OverflowError, RecursionError) as error:
            raise ValueError(str(error)) from error
        if not has_group or not value.isprintable():
            raise ValueError("the pattern needs a group around the name, on one line")
        return value
