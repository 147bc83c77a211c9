"""Read YAML of a repository: text, lists and maps only, with a bound on size, depth and what aliases repeat.

PyYAML's events are composed here and not by its loaders. No tag is resolved, so no object is made and `on` stays a
word. An alias counts as often as it repeats what it names: nine lines that name the line above nine times each would
be a billion values for code that walks over them ("billion laughs"). PyYAML looks ahead by at most 1,024 characters for
a key, so that the bound on depth holds before much is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from typing import NamedTuple

import yaml

from sandbox.lazy_dataclass import dataclass

MAX_CHARS = 64 * 1024
MAX_VALUES = 20_000
MAX_DEPTH = 40
_CHARS_OF_A_VALUE = 16  # a longer text counts as several, also each time that an alias repeats it

Value = object
"""A `str`, a `list` of values, a `dict` of values by text, or `OPAQUE`."""


class _Opaque:
    """The value of a node with a tag, such as GitLab's `!reference`: its meaning is not known here."""


OPAQUE = _Opaque()


class _Composed(NamedTuple):
    value: Value
    size: int  # how many values are in it, texts by their length


@dataclass
class _OpenNode:
    """A list or map that has begun. `parts`: of a map, keys and values in turn."""

    is_map: bool
    anchor: str | None
    tagged: bool
    parts: list[_Composed] = field(default_factory=list)


def loads(text: str) -> Value:
    """Parse one YAML document; '' for an empty one. Raises: ValueError, also for what is larger than the bounds."""
    if len(text) > MAX_CHARS:
        raise ValueError(f"more than {MAX_CHARS} characters")
    return _compose(_parse(text))


def _parse(text: str) -> Iterator[yaml.Event]:
    """The events of the text. Raises: ValueError for whatever PyYAML raises.

    Its scanner passes numbers of the text to `chr` and `int` unchecked: `"\\UFFFFFFFF"` raises OverflowError, and
    `%YAML 1.` with 5,000 digits a ValueError that speaks of Python. No constructor runs, so no text becomes a number.
    """
    try:
        yield from yaml.parse(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f" in line {mark.line + 1}" if mark else ""
        raise ValueError(f"no valid YAML{place}") from error
    except (ArithmeticError, LookupError, TypeError, ValueError, RecursionError) as error:
        raise ValueError("no valid YAML") from error


def _compose(events: Iterator[yaml.Event]) -> Value:
    anchors: dict[str, _Composed] = {}
    open_ones = [_OpenNode(is_map=False, anchor=None, tagged=False)]  # of the documents themselves
    total = 0
    for event in events:
        if isinstance(event, yaml.CollectionStartEvent):
            if len(open_ones) > MAX_DEPTH:
                raise ValueError(f"more than {MAX_DEPTH} levels")
            is_map = isinstance(event, yaml.MappingStartEvent)
            open_ones.append(_OpenNode(is_map, event.anchor, _has_tag(event.tag)))
            continue
        node, anchor = _compose_node(event, open_ones, anchors)
        if node is None:
            continue
        if anchor:
            anchors[anchor] = node
        total += 1 if isinstance(event, yaml.CollectionEndEvent) else node.size
        if total > MAX_VALUES:
            raise ValueError(f"more than {MAX_VALUES} values")
        open_ones[-1].parts.append(node)
    documents = open_ones[0].parts
    if len(documents) > 1:
        raise ValueError("more than one document")
    return documents[0].value if documents else ""


def _compose_node(
    event: yaml.Event, open_ones: list[_OpenNode], anchors: dict[str, _Composed]
) -> tuple[_Composed | None, str | None]:
    """The value that an event completes, and its anchor. A collection gets its anchor when it is complete."""
    if isinstance(event, yaml.ScalarEvent):
        size = 1 + len(event.value) // _CHARS_OF_A_VALUE
        return _Composed(OPAQUE if _has_tag(event.tag) else event.value, size), event.anchor
    if isinstance(event, yaml.CollectionEndEvent):
        ended = open_ones.pop()
        size = 1 + sum(part.size for part in ended.parts)
        value = OPAQUE if ended.tagged else _to_map(ended.parts) if ended.is_map else [p.value for p in ended.parts]
        return _Composed(value, size), ended.anchor
    if isinstance(event, yaml.AliasEvent):
        if event.anchor not in anchors:
            raise ValueError("an alias of what is not complete")
        return anchors[event.anchor], None
    return None, None


def _has_tag(tag: str | None) -> bool:
    return tag not in {None, "!"}


def _to_map(parts: list[_Composed]) -> dict[str, Value]:
    """Keys must be text and different; `<<` adds the entries of other maps that the map lacks."""
    found: dict[str, Value] = {}
    merged: dict[str, Value] = {}
    for key, value in zip(parts[::2], parts[1::2], strict=True):
        if not isinstance(key.value, str) or key.value in found:
            raise ValueError("a key twice, or one that is no text")
        if key.value == "<<":
            for other in reversed(value.value if isinstance(value.value, list) else [value.value]):
                merged.update(other if isinstance(other, dict) else {})
        else:
            found[key.value] = value.value
    return {**merged, **found}
