"""What git says about a commit: its description by tags, and the version that tools derive from it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sandbox.git.objects import stated_time
from sandbox.git.process import Git
from sandbox.lazy_dataclass import dataclass
from sandbox.lazy_module import LazyModule
from sandbox.lazy_pattern import lazy_pattern

if TYPE_CHECKING:
    from packaging import version as versions
    from packaging.version import Version
else:  # loaded for a check that asks for the version of its commit (docs/adr/0080)
    versions = LazyModule("packaging.version")

_DEADLINE_S = 120.0
_PRINTABLE = lazy_pattern(r"[!-~]{1,300}")  # a name of a tag is text of the repository, and becomes a variable
_TAG_VERSION = lazy_pattern(r"(?:.*[-_/])?v?(\d.*)", re.IGNORECASE)
_SHORT = 9  # digits of a commit in a version


@dataclass(frozen=True)
class CommitDescription:
    """`described`: as `git describe --tags --long`; without a tag the short id. `version`: for PEP 440. `time_s`: the
    committer's time, in seconds since the epoch.
    """

    commit: str
    described: str
    version: str
    time_s: int


def describe_commit(git: Git, commit: str) -> CommitDescription:
    """Describe a commit by the tags of the clone that hold a digit.

    Raises: `not_found` for an unknown commit, `timeout` for a history that takes minutes to walk.
    """
    time_s = stated_time(git, commit)
    described = _find_description(git, commit)
    if described is None:
        version = f"0.1.dev{_count(git, commit)}+g{commit[:_SHORT]}"
        return CommitDescription(commit, commit[:_SHORT], version, time_s)
    tag, distance, _ = described.rsplit("-", 2)
    return CommitDescription(commit, described, derive_version(tag, int(distance), commit), time_s)


def _find_description(git: Git, commit: str) -> str | None:
    """`TAG-DISTANCE-gID` of the nearest tag with a digit; None if there is none that can be a variable."""
    options = ("--tags", "--long", f"--abbrev={_SHORT}", "--match=*[0-9]*")
    found = git.attempt("describe", *options, commit, deadline_s=_DEADLINE_S)
    text = found.stdout.decode("utf-8", errors="replace").strip()
    return text if found.code == 0 and _PRINTABLE.fullmatch(text) else None


def _count(git: Git, commit: str) -> int:
    return int(git.run("rev-list", "--count", commit, deadline_s=_DEADLINE_S))


def derive_version(tag: str, distance: int, commit: str) -> str:
    """The version as setuptools-scm derives it by default (guess-next-dev, node): that of the tag at the tag, else the
    next one as `.devN`, N commits after it, with the commit's id. Pure. A tag that is no version counts as 0.0.
    """
    match = _TAG_VERSION.fullmatch(tag)
    try:
        found = versions.Version(match[1] if match else "0.0")
    except versions.InvalidVersion:
        found = versions.Version("0.0")
    if distance == 0:
        return str(found)
    return f"{_guess_next(found)}.dev{distance}+g{commit[:_SHORT]}"


def _guess_next(version: Version) -> str:
    """The next version: what a development version leads to, else its last number plus one."""
    public = version.public
    if version.dev is not None:
        return re.sub(r"\.dev\d+$", "", public)
    before = public.rstrip("0123456789")
    return f"{before}{int(public.removeprefix(before)) + 1}"
