"""Which files of a tree are code of others: kept in the repository, written elsewhere. Pure.

By name (`third_party/`), by what the repository says of itself (`linguist-vendored` in the .gitattributes file of the
base commit), and by use: a top folder with most of the code that no other file mentions.
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from sandbox.policy.globs import Pattern, parse_pattern

VENDOR_FOLDERS = frozenset(
    {
        *("vendor", "vendored", "third_party", "third-party", "thirdparty", "3rdparty", "3rd_party", "3rd-party"),
        *("external", "externals", "extern", "deps", "node_modules", "bower_components", "jspm_packages"),
    }
)
"""Names of folders, at any depth, in lower case."""

ATTRIBUTES_BYTES = 64 * 1024
"""Of a .gitattributes file; a larger one is ignored."""

MAX_SHOWN = 8
_MAX_RULES = 200
_BUDGET = 1_000_000  # comparisons of a name with a rule
_OWN_FOLDERS = frozenset(
    {
        *("src", "source", "sources", "lib", "libs", "app", "apps", "packages", "crates", "pkg", "cmd", "internal"),
        *("include", "test", "tests", "testing", "spec", "doc", "docs", "examples"),
    }
)
_FEW_OTHERS = 20  # with fewer files outside, a folder is simply where the project is
_NAME_CHARS = 3
_ATTRIBUTES = frozenset({"linguist-vendored", "linguist-generated"})


def find_vendored(paths: Iterable[str], attributes: str) -> set[str]:
    """The paths that are code of others, by name or by the attributes."""
    rules, left = _parse_attributes(attributes), _BUDGET
    found = set()
    for path in paths:
        parts = path.split("/")
        said = None
        if rules and left > 0:
            left -= sum(rule.cost(parts) for rule, _ in rules)
            said = next((value for rule, value in rules if rule.matches(parts)), None)
        if said or (said is None and not VENDOR_FOLDERS.isdisjoint(part.lower() for part in parts[:-1])):
            found.add(path)
    return found


def _parse_attributes(text: str) -> Sequence[tuple[Pattern, bool]]:
    """The rules in the order in which they are asked: of several that match, git takes the last."""
    rules = []
    for line in text.splitlines()[: _MAX_RULES * 10]:
        words = line.split()
        if not words or words[0].startswith(("#", '"', "!", "[attr]")):
            continue
        values = [value for word in words[1:] if (value := _read_attribute(word)) is not None]
        pattern = parse_pattern(words[0]) if values else None
        if pattern is not None:
            rules.append((pattern, any(values)))
    return rules[::-1][:_MAX_RULES]


def _read_attribute(word: str) -> bool | None:
    name, _, value = word.lstrip("-!").partition("=")
    if name not in _ATTRIBUTES:
        return None
    return not word.startswith(("-", "!")) and value != "false"


def find_large_top(paths: Collection[str]) -> str | None:
    """The top folder that holds more than half of these files, if it may be code of others."""
    tops = Counter(path.partition("/")[0] for path in paths if "/" in path)
    for top, count in tops.most_common(1):
        if count * 2 > len(paths) and len(paths) - count >= _FEW_OTHERS and top.lower() not in _OWN_FOLDERS:
            return top
    return None


def is_mentioned(top: str, paths: Iterable[str], others: Iterable[bytes]) -> bool:
    """Whether other files name a top folder, or a folder or file directly in it. `others`: their contents."""
    inside = (path.split("/")[1] for path in paths if path.startswith(f"{top}/"))
    names = {name for name in (top, *map(_stem, inside)) if len(name) >= _NAME_CHARS}
    words = {name.encode() for name in names}
    pattern = re.compile(rb"[\w.-]{%d,100}" % _NAME_CHARS)
    return any(not words.isdisjoint(_split_word(found)) for text in others for found in pattern.findall(text))


def _split_word(word: bytes) -> set[bytes]:
    return {word, *word.split(b"."), *word.split(b"-")}


def _stem(name: str) -> str:
    return posixpath.splitext(name)[0]


def describe_folders(paths: Iterable[str]) -> Mapping[str, int]:
    """How many of these files are below each vendored folder: the highest folder with a name of `VENDOR_FOLDERS`, else
    the top folder. The largest first.
    """
    counts = Counter(_vendor_folder(path) for path in paths)
    return dict(counts.most_common(MAX_SHOWN))


def _vendor_folder(path: str) -> str:
    parts = path.split("/")
    named = next((at for at, part in enumerate(parts[:-1]) if part.lower() in VENDOR_FOLDERS), 0)
    return "/".join(parts[: named + 1])
