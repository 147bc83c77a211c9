"""Read what a Perl project asks for: cpanfile, META.json, META.yml, dist.ini, literal lists of Makefile.PL, Build.PL.

https://metacpan.org/pod/CPAN::Meta::Spec, https://metacpan.org/pod/cpanfile. No line of a repository is run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from sandbox.dependencies.collection import Collection
from sandbox.dependencies.perl_statements import read_cpanfile, read_literal_lists
from sandbox.dependencies.perl_values import PHASES, PerlWish, add_wish
from sandbox.models.dependencies import RefusalReason

CPANFILE, DIST_INI = "cpanfile", "dist.ini"
META_JSON, META_YML = "META.json", "META.yml"
BUILD_SCRIPTS = ("Makefile.PL", "Build.PL")
DESCRIBED = "MYMETA.requires"
"""What a project's own build said: lines `Requires: PHASE MODULE VERSIONS`."""

_OLD_KEYS = {"requires": "runtime", "build_requires": "build", "configure_requires": "configure"} | {
    "test_requires": "test"
}
_SECTION = re.compile(r"\[([^\]]*)\]")
_PREREQS = re.compile(r"(?i)(configure|build|test|runtime|develop)?-?(requires|recommends|suggests|conflicts)?")
_COMPUTING = re.compile(r"^\[(?:AutoPrereqs|@(?!Basic\b|Classic\b))", re.MULTILINE)  # plugins that look at files
_YML_KEY = re.compile(r"""([\w.-]+|"[\w.-]+"|'[\w.-]+'):(?: (.*))?""", re.ASCII)
_YML_ENTRY = re.compile(r"""([\w:]+|"[\w:]+"|'[\w:]+'): +(\S.*)""", re.ASCII)
_NOT_UNDERSTOOD = frozenset({RefusalReason.SYNTAX, RefusalReason.LIMIT})
_YML_NO_ENTRIES = frozenset({"{}", "~", "null"})


def read_perl_manifests(collection: Collection) -> list[PerlWish]:
    """All modules that the manifests at the root ask for, by phase. What cannot be used is in `collection.refused`.

    What the project's build said takes the place of the literal lists in its scripts.
    """
    wishes = [
        *read_cpanfile(collection, CPANFILE),
        *_read_meta_json(collection),
        *_read_dist_ini(collection),
    ]
    described = collection.load_text(DESCRIBED)
    if described:
        wishes += _read_described(collection, described)
    elif not wishes:
        for path in BUILD_SCRIPTS:
            wishes += read_literal_lists(collection, path)
    return list(dict.fromkeys(wishes))


def says_what_it_needs(collection: Collection) -> bool:
    """Whether files that are data say what the project needs: its build need not be asked.

    They say it if modules are read from them, or if all of them is understood. The collection is a new one.
    """
    reads = (read_cpanfile(collection, CPANFILE), _read_meta_json(collection))
    is_understood = not any(entry.reason in _NOT_UNDERSTOOD for entry in collection.refused)
    if any(reads) or (is_understood and any(collection.load_text(p).strip() for p in (CPANFILE, META_JSON, META_YML))):
        return True
    has_script = any(collection.load_text(path) for path in BUILD_SCRIPTS)
    return not has_script and not _COMPUTING.search(collection.load_text(DIST_INI))


def _read_meta_json(collection: Collection) -> list[PerlWish]:
    if not collection.load_text(META_JSON):
        return _read_meta_yml(collection)
    document = collection.load_json(META_JSON)
    wishes: list[PerlWish] = []
    for key in ("prereqs", *_OLD_KEYS):
        if not isinstance(document.get(key) or {}, dict):
            collection.refuse(key, RefusalReason.SYNTAX, META_JSON)
    for phase, module, versions in _list_meta(document):
        add_wish(collection, wishes, PerlWish(module, versions, phase), META_JSON)
    return wishes


def _list_meta(document: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Phases, modules and ranges, in both versions of the format."""
    prereqs = document.get("prereqs")
    for phase in PHASES:
        found = prereqs.get(phase) if isinstance(prereqs, dict) else None
        yield from _list_pairs(phase, found.get("requires") if isinstance(found, dict) else None)
    for key, phase in _OLD_KEYS.items():
        yield from _list_pairs(phase, document.get(key))


def _list_pairs(phase: str, pairs: object) -> Iterator[tuple[str, str, str]]:
    for module, versions in pairs.items() if isinstance(pairs, dict) else ():
        yield phase, str(module), str(versions or "0")


def _read_meta_yml(collection: Collection) -> list[PerlWish]:
    """Maps of one line for each module, as CPAN's tools write them; any other form of one is refused."""
    wishes: list[PerlWish] = []
    phase: str | None = None
    for line in collection.load_text(META_YML).split("\n"):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        if not line[0].isspace():
            section = _YML_KEY.fullmatch(text)
            key = section[1].strip("'\"") if section else ""
            phase = _OLD_KEYS.get(key)
            value = (section[2] or "").partition(" #")[0].strip() if section else ""
            is_known = not value or value in _YML_NO_ENTRIES if phase else key != "prereqs"  # of version 2
            if not is_known or not (section or _is_yml_frame(text)):
                collection.refuse(text, RefusalReason.SYNTAX, META_YML)
        elif phase and (entry := _YML_ENTRY.fullmatch(text)):
            version = entry[2].partition(" #")[0].strip().strip("'\"")
            add_wish(collection, wishes, PerlWish(entry[1].strip("'\""), version or "0", phase), META_YML)
        elif phase:
            collection.refuse(text, RefusalReason.SYNTAX, META_YML)
    return wishes


def _is_yml_frame(text: str) -> bool:
    """Whether a line at the margin holds no key: an end of a document, a comment, or an item of a list."""
    return text.startswith(("---", "...", "- ", "#", "%"))


def _read_dist_ini(collection: Collection) -> list[PerlWish]:
    """`[Prereqs]`, `[Prereqs / TestRequires]`, with `-phase` and `-relationship`. Other plugins are not run."""
    wishes: list[PerlWish] = []
    phase: str | None = None
    for line in collection.load_text(DIST_INI).split("\n"):
        text = line.split(";", 1)[0].strip()
        if section := _SECTION.fullmatch(text):
            plugin, _, title = (part.strip() for part in section[1].partition("/"))
            phase = _phase_of(title) if plugin == "Prereqs" else None
            continue
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or phase is None:
            continue
        if name == "-phase":
            phase = value if value in PHASES else None
        elif name in {"-relationship", "-type"}:
            phase = phase if value == "requires" else None
        elif not name.startswith("-"):
            add_wish(collection, wishes, PerlWish(name, value or "0", phase), DIST_INI)
    return wishes


def _phase_of(name: str) -> str | None:
    """Of the name of a section: `TestRequires`. None for one that is not fetched."""
    found = _PREREQS.fullmatch(name)
    phase = (found[1] or "runtime").lower() if found else "runtime"
    wanted = (found[2] or "requires").lower() if found else "requires"
    return phase if wanted == "requires" and phase in PHASES else None


def _read_described(collection: Collection, text: str) -> list[PerlWish]:
    wishes: list[PerlWish] = []
    for line in text.splitlines():
        key, _, rest = line.partition(": ")
        phase, _, wanted = rest.partition(" ")
        module, _, versions = wanted.partition(" ")
        if key == "Requires" and phase in PHASES:
            add_wish(collection, wishes, PerlWish(module, versions.strip() or "0", phase), DESCRIBED)
    return wishes
