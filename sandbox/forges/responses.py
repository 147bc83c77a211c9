"""Models of forge answers, and their validation. Pure."""

from __future__ import annotations

from typing import Any, TypeVar

import requests
from pydantic import BaseModel, ConfigDict, ValidationError

from sandbox.errors import ErrorCode, SandboxError
from sandbox.text import one_line

_ForgeResponseT = TypeVar("_ForgeResponseT", bound="ForgeResponse")


class ForgeResponse(BaseModel):
    """Base of the models of forge answers. Fields that are not used here are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)


def parse_json(response: requests.Response) -> Any:
    """The JSON document of an answer. Raises: `forge_error`."""
    try:
        return response.json()
    except (ValueError, RecursionError):
        raise invalid_response("it is not JSON") from None


def parse_list(response: requests.Response) -> list[Any]:
    """The JSON list of an answer. Raises: `forge_error`."""
    return require_list(parse_json(response))


def require_list(answer: Any) -> list[Any]:
    """Raises: `forge_error` for an answer that is no list."""
    if not isinstance(answer, list):
        raise invalid_response("expected a list")
    return answer


def parse_response(model: type[_ForgeResponseT], answer: Any) -> _ForgeResponseT:
    """Validate an answer as a model. Raises: `forge_error`."""
    try:
        return model.model_validate(answer)
    except ValidationError as error:
        fields = ", ".join(".".join(map(str, e["loc"])) for e in error.errors(include_input=False))
        raise invalid_response(f"not as documented: {fields}"[:300]) from None


def short_line(text: str) -> str:
    """A name or state from the forge, safe within a line: on one line and limited in length."""
    return one_line(text)[:_WORD_CHARS]


_WORD_CHARS = 200


def too_long_list(max_items: int, details: str) -> SandboxError:
    """The error for a list of more items than we read."""
    return SandboxError(
        ErrorCode.FORGE_ERROR,
        f"The forge lists more than {max_items} items",
        details=details,
        hint="Look at the list on the forge: it is too long to be read here.",
    )


def invalid_response(details: str) -> SandboxError:
    """The error for an answer that this kind of forge never gives."""
    return SandboxError(
        ErrorCode.FORGE_ERROR,
        "The forge's answer is not valid",
        details=details,
        hint="Check remotes.api_urls for this host.",
    )
