"""Convert Poetry's version constraints (`^1.2`, `~1.2`, `1.*`) to requirement texts (PEP 508)."""

from __future__ import annotations

import re
from typing import Any

from sandbox.models.dependencies import RefusalReason

_FOREIGN_SOURCES = {
    "git": RefusalReason.VERSION_CONTROL,
    "url": RefusalReason.URL,
    "path": RefusalReason.PATH,
    "file": RefusalReason.PATH,
    "source": RefusalReason.OPTION,
}
_VERSION = re.compile(r"\d+(?:\.\d+)*")
_ONE = re.compile(r"(\^|~=|~|===|==|!=|<=|>=|<|>)?\s*([0-9A-Za-z.*+!-]+)")


def convert_constraint(name: str, entry: Any) -> str | RefusalReason:
    """The requirement text of one entry; '' for an optional one, which belongs to an extra; a reason if refused."""
    table = entry if isinstance(entry, dict) else {"version": entry}
    if reason := next((reason for key, reason in _FOREIGN_SOURCES.items() if key in table), None):
        return reason
    version, extras, marker = table.get("version", "*"), table.get("extras", []), table.get("markers", "")
    if not (isinstance(version, str) and isinstance(marker, str) and isinstance(extras, list)):
        return RefusalReason.SYNTAX
    if table.get("optional") is True:
        return ""
    specifier = _convert_version(version)
    if specifier is None:
        return RefusalReason.VERSION
    selected = f"[{','.join(map(str, extras))}]" if extras else ""
    return f"{name}{selected}{specifier}" + (f" ; {marker}" if marker else "")


def _convert_version(text: str) -> str | None:
    """A PEP 440 specifier; None for alternatives (`||`) and for what is no version."""
    if text.strip() in {"", "*"}:
        return ""
    parts = [_convert_part(part.strip()) for part in re.split(r",|(?<=[0-9*])\s+(?=[<>=!~^])", text) if part.strip()]
    return None if None in parts else ",".join(part for part in parts if part)


def _convert_part(text: str) -> str | None:
    found = _ONE.fullmatch(text)
    if found is None:
        return None
    operator, version = found[1] or "==", found[2]
    if operator not in {"^", "~"}:
        return f"{operator}{version}"
    release = _VERSION.match(version)
    if release is None:
        return None
    numbers = [int(number) for number in release[0].split(".")]
    return f">={version},<{_next_release(numbers, caret=operator == '^')}"


def _next_release(numbers: list[int], *, caret: bool) -> str:
    """The first version that is not compatible: `^` keeps the first number that is not 0, `~` the first two."""
    if caret:
        position = next((i for i, number in enumerate(numbers) if number), len(numbers) - 1)
    else:
        position = min(1, len(numbers) - 1)
    return ".".join(map(str, [*numbers[:position], numbers[position] + 1]))
