"""Convert Poetry's version constraints (`^1.2`, `~1.2`, `1.*`) to requirement texts (PEP 508)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from sandbox.lazy_module import LazyModule
from sandbox.models.dependencies import RefusalReason

if TYPE_CHECKING:
    from packaging import specifiers, version
else:  # loaded at first use (docs/adr/0080)
    specifiers = LazyModule("packaging.specifiers")
    version = LazyModule("packaging.version")

_FOREIGN_SOURCES = {
    "git": RefusalReason.VERSION_CONTROL,
    "url": RefusalReason.URL,
    "path": RefusalReason.PATH,
    "file": RefusalReason.PATH,
    "source": RefusalReason.OPTION,
}
_VERSION = re.compile(r"\d+(?:\.\d+)*")
_TEXT_CHARS = 300  # of a constraint: integers of thousands of digits are refused by Python itself
_MAX_ALTERNATIVES = 20  # of a constraint: each takes 50 microseconds, and 4 MiB of manifests had a million
_ALTERNATIVES = re.compile(r"\|\|?")
_COMPARED = re.compile(r"(==|!=|<=|>=|<|>)((\d+\.\d+|\d+)(\.\d+)?)(?:\.\*)?")
_PLATFORM = re.compile(r"(==|!=)?\s*([a-z0-9_]{1,20})")
_ONE = re.compile(r"(\^|~=|~|===|==|!=|<=|>=|<|>)?\s*([0-9A-Za-z.*+!-]+)")


def convert_constraint(name: str, entry: Any) -> str | RefusalReason:
    """The requirement text of one entry; '' for an optional one, which belongs to an extra; a reason if refused."""
    table = entry if isinstance(entry, dict) else {"version": entry}
    if reason := next((reason for key, reason in _FOREIGN_SOURCES.items() if key in table), None):
        return reason
    wanted, extras = table.get("version", "*"), table.get("extras", [])
    if not (isinstance(wanted, str) and isinstance(extras, list)):
        return RefusalReason.SYNTAX
    if table.get("optional") is True:
        return ""
    specifier, marker = _convert_version(wanted), _convert_conditions(table)
    if specifier is None:
        return RefusalReason.VERSION
    if marker is None:
        return RefusalReason.MARKER
    selected = f"[{','.join(map(str, extras))}]" if extras else ""
    return f"{name}{selected}{specifier}" + (f" ; {marker}" if marker else "")


def _convert_conditions(table: dict[str, Any]) -> str | None:
    """A marker that holds where `markers`, `python` and `platform` all hold; None for what is no such text."""
    texts = [table.get(key, "") for key in ("markers", "python", "platform")]
    if not all(isinstance(text, str) for text in texts):
        return None
    written, pythons, platform = texts
    found = _PLATFORM.fullmatch(platform)
    system = f'sys_platform {found[1] or "=="} "{found[2]}"' if found else None if platform else ""
    both = (_convert_pythons(pythons), system)
    if None in both:
        return None
    conditions = [text for text in (written, *both) if text]
    return " and ".join(f"({text})" if " or " in text and len(conditions) > 1 else text for text in conditions)


def _convert_pythons(text: str) -> str | None:
    """A marker for the versions of Python in a constraint; `3.10.*` is one of them, as is `^3.8 || ^3.12`."""
    alternatives = []
    for specifier in _convert_alternatives(text):
        parts = (
            [_COMPARED.fullmatch(part) for part in specifier.split(",") if part] if specifier is not None else [None]
        )
        if not all(parts):
            return None
        alternatives.append(" and ".join(_compare(part) for part in parts if part))
    return " or ".join(alternatives) if all(alternatives) else ""


def _compare(part: re.Match[str]) -> str:
    return f'{"python_full_version" if part[4] else "python_version"} {part[1]} "{part[2]}"'


def _convert_version(text: str) -> str | None:
    """A PEP 440 specifier; None for what is no version. It has no alternatives, so for `^1 || ^2` it is what spans all:
    a lock file, or the newest of them, decides.
    """
    alternatives = _convert_alternatives(text)
    if len(alternatives) == 1 or None in alternatives:
        return None if None in alternatives else alternatives[0]
    try:
        bounds = [_find_bounds(alternative or "") for alternative in alternatives]
    except ValueError:  # of an invalid version
        return None
    lowest = _choose_widest([lower for lower, _ in bounds], min)
    highest = _choose_widest([upper for _, upper in bounds], max)
    return ",".join(bound for bound in (lowest, highest) if bound)


def _find_bounds(specifier: str) -> tuple[str, str]:
    """The lower and the upper bound, each '' for none; versions that are excluded between them are not said."""
    lower = upper = ""
    for one in specifiers.SpecifierSet(specifier):
        number = one.version.removesuffix(".*")
        release = version.Version(number).release
        if one.operator in {">=", ">"}:
            lower = str(one)
        elif one.operator in {"<", "<="}:
            upper = str(one)
        elif one.operator != "!=":
            kept = release[:-1] if one.operator == "~=" else release if number != one.version else ()
            next_release = ".".join(map(str, (*kept[:-1], kept[-1] + 1))) if kept else ""
            lower, upper = f">={number}", f"<{next_release}" if kept else f"<={number}"
    return lower, upper


def _choose_widest(bounds: Sequence[str], choose: Callable[..., str]) -> str:
    """The bound that allows most; '' if one of them is none. `choose`: min for lower bounds, max for upper ones."""

    def order(bound: str) -> tuple[version.Version, bool]:
        return version.Version(bound.lstrip("<>=")), ("=" in bound) is (choose is max)

    return choose(bounds, key=order) if all(bounds) else ""


def _convert_alternatives(text: str) -> list[str | None]:
    """A specifier for each; None for what is no version, and for too many."""
    found = _ALTERNATIVES.split(text, maxsplit=_MAX_ALTERNATIVES)
    if len(text) > _TEXT_CHARS or len(found) > _MAX_ALTERNATIVES:
        return [None]
    return [_convert_one(one) for one in found]


def _convert_one(text: str) -> str | None:
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
