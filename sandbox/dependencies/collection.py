"""Collect what manifests declare, within limits: files are read through it, entries are added to it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from packaging.utils import canonicalize_name

from sandbox.dependencies.requirement_text import parse_requirement, refuse
from sandbox.models.dependencies import LockedPackage, Manifest, RefusalReason, RefusedEntry, Requirement
from sandbox.models.dependencies import RequirementRole as Role
from sandbox.policy import untrusted_toml

FILE_BYTES = 256 * 1024  # of a manifest
LOCK_BYTES = 2 * 1024**2  # of a lock file
MAX_FILES = 128
MAX_LOOKS = 512  # for files, also for those that are not there: each may be a process of git
MAX_LISTED_FILES = 200_000  # of a tree in which folders are looked for
MAX_LISTED_FOLDERS = 5_000  # that have a manifest
ALL_BYTES = 4 * 1024**2  # of all files that are read
MAX_ENTRIES = 2_000  # requirements and refused entries together
MAX_LOCKED = 10_000  # entries of a lock file: what 2 MiB of one hold that a package manager wrote, but for a go.sum
MAX_GROUPS = 500  # dependency groups of one file: each may include all others

ReadFile = Callable[[str], bytes | None]
"""Reads a regular file of the tree by its repository-relative path; None if there is none, also for links.

For `/**/NAME`: the folders, at any depth, that hold a regular file NAME, one a line, an empty line for the top; None if
the tree has more than `MAX_LISTED_FILES` files.
"""


@dataclass(frozen=True)
class NamedFolder:
    """A package of the tree that a requirements file names by its folder."""

    folder: str
    extras: tuple[str, ...]
    role: Role
    origin: str


@dataclass
class Collection:
    """What was found so far. `project`: the project's own name. `extras`: the lists of its extras, with their origins,
    by normalized name, `NAME[EXTRA]` for those of another package of the tree. `wanted_extras`: those that some file
    selects. `unnamed`: each adds a list that holds a test tool and has a name that does not say what it is for.
    `has_other_index`: pyproject.toml names one beside the public one, from which packages may be meant to come.
    `groups`: the entries of dependency groups, by normalized name; `added_groups`: those that were added, and as what.
    `of_tree`: names of packages of the tree, which no registry is asked for. `elsewhere`: names of packages that come
    neither from a registry nor from the tree, and why they are refused. `named_folders`: packages of the tree that
    requirements files name. `computed`: the project's build computes what it needs to run; `declared`: pyproject.toml
    says it, so setup.py does not. `is_cut`: a lock file has more entries than are read, so none of it is followed.
    """

    read: ReadFile
    project: str = ""
    requires_python: str = ""
    files: dict[str, str | None] = field(default_factory=dict)
    listings: dict[str, list[str]] = field(default_factory=dict)
    patterns: int = 0  # of folders, that were looked at
    compared: int = 0  # names of folders, with patterns
    catalogs: Mapping[str, Any] | None = None  # of pnpm, once they were read
    extras: dict[str, tuple[object, str]] = field(default_factory=dict)
    wanted_extras: list[tuple[str, Role]] = field(default_factory=list)
    groups: dict[str, object] = field(default_factory=dict)
    added_groups: set[tuple[str, Role]] = field(default_factory=set)
    of_tree: frozenset[str] = frozenset()
    elsewhere: Mapping[str, RefusalReason] = field(default_factory=dict)
    named_folders: list[NamedFolder] = field(default_factory=list)
    computed: bool = False
    declared: bool = False
    has_other_index: bool = False
    unnamed: list[Callable[[], None]] = field(default_factory=list)
    requirements: list[Requirement] = field(default_factory=list)
    locked: list[LockedPackage] = field(default_factory=list)
    is_cut: bool = False
    refused: list[RefusedEntry] = field(default_factory=list)

    @property
    def is_full(self) -> bool:
        """Whether no more entries are added: what is read from now on would only take time."""
        return len(self.requirements) + len(self.refused) >= MAX_ENTRIES

    def load_text(self, path: str, limit: int = FILE_BYTES) -> str:
        """Content of a manifest; '' when it is absent or refused, which is recorded."""
        if path not in self.files:
            self.files[path] = self._read_once(path, limit)
        return self.files[path] or ""

    def list_folders(self, name: str) -> list[str]:
        """The folders below the top, at any depth, that hold a file of this name; none if they are too many, which is
        recorded.
        """
        if name not in self.listings:
            listed = self.read(f"/**/{name}")
            folders = [folder for folder in (listed or b"").decode(errors="replace").split("\n") if folder]
            if listed is None:
                self.refuse(f"a tree of more than {MAX_LISTED_FILES} files", RefusalReason.LIMIT, name)
            elif len(folders) > MAX_LISTED_FOLDERS:
                self.refuse(f"more than {MAX_LISTED_FOLDERS} folders with a {name}", RefusalReason.LIMIT, name)
                folders = []
            self.listings[name] = folders
        return self.listings[name]

    def load_json(self, path: str, limit: int = FILE_BYTES) -> dict[str, Any]:
        """A JSON object; empty when it is absent or refused, which is recorded."""
        text = self.load_text(path, limit)
        if not text:
            return {}
        try:
            document = json.loads(text)
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            self.refuse(path, RefusalReason.SYNTAX, path)
            return {}
        return document

    def load_toml(self, path: str, limit: int = FILE_BYTES) -> dict[str, object]:
        """A TOML manifest; empty when it is absent or refused, which is recorded."""
        try:
            return untrusted_toml.loads(self.load_text(path, limit))
        except untrusted_toml.TomlLimitError as error:
            self.refuse(str(error), RefusalReason.LIMIT, path)
        except ValueError as error:
            self.refuse(str(error), RefusalReason.SYNTAX, path)
        return {}

    def add(self, texts: object, role: Role, origin: str) -> None:
        """Add a list of requirement texts; anything else in its place is refused."""
        if not isinstance(texts, list):
            return self.refuse(str(type(texts).__name__), RefusalReason.SYNTAX, origin)
        if texts and self.is_full:
            return self.refuse_rest(origin)
        for text in texts[: MAX_ENTRIES + 1]:
            if isinstance(text, str):
                self.add_text(text, role, origin)
            else:
                self.refuse(str(type(text).__name__), RefusalReason.SYNTAX, origin)
        return None

    def add_text(self, text: str, role: Role, origin: str, hashes: Iterable[str] = ()) -> None:
        """Add one requirement, or record why it is refused."""
        if self.is_full:
            return self.refuse_rest(origin)
        found = parse_requirement(text, role, origin, tuple(hashes))
        if isinstance(found, RefusedEntry):
            self.refused.append(found)
        elif found.name in self.elsewhere and found.name != self.project:
            self.refuse(f"{found.name}{found.specifier}", self.elsewhere[found.name], origin)
        else:
            self.requirements.append(found)
        return None

    def want_extras(self, names: Iterable[str], role: Role) -> None:
        """Select extras, by their names in `extras`; `expand_extras` adds their lists."""
        self.wanted_extras += [(canonicalize_name(name.strip()), role) for name in names if name.strip()]

    def expand_extras(self) -> None:
        """Add the lists of the selected extras, and of those that they name: `dev = ["name[test]"]`."""
        done: set[tuple[str, Role]] = set()
        names = self.of_tree | ({self.project} if self.project else set())
        pending, seen = set(self.wanted_extras), 0
        while True:
            new, seen = self.requirements[seen:], len(self.requirements)
            pending |= {
                (extra if found.name == self.project else f"{found.name}[{extra}]", found.role)
                for found in new
                if found.name in names
                for extra in found.extras
            }
            pending -= done
            if not pending:
                break
            for name, role in sorted(pending):
                if name in self.extras:
                    self.add(self.extras[name][0], role, self.extras[name][1])
            done |= pending
        self.requirements = [r for r in self.requirements if r.name not in names]

    def add_locked(self, package: LockedPackage) -> None:
        """Add one package of a lock file."""
        if self.is_cut or len(self.locked) >= MAX_LOCKED:
            return self.cut_lock(package.origin)
        if package.name in self.elsewhere and package.name != self.project:
            return self.refuse(package.name, self.elsewhere[package.name], package.origin)
        return self.locked.append(package)

    def cut_lock(self, path: str, limit: int = MAX_LOCKED) -> None:
        """Follow no lock file: this one has more entries than are read, and the others would be missing, unsaid."""
        if not self.is_cut:
            self.refuse(f"more than {limit} entries: it is not followed", RefusalReason.LIMIT, path)
        self.is_cut = True

    def refuse(self, text: str, reason: RefusalReason, origin: str) -> None:
        """Record an entry that is not used."""
        if len(self.refused) >= MAX_ENTRIES:
            return self.refuse_rest(origin)
        return self.refused.append(refuse(text, reason, origin))

    def refuse_rest(self, origin: str) -> None:
        """Record that entries were not read; one record says so for all of them of a file."""
        if len(self.refused) >= MAX_ENTRIES + MAX_FILES:
            return
        if not self.refused or (self.refused[-1].reason, self.refused[-1].origin) != (RefusalReason.LIMIT, origin):
            self.refused.append(refuse(f"more than {MAX_ENTRIES} entries", RefusalReason.LIMIT, origin))

    def to_manifest(self) -> Manifest:
        """What was found, without repetitions."""
        return Manifest(
            project=self.project,
            requires_python=self.requires_python,
            computed=self.computed,
            files=tuple(path for path, text in self.files.items() if text is not None),
            requirements=tuple(dict.fromkeys(self.requirements)),
            locked=() if self.is_cut else tuple(dict.fromkeys(self.locked)),
            refused=tuple(dict.fromkeys(self.refused)),
        )

    def _read_once(self, path: str, limit: int) -> str | None:
        if len(self.files) >= MAX_LOOKS:  # before the others are counted: there may be 100,000 more of such paths
            self.refuse(path, RefusalReason.LIMIT, path)
            return None
        texts = [text for text in self.files.values() if text is not None]
        if len(texts) >= MAX_FILES:
            self.refuse(path, RefusalReason.LIMIT, path)
            return None
        content = self.read(path)
        if content is None:
            return None
        total = len(content) + sum(map(len, texts))
        if len(content) > limit or total > ALL_BYTES:
            self.refuse(f"{len(content)} bytes", RefusalReason.LIMIT, path)
            return None
        try:
            return content.decode("utf-8-sig").replace("\r\n", "\n")
        except UnicodeDecodeError:
            self.refuse("not UTF-8", RefusalReason.SYNTAX, path)
            return None
