"""What may be written into a file of a Perl fetch: names of modules, ranges of versions, paths of distributions. Pure.

Each has a grammar in which no option, address or path of a file system can be expressed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from sandbox.dependencies.collection import MAX_ENTRIES, Collection
from sandbox.models.dependencies import RefusalReason

MODULE = re.compile(r"(?=.{1,120}\Z)[A-Za-z_][A-Za-z0-9_]*(?:::[A-Za-z0-9_]+)*", re.ASCII)
_VERSION = r"v?[0-9][0-9_]*(?:\.[0-9_]+)*"
RANGE = re.compile(rf"(?=.{{1,100}}\Z)(?:(?:>=|<=|==|!=|>|<) ?)?{_VERSION}(?: ?, ?(?:>=|<=|==|!=|>|<) ?{_VERSION})*")
"""As in CPAN::Meta::Spec: `1.2` means at least 1.2; `>= 1.2, != 1.5, < 2`."""

_AUTHOR = r"(?P<author>[A-Z][A-Z0-9-]{1,19})"
_FILE = r"(?P<file>(?P<stem>[A-Za-z0-9][A-Za-z0-9._+-]{0,150}?)\.(?:tar\.gz|tgz|tar\.bz2|tbz))"
DISTRIBUTION = re.compile(
    rf"[A-Z]/[A-Z][A-Z0-9-]/{_AUTHOR}/(?P<folder>(?:[A-Za-z0-9_][A-Za-z0-9_.-]{{0,60}}/){{0,3}}){_FILE}"
)
"""A path below `authors/id/` of a mirror: `H/HA/HAARG/Moo-2.005005.tar.gz`."""
_VERSIONED = re.compile(r"(.+?)-(v?[0-9][A-Za-z0-9._+-]*)")

PHASES = ("runtime", "build", "configure", "test")
"""Phases of CPAN::Meta::Spec with the modules that are fetched for a project. `develop` is for its authors."""


@dataclass(frozen=True, order=True)
class PerlWish:
    """A module that a project asks for. `versions`: as RANGE; '0' for any. `phase`: one of PHASES."""

    module: str
    versions: str = "0"
    phase: str = "runtime"

    @property
    def text(self) -> str:
        """For people: `Foo::Bar >= 1.2`."""
        if self.versions in {"0", ">= 0"}:
            return self.module
        return f"{self.module} {self.versions if self.versions[0] in '<>=!' else f'>= {self.versions}'}"


def add_wish(collection: Collection, wishes: list[PerlWish], wish: PerlWish, origin: str) -> None:
    """Add a wish, or record why it is refused. Perl's own version is not a package: what is too new fails by itself."""
    if wish.module == "perl":
        return
    if not MODULE.fullmatch(wish.module):
        collection.refuse(wish.module, RefusalReason.NAME, origin)
    elif not RANGE.fullmatch(wish.versions):
        collection.refuse(f"{wish.module} {wish.versions}", RefusalReason.VERSION, origin)
    elif len(wishes) >= MAX_ENTRIES:
        collection.refuse_rest(origin)
    else:
        wishes.append(wish)


def split_distribution(path: str) -> tuple[str, str, str] | None:
    """Author, name and version ('' if there is none) of a distribution's path; None if it is no such path."""
    found = DISTRIBUTION.fullmatch(path)
    if not found or not path.startswith(f"{found['author'][0]}/{found['author'][:2]}/") or _has_dots(found["folder"]):
        return None
    versioned = _VERSIONED.fullmatch(found["stem"])
    return found["author"], versioned[1] if versioned else found["stem"], versioned[2] if versioned else ""


def _has_dots(folder: str) -> bool:
    return any(set(part) == {"."} for part in folder.split("/") if part)
