"""Read go.mod, go.sum and go.work: modules, versions and hashes. https://go.dev/ref/mod#go-mod-file"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from sandbox.dependencies.collection import LOCK_BYTES, MAX_ENTRIES, Collection
from sandbox.dependencies.folder_patterns import resolve_folder
from sandbox.models.dependencies import LockedPackage, RefusalReason

FILE, WORKSPACE, VENDORED = "go.mod", "go.work", "vendor/modules.txt"
SUMS = ("go.sum", "go.work.sum")

_ELEMENT = r"[A-Za-z0-9_~][A-Za-z0-9._~+-]{0,99}(?<!\.)"
MODULE_PATH = re.compile(rf"(?=.{{1,200}}\Z){_ELEMENT}(?:/{_ELEMENT})*")
MODULE_VERSION = re.compile(r"v[0-9]+\.[0-9]+\.[0-9]+(?:-[0-9A-Za-z.-]{1,100})?(?:\+incompatible)?")
_GO_VERSION = re.compile(r"1\.[0-9]{1,3}(?:\.[0-9]{1,3})?(?:rc[0-9]{1,2})?")
_HASH = re.compile(r"h1:[A-Za-z0-9+/]{43}=")
_WORD = re.compile(r'"[^"\s]*"|`[^`\s]*`|=>|[()]|[^\s()"`]+')
DEFAULT_GO = "1.16"  # what go takes a go.mod without a version for
_DEPTH = 100  # local replacements that are read


@dataclass
class GoModule:
    """One go.mod. `requires`, `excludes`: paths with versions. `replaces`: path, version or '', and what stands for it:
    a path with a version. `folders`: paths, versions or '', and the folder of the tree that stands for it. `elsewhere`:
    paths for which a folder out of the tree stands.
    """

    path: str = "space.invalid/fetch"
    go: str = DEFAULT_GO
    requires: list[tuple[str, str]] = field(default_factory=list)
    excludes: list[tuple[str, str]] = field(default_factory=list)
    replaces: list[tuple[str, str, str, str]] = field(default_factory=list)
    folders: list[tuple[str, str, str]] = field(default_factory=list)
    elsewhere: set[str] = field(default_factory=set)

    @property
    def go_number(self) -> int:
        """17 for Go 1.17."""
        return int(self.go.split(".")[1].partition("rc")[0])


def read_go_module(collection: Collection, folder: str = "") -> GoModule | None:
    """The go.mod of a folder; None if there is none. What cannot be used is in `collection.refused`.

    `toolchain`, `tool`, `godebug` and `retract` do not change what is fetched.
    """
    origin = posixpath.join(folder, FILE)
    if not collection.load_text(origin):
        return None
    module = GoModule()
    for verb, words in _list_directives(collection.load_text(origin)):
        _add_directive(collection, module, (verb, words), (folder, origin))
    local = {path for path, _, _ in module.folders}
    listed, module.requires = module.requires, []
    for wanted in listed:
        if wanted[0] in module.elsewhere:
            continue
        if wanted[0] in local or "." in wanted[0].split("/")[0]:
            module.requires.append(wanted)
        else:  # no host: no registry has it
            collection.refuse(" ".join(wanted), RefusalReason.NAME, origin)
    return module


def read_workspace(collection: Collection) -> list[str]:
    """The folders of other modules that go.work uses."""
    folders = []
    for verb, words in _list_directives(collection.load_text(WORKSPACE)):
        if verb == "use" and len(words) == 1:
            found = _resolve_folder("", words[0])
            if found is None:
                collection.refuse(words[0], RefusalReason.PATH, WORKSPACE)
            elif found:
                folders.append(found)
    return folders[:_DEPTH]


def read_go_sums(collection: Collection) -> None:
    """Add the lines of go.sum as packages: the version of a go.mod's hash is `VERSION/go.mod`, as there."""
    for file in SUMS:
        for line in collection.load_text(file, LOCK_BYTES).splitlines():
            words = line.split()
            if not words:
                continue
            if len(words) != 3 or not MODULE_PATH.fullmatch(words[0]):
                collection.refuse(line, RefusalReason.NAME, file)
            elif not MODULE_VERSION.fullmatch(words[1].removesuffix("/go.mod")):
                collection.refuse(line, RefusalReason.VERSION, file)
            elif not _HASH.fullmatch(words[2]):
                collection.refuse(line, RefusalReason.HASH, file)
            else:
                collection.add_locked(LockedPackage(name=words[0], version=words[1], hashes=(words[2],), origin=file))


def _list_directives(text: str) -> Iterator[tuple[str, list[str]]]:
    """Verb and words of each line; those of a block have the verb of the block."""
    block = ""
    for number, line in enumerate(text.splitlines()):
        if number > 2 * MAX_ENTRIES:
            return
        line = line.partition("//")[0]
        words = [word.strip('"`') for word in _WORD.findall(line)]
        if not words:
            continue
        if _WORD.sub("", line).strip():  # a quote without its other one
            yield "", [line]
        elif words == [")"]:
            block = ""
        elif block:
            yield block, words
        elif words[-1] == "(":
            block = words[0]
        else:
            yield words[0], words[1:]


def _add_directive(
    collection: Collection, module: GoModule, directive: tuple[str, list[str]], place: tuple[str, str]
) -> None:
    verb, words = directive
    folder, origin = place
    shown = " ".join([verb, *words])
    if not verb:
        return collection.refuse(shown, RefusalReason.SYNTAX, origin)
    if verb == "module" and len(words) == 1 and MODULE_PATH.fullmatch(words[0]):
        module.path = words[0]
    elif verb == "go" and len(words) == 1:
        if not _GO_VERSION.fullmatch(words[0]):
            return collection.refuse(shown, RefusalReason.VERSION, origin)
        module.go = words[0]
    elif verb in {"require", "exclude"}:
        if reason := _find_fault(words):
            return collection.refuse(shown, reason, origin)
        (module.requires if verb == "require" else module.excludes).append((words[0], words[1]))
    elif verb == "replace" and (reason := _add_replacement(module, words, folder)):
        return collection.refuse(shown, reason, origin)
    return None


def _add_replacement(module: GoModule, words: list[str], folder: str) -> RefusalReason | None:
    arrow = words.index("=>") if "=>" in words else len(words)
    old, new = words[:arrow], words[arrow + 1 :]
    path, version = (*old, "", "")[:2]
    if not 1 <= len(old) <= 2 or not MODULE_PATH.fullmatch(path):
        return RefusalReason.NAME
    if version and not MODULE_VERSION.fullmatch(version):
        return RefusalReason.VERSION
    if len(new) == 1:
        found = _resolve_folder(folder, new[0])
        if found is None:
            module.elsewhere.add(path)
            return RefusalReason.PATH
        module.folders.append((path, version, found))
        return None
    reason = _find_fault(new)
    if reason is None:
        module.replaces.append((path, version, new[0], new[1]))
    return reason


def _find_fault(words: list[str]) -> RefusalReason | None:
    """Why words are no path and version of a module."""
    if len(words) != 2 or not MODULE_PATH.fullmatch(words[0]):
        return RefusalReason.NAME
    return None if MODULE_VERSION.fullmatch(words[1]) else RefusalReason.VERSION


def _resolve_folder(folder: str, path: str) -> str | None:
    """A folder of the tree, '' for its root; None for one that is elsewhere."""
    return resolve_folder(folder, path) if path.startswith(".") else None
