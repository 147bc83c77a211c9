"""Find the profile that fits a repository, by files of its base commit: never of a worktree, which a guest may have
changed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from sandbox.lazy_dataclass import dataclass
from sandbox.profiles import GENERIC, MARKER_BYTES, Marker, Profile, ReadBaseFile, require_usable

_SHOWN_CHARS = 80
_TESTED, _WEAK = 15, 22
"""Weights. Below the first, evidence is not of tests: a `requirements.txt` may be for documentation. If that of
the profile in use is at most the second, any other one may be meant. From the second on it is the manifest of a
language with tests, and a Makefile beside it mostly calls its tools.
"""
_TOOL_FILES = frozenset({"pyproject.toml", "setup.cfg"})  # without a package in them: settings of a linter
_TARGETS = frozenset({"make", "make-check", "make-tests"})


@dataclass(frozen=True)
class ProfileMatch:
    """A profile that a tree matches. `weight`: the strongest evidence found. `why`: what was found, one text a marker.

    `why` holds text of the repository.
    """

    profile: Profile
    weight: int
    why: tuple[str, ...]


def detect_profile(profiles: Mapping[str, Profile], read: ReadBaseFile) -> Profile:
    """Find the matching profile with the most weight; `generic` if none matches.

    Raises: `invalid_input` if the file of that profile has an error.
    """
    matches = find_matches(profiles, read)
    return require_usable(matches[0].profile if matches else profiles[GENERIC])


def find_matches(profiles: Mapping[str, Profile], read: ReadBaseFile) -> tuple[ProfileMatch, ...]:
    """All matching profiles, the one to use first: the most weight wins, of equal ones the first by name."""
    found = (match for profile in profiles.values() if (match := _match_profile(profile, read)))
    return tuple(sorted(found, key=lambda match: (-match.weight, match.profile.name)))


def find_other_matches(matches: Sequence[ProfileMatch], used: Sequence[Profile]) -> tuple[ProfileMatch, ...]:
    """Of the matches, those that are tested with none of the profiles in use: they have other packages, or, without
    packages, another image. `used`: that of the first match, and others of the same folder.
    """
    first = matches[0].weight if matches else 0
    names, images = {profile.name for profile in used}, {profile.image for profile in used}
    ecosystems = {rule.ecosystem for profile in used for rule in profile.layers}
    return tuple(
        match
        for match in matches
        if match.profile.name not in names
        and any(check.id == "test" for check in match.profile.checks)
        and match.weight >= (_TESTED if first > _WEAK else 0)
        and not (first >= _WEAK and match.profile.name in _TARGETS)
        and not _TOOL_FILES.issuperset(match.why)
        and (
            not {rule.ecosystem for rule in match.profile.layers} <= ecosystems
            if match.profile.layers
            else match.profile.image not in images
        )
    )


def find_near_profiles(profiles: Mapping[str, Profile], read: ReadBaseFile) -> tuple[str, ...]:
    """Profiles with checks that look for something in a file that is there, and do not find it; the heaviest first."""
    near = [
        profile
        for profile in profiles.values()
        if profile.checks
        and all(_match_marker(marker, read) for marker in profile.detect.all)
        and any(read(marker.file) is not None for marker in profile.detect.any)
        and _match_profile(profile, read) is None
    ]
    return tuple(profile.name for profile in sorted(near, key=lambda p: (-p.priority, p.name)))


def _match_profile(profile: Profile, read: ReadBaseFile) -> ProfileMatch | None:
    rules = profile.detect
    required = []
    for marker in rules.all:
        if not (text := _match_marker(marker, read)):
            return None
        required.append(text)
    others = {marker: text for marker in rules.any if (text := _match_marker(marker, read))}
    if (rules.any and not others) or not (required or others):
        return None
    weights = [profile.priority if marker.priority is None else marker.priority for marker in others]
    return ProfileMatch(profile, max(weights, default=profile.priority), _explain([*required, *others.values()]))


def _explain(found: Sequence[str]) -> tuple[str, ...]:
    """Each evidence once; the bare name of a file is left out if there is a text that was found in it."""
    quoted = {text.split(":")[0] for text in found if ":" in text}
    return tuple(text for text in dict.fromkeys(found) if text not in quoted)


def _match_marker(marker: Marker, read: ReadBaseFile) -> str:
    """What was found, as `file` or `file: text`; empty if the marker does not match."""
    content = read(marker.file)
    if content is None:
        return ""
    if not marker.matches:
        return marker.file
    found = re.search(marker.matches, content[:MARKER_BYTES].decode("utf-8", errors="replace"), re.MULTILINE)
    if found is None:
        return ""
    text = next(iter(found[0].strip().splitlines()), "")[:_SHOWN_CHARS]
    return f"{marker.file}: {text}"
