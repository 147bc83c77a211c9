"""Which class of a profile a changed path belongs to. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sandbox.models.file_classes import ClassImpact, FileClass
from sandbox.policy.globs import PatternSet, parse_pattern

SHOWN_FILES = 20
"""How many files of a class are named."""

_NAMED_IN_LINE = 3


def classify_changes(classes: Sequence[FileClass], paths: Iterable[str]) -> tuple[ClassImpact, ...]:
    """The classes that have a changed path, in the order of the profile. Paths of no class are left out."""
    patterns = [(rule, PatternSet(p for text in rule.paths if (p := parse_pattern(text)))) for rule in classes]
    found: dict[str, list[str]] = {rule.name: [] for rule in classes}
    for path in sorted(set(paths)):
        parts = path.split("/")
        name = next((rule.name for rule, pattern_set in patterns if pattern_set.covers(parts)), None)
        if name is not None:
            found[name].append(path)
    return tuple(
        ClassImpact(
            name=rule.name,
            effect=rule.effect,
            checks=rule.checks,
            count=len(found[rule.name]),
            files=tuple(found[rule.name][:SHOWN_FILES]),
        )
        for rule in classes
        if found[rule.name]
    )


def is_class_pattern(text: str) -> bool:
    """Whether a path can match it: no comment, no `!`, since the order of the classes decides."""
    pattern = parse_pattern(text)
    return pattern is not None and not pattern.is_negated


def describe_impact(classes: Iterable[ClassImpact]) -> tuple[str, ...]:
    """A line for each class: `1 file of class restart (src/jobs.cpp): takes effect after build and restart`."""
    return tuple(
        f"{one.count} file{'s' if one.count != 1 else ''} of class {one.name} ({_name_files(one)}): {one.effect}"
        for one in classes
    )


def _name_files(one: ClassImpact) -> str:
    named = one.files[:_NAMED_IN_LINE]
    return ", ".join([*named, *(["..."] if one.count > len(named) else [])])
