"""What a layer of one tree is made of, and by which steps: the contract between ecosystems and those who build layers.

No file of a repository is here: every file of a step is written anew from parsed data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Protocol, TypeAlias

from sandbox.dependencies.collection import ReadFile
from sandbox.dependencies.requirement_text import refuse
from sandbox.models.dependencies import LockedPackage, RefusalReason, RefusedEntry
from sandbox.models.layers import LayerPackage


@dataclass(frozen=True)
class LayerPlan:
    """What the manifests of a tree ask for.

    `fetch_files`, `install_files`: content by name, put into the folder of that step. `locked`: packages of a lock
    file, with the hashes that their archives must have. `wanted`: packages by name and version, for people. `asked`:
    what the manifests ask for, where those are of a lock file, or as the fetch names it. `refused`: entries of
    manifests that are not used.
    """

    fetch_files: Mapping[str, bytes]
    install_files: Mapping[str, bytes] = field(default_factory=dict)
    locked: tuple[LockedPackage, ...] = ()
    wanted: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()
    refused: tuple[RefusedEntry, ...] = ()

    def list_hashes(self) -> dict[tuple[str, str], set[str]]:
        """The hashes of `locked`, by name and version."""
        found: dict[tuple[str, str], set[str]] = {}
        for entry in self.locked:
            found.setdefault((entry.name, entry.version), set()).update(entry.hashes)
        return found


@cache
def read_script(name: str) -> bytes:
    """A file of a step that is the same for all trees; it is in this folder."""
    return Path(__file__).with_name(name).read_bytes()


@dataclass(frozen=True)
class Step:
    """A shell script of ours in a guest. `$1` of a fetch is the date of the commit, as `2026-01-31T12:00:00Z`."""

    script: str
    env: Mapping[str, str]
    timeout_s: float


@dataclass(frozen=True)
class ProjectDescription:
    """How a project is asked for what its manifests compute. Its own code answers, in a guest without a network.

    The step runs in a checkout and writes `file` to /report. Lines of it with `fields` are read as if the tree had a
    file of that name. `is_needed`: whether the manifests, read as data, say that they do not say it.
    """

    step: Step
    file: str
    fields: tuple[str, ...]
    is_needed: Callable[[ReadFile], bool]


Look: TypeAlias = Callable[[], object]
"""Called often by work on the host that may take long. What it raises ends the work."""


def do_not_stop() -> None:
    """For work that no caller stops."""


class FindMismatches(Protocol):
    """Names of archives that differ from the lock file."""

    def __call__(
        self, folder: Path, packages: Sequence[LayerPackage], plan: LayerPlan, look: Look = do_not_stop, /
    ) -> tuple[str, ...]:
        """See `EcosystemSteps`."""
        ...


@dataclass(frozen=True)
class EcosystemSteps:
    """How one package manager's layers are made.

    `manifests`: root-relative paths that are read together. `plan`: what a tree asks for, with the needs of a profile's
    own checks; None if that is no package. It never raises for what a repository holds.

    The fetch has a network and runs no foreign code. It leaves only archives in `archives`; in `selection.txt` one line
    on what it chose, in `absent.txt` those of `wanted` or `asked` that it left out, as the registry lacks them, and in
    `unfit.txt` those that it left out, as no versions with them fit together. It fails, and names an archive in
    `mismatches.txt`, when that has another hash than the registry says. It fails, too, when the registry neither has a
    package nor says that it lacks it: `answer.txt` has the status of HTTP, 0 for none, and the package. The host
    copies, hashes and describes each: `describe` raises ValueError for what is no archive of this ecosystem.
    `find_mismatches`: names of archives, in a folder of ours, that differ from the lock file, or that it names and are
    not there. It reads the archives, so it may raise `quota_exceeded`, and what `look` raises.

    The install has no network, finds `archives` and the plan's `install_files`, and leaves the layer in `built`; and in
    `left-out.txt` the names of archives that it could not build, one a line, if it goes on without them, and in
    `without-extension.txt` those that it built without an optional part that does not compile; in `short-of.txt` what
    archives ran short of, by their own words: lines `resource archive`. If it `unpacks_only`, so that no package writes
    there, it fails, and names an archive in `refused.txt`, when that holds what no archive may. `may_be_empty`: the
    image may have all that is asked for.

    `version_form`: what equal versions have in common; None if the checks' own package manager compares the hashes of
    the lock file once more, and uses no other ones. `additions`: packages that a fetch may add to those of a lock file;
    None for any. `find_root`: the folder of the manifests that say what a project in a folder needs, such as that of
    its workspace above it; None if only its own do.
    """

    manifests: tuple[str, ...]
    plan: Callable[[ReadFile, Sequence[str]], LayerPlan | None]
    fetch: Step
    describe: Callable[[str, str], LayerPackage]
    find_mismatches: FindMismatches
    install: Step
    archives: str = "archives"
    built: str = "layer"
    version_form: Callable[[str], str] | None = None
    additions: frozenset[str] | None = None
    find_root: Callable[[ReadFile, str], str] | None = None
    may_be_empty: bool = False
    unpacks_only: bool = False
    description: ProjectDescription | None = None


def list_unlocked(
    steps: EcosystemSteps, packages: Sequence[LayerPackage], locked: Sequence[LockedPackage]
) -> tuple[RefusedEntry, ...]:
    """Packages that were fetched though a lock file has other ones, so that it has no hash of them."""
    form = steps.version_form
    if form is None or not any(entry.hashes for entry in locked):
        return ()
    known: dict[str, dict[str, str]] = {}
    for entry in locked:
        known.setdefault(entry.name, {})[form(entry.version)] = entry.version
    found = []
    for package in packages:
        versions = known.get(package.name, {})
        if form(package.version) in versions:
            continue
        if versions or (steps.additions is not None and package.name not in steps.additions):
            text = f"{package.name} {package.version}, locked: {', '.join(versions.values()) or 'none'}"
            found.append(refuse(text, RefusalReason.ANOTHER_VERSION, "the lock file"))
    return tuple(found)


SELECTION, ABSENT, UNFIT = "selection.txt", "absent.txt", "unfit.txt"
MISMATCHES, ANSWER = "mismatches.txt", "answer.txt"
LEFT_OUT, WITHOUT_EXTENSION, SHORT_OF = "left-out.txt", "without-extension.txt", "short-of.txt"
REFUSED = "refused.txt"
