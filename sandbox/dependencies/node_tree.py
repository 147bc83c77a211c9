"""Where packages of a lock file belong in `node_modules`, and how the file name of an archive says so. Pure.

The layout is part of a layer's key, because names of archives are: two projects with the same packages in other places
have different layers.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import NamedTuple

from sandbox.dependencies.collection import MAX_LOCKED
from sandbox.dependencies.node_values import require_name, require_version
from sandbox.dependencies.requirement_text import RefusedTextError
from sandbox.models.dependencies import RefusalReason
from sandbox.models.layers import LayerPackage

MAX_EDGES = 60_000
MAX_DEPTH = 20
_FILE_BYTES = 255
_FOLDER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,60}(?:/[A-Za-z0-9_][A-Za-z0-9._-]{0,60}){0,5}")
_WORDS = re.compile(r"!?[a-z0-9_]{1,20}")


class Place(NamedTuple):
    """A folder of a package. `base`: the workspace member with the outermost `node_modules`, '' for the project itself.
    `names`: of the packages on the way, its own last.
    """

    base: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class Package:
    """A package of a lock file. `systems`: its `os`, `cpu` and `libc`. `needs`: keys of others by the names under which
    it finds them; `optional_needs`: names of those that it can do without. `engines`: the range of Node.js that it is
    for, `*` for any, '' if the lock file does not say.
    """

    name: str
    version: str
    hashes: tuple[str, ...] = ()
    systems: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    needs: Mapping[str, str] = field(default_factory=dict)
    optional_needs: frozenset[str] = frozenset()
    engines: str = ""


@dataclass(frozen=True)
class Placed:
    """A package at its place. `optional`: the project can do without it."""

    place: Place
    package: Package
    optional: bool = False

    @property
    def file(self) -> str:
        """The name of its archive. Raises: RefusedTextError if it is too long for one."""
        return write_file_name(self.place, self.package.name, self.package.version)


def parse_place(path: str) -> Place:
    """A place by its path in a package-lock.json. Raises: RefusedTextError."""
    first, *names = f"/{path}".split("/node_modules/")
    base = first.removeprefix("/")
    if not names or len(names) > MAX_DEPTH:
        raise RefusedTextError(RefusalReason.PATH)
    return Place(base and require_folder(base), tuple(require_name(name) for name in names))


def require_folder(text: object) -> str:
    """A folder of a workspace member. Raises: RefusedTextError for one outside, and for unusual names."""
    if not isinstance(text, str):
        raise RefusedTextError(RefusalReason.PATH)
    plain = text.removeprefix("./").rstrip("/")
    if not _FOLDER.fullmatch(plain) or "node_modules" in plain.split("/"):
        raise RefusedTextError(RefusalReason.PATH)
    return plain


def require_systems(entry: Mapping[str, object]) -> dict[str, tuple[str, ...]]:
    """The systems that a package is for; what is no plain list is left out."""
    found = {name: entry.get(name) for name in ("os", "cpu", "libc")}
    return {
        name: tuple(words)
        for name, words in found.items()
        if isinstance(words, list) and words and all(isinstance(word, str) and _WORDS.fullmatch(word) for word in words)
    }


def write_file_name(place: Place, name: str, version: str) -> str:
    """`[BASE:]NAME,NAME[=REAL]@VERSION.tgz`, with `+` for the slash. Raises: RefusedTextError."""
    base = f"{place.base.replace('/', '+')}:" if place.base else ""
    alias = f"={name.replace('/', '+')}" if name != place.names[-1] else ""
    text = f"{base}{','.join(place.names).replace('/', '+')}{alias}@{version}.tgz"
    if len(text) > _FILE_BYTES:
        raise RefusedTextError(RefusalReason.LIMIT)
    return text


def describe_archive(file: str, sha256: str) -> LayerPackage:
    """A package by the name of its archive. Raises: ValueError if it is not the name of one."""
    try:
        if not file.endswith(".tgz") or not file.isascii():
            raise RefusedTextError(RefusalReason.NAME)
        placed, _, version = file.removesuffix(".tgz").rpartition("@")
        placed, _, real = placed.partition("=")
        base, _, names = placed.rpartition(":")
        place = Place(
            base and require_folder(base.replace("+", "/")),
            tuple(require_name(name.replace("+", "/")) for name in names.split(",")),
        )
        name = require_name(real.replace("+", "/")) if real else place.names[-1]
        if write_file_name(place, name, require_version(version)) != file:
            raise RefusedTextError(RefusalReason.NAME)
    except RefusedTextError as error:
        raise ValueError(f"{file[:200]!r} is not the name of an npm archive") from error
    return LayerPackage(name=name, version=version, file=file, sha256=sha256)


def lay_out(packages: Mapping[str, Package], projects: Mapping[str, Mapping[str, str]]) -> list[Placed]:
    """Place each package as high as possible, so that each finds the version that the lock file names for it.

    `projects`: for '' and each workspace member the keys of its packages by name. Raises: RefusedTextError with `limit`
    for a graph that is too large or needs itself at ever deeper places.
    """
    return _Placement(packages).place_all(projects)


class _Wish(NamedTuple):
    """`user` looks for `name` and has to find the package `key`."""

    user: Place
    name: str
    key: str
    optional: bool


class _Placement:
    def __init__(self, packages: Mapping[str, Package]) -> None:
        self.packages = packages
        self.placed: dict[Place, str] = {}
        self.passed: dict[str, set[Place]] = {}  # by name: levels below the one at which a user found it
        self.levels: dict[Place, tuple[Place, ...]] = {}  # by user
        self.edges = 0
        self.result: list[Placed] = []

    def place_all(self, projects: Mapping[str, Mapping[str, str]]) -> list[Placed]:
        for needs in projects.values():
            self._count(needs)
        wishes = deque(
            _Wish(Place(base, ()), name, key, False) for base, needs in projects.items() for name, key in needs.items()
        )
        while wishes:
            wish = wishes.popleft()
            if len(self.result) > MAX_LOCKED or len(wish.user.names) > MAX_DEPTH:
                raise RefusedTextError(RefusalReason.LIMIT)
            if wish.key in self.packages:
                wishes.extend(self._place(wish))
        return self.result

    def _count(self, needs: Mapping[str, str]) -> None:
        """Count edges before they are queued: a package with many needs may be placed under each of their names."""
        self.edges += len(needs)
        if self.edges > MAX_EDGES:
            raise RefusedTextError(RefusalReason.LIMIT)

    def _place(self, wish: _Wish) -> list[_Wish]:
        """Returns the wishes of the package, if it was not there yet."""
        free: list[Place] = []
        levels = self._levels_of(wish.user)
        for level in levels:
            known = self.placed.get(_enter(level, wish.name))
            if known == wish.key:
                self._note_found(wish, level)
                return []
            if known is not None:
                break
            free.append(level)
        if not free:  # the user's own folder has another one: two entries of one lock file contradict each other
            return []
        passed = self.passed.get(wish.name, set())  # a package there would hide the one that is found above it
        level = next(one for one in reversed(free) if one == wish.user or one not in passed)
        place, package = _enter(level, wish.name), self.packages[wish.key]
        self.placed[place] = wish.key
        self._note_found(wish, level)
        self.result.append(Placed(place, package, wish.optional))
        self._count(package.needs)
        return [
            _Wish(place, name, key, wish.optional or name in package.optional_needs)
            for name, key in package.needs.items()
        ]

    def _note_found(self, wish: _Wish, level: Place) -> None:
        self.passed.setdefault(wish.name, set()).update(
            takewhile(lambda below: below != level, self._levels_of(wish.user))
        )

    def _levels_of(self, user: Place) -> tuple[Place, ...]:
        """Kept, because a user has many wishes and its levels are in many sets."""
        if user not in self.levels:
            self.levels[user] = tuple(_list_levels(user))
        return self.levels[user]


def _enter(level: Place, name: str) -> Place:
    return Place(level.base, (*level.names, name))


def _list_levels(user: Place) -> Iterator[Place]:
    """The folders with the `node_modules` that Node looks into, in this order."""
    for length in range(len(user.names), -1, -1):
        yield Place(user.base, user.names[:length])
    if user.base:
        yield Place("", ())
