"""Build dependencies of `debian/control` (deb822; Debian policy 5 and 7)."""

from __future__ import annotations

import re

from sandbox.lazy_pattern import lazy_pattern
from sandbox.suggestions.draft import SuggestionDraft

_FIELDS = frozenset({"build-depends", "build-depends-arch", "build-depends-indep"})
_RELATION = lazy_pattern(
    r"(?P<name>[^\s(\[<:]+)(?::\w+)?\s*(?:\([^)]*\))?\s*(?:\[(?P<arch>[^\]]*)\])?\s*(?P<profiles>.*)", re.DOTALL
)
_OUR_ARCHITECTURES = frozenset({"amd64", "any", "any-amd64", "linux-any"})
_PACKAGING = lazy_pattern(r"(cdbs|debhelper|debhelper-compat|devscripts|dpkg-dev|dh-.+|debconf|po-debconf|lintian)")
MAX_RELATIONS = 500


def read_control(draft: SuggestionDraft, text: str) -> None:
    """Add the packages of the source paragraph. Tools that only make Debian packages are left out."""
    for number, relation in enumerate(_list_relations(text)):
        if number >= MAX_RELATIONS:
            return draft.note(relation, f"more than {MAX_RELATIONS} dependencies")
        _add_relation(draft, relation)
    return None


def _list_relations(text: str) -> list[str]:
    found: list[str] = []
    wanted = False
    for line in text.split("\n"):
        if line.startswith("#"):
            continue
        if not line.strip():
            if found:
                break  # the end of the first paragraph with content
            continue
        if line[0] not in " \t":
            name, _, line = line.partition(":")
            wanted = name.strip().lower() in _FIELDS
            if wanted:
                found.append("")
        if wanted:
            found[-1] += f" {line}"
    return [relation.strip() for value in found for relation in value.split(",") if relation.strip()]


def _add_relation(draft: SuggestionDraft, relation: str) -> None:
    """The first alternative, as Debian's builders take it."""
    if "${" in relation:
        return draft.note(relation, "only a build of the Debian package knows its value")
    found = _RELATION.fullmatch(relation.split("|")[0].strip())
    if found is None:
        return draft.note(relation, "this is no dependency")
    if (
        not _is_for_us(found["arch"])
        or not _is_in_usual_build(found["profiles"])
        or _PACKAGING.fullmatch(found["name"])
    ):
        return None
    return draft.add_package(found["name"])


def _is_for_us(architectures: str | None) -> bool:
    words = (architectures or "").split()
    if not words:
        return True
    if words[0].startswith("!"):
        return not {word.removeprefix("!") for word in words} & _OUR_ARCHITECTURES
    return bool(set(words) & _OUR_ARCHITECTURES)


def _is_in_usual_build(profiles: str) -> bool:
    """Whether no build profile has to be chosen for it: `<!nocheck>`, but not `<cross>`."""
    groups = re.findall(r"<([^<>]*)>", profiles)  # a `<` in it would be looked at again for each
    return not groups or any(all(word.startswith("!") for word in group.split()) for group in groups)
