"""What a forge answers, as models of ours. Pure."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from sandbox.errors import ErrorCode, SandboxError
from sandbox.text import one_line

_TheirsT = TypeVar("_TheirsT", bound="Theirs")


class Theirs(BaseModel):
    """Base of a forge's shapes: what is not used here may change."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)


def parsed(model: type[_TheirsT], answer: Any) -> _TheirsT:
    """An answer as one of the models. Raises: `forge_error`."""
    try:
        return model.model_validate(answer)
    except ValidationError as error:
        fields = ", ".join(".".join(map(str, e["loc"])) for e in error.errors(include_input=False))
        raise unusable(f"not as documented: {fields}"[:300]) from None


def word(text: str) -> str:
    """A name or a state that the forge gives, as part of a line: it begins none and does not fill the screen."""
    return one_line(text)[:_WORD_CHARS]


_WORD_CHARS = 200


def unusable(details: str) -> SandboxError:
    """An answer that no such forge gives."""
    return SandboxError(
        ErrorCode.FORGE_ERROR,
        "The forge's answer cannot be used",
        details=details,
        hint="Is remotes.api_urls right for this host?",
    )
