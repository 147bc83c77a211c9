"""Profiles: what is known about a kind of repository. TOML files under `policies/profiles/`, and those of the
operator.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from sandbox.document_errors import describe_errors, parse_toml
from sandbox.errors import ErrorCode, SandboxError
from sandbox.lazy_module import LazyModule
from sandbox.models import Check, PackageName
from sandbox.models.checks import LaunchRule, ReleaseRule
from sandbox.models.definitions import DefinitionRule
from sandbox.models.file_classes import FileClass
from sandbox.models.layers import LayerRule
from sandbox.models.service_rules import ServiceRule
from sandbox.models.words import LAUNCH

if TYPE_CHECKING:
    from sandbox.policy import class_patterns
    from sandbox.profiles import broken_detection
else:  # loaded at first use (docs/adr/0080)
    broken_detection = LazyModule("sandbox.profiles.broken_detection")
    class_patterns = LazyModule("sandbox.policy.class_patterns")

GENERIC = "generic"
MARKER_BYTES = 256 * 1024
"""How much of a marker file is read."""

SUGGESTIONS = ".sandbox/checks.toml"
"""Where a repository suggests checks: read from base commits only, and used only if the operator trusts the file."""

MAX_PACKAGES = 200
"""How many Debian packages one image may get."""

HINT = "docs/profiles.md lists every key."
"""Of errors in a file of a profile or of suggestions."""

_CACHED_FILES = 64
_SHOWN_CHARS = 80

MAX_SERVICES = 8
MAX_CLASSES = 32
MAX_PROJECTS = 32

_NOT_IN_FILES: Mapping[str, object] = {
    "problem": "",
    "source": "",
    "repository_image": "",
    "requires_version": "",
    "folder": "",
    "project_name": "",
    "project_parts": (),
    "submodule_urls": (),
    "lfs": False,
}

ReadBaseFile = Callable[[str], bytes | None]
"""Reads a regular file of the base commit; None if there is none."""


class ProfileModel(BaseModel):
    """A table of a file: unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class Marker(ProfileModel):
    """A file that must exist, and optionally a pattern that one of its lines must match. `file` may be a pattern for
    names at the top of the project, `*_test.go`: then the first that fits is looked at.

    `priority`: how strong this evidence is, instead of the profile's own priority; only for markers of `any`.
    """

    file: str
    matches: str = ""
    priority: int | None = None

    @field_validator("matches")
    @classmethod
    def _validate_pattern(cls, value: str) -> str:
        try:
            re.compile(value)
        except (re.error, OverflowError, RecursionError) as error:  # of `a{99999999999}`, of groups in groups
            raise ValueError(str(error)) from error
        return value


class DetectionRules(ProfileModel):
    """All of `all` and at least one of `any` must match; an empty list is ignored. Both empty: never detected."""

    all: tuple[Marker, ...] = ()
    any: tuple[Marker, ...] = ()

    @field_validator("all")
    @classmethod
    def _validate_required(cls, value: tuple[Marker, ...]) -> tuple[Marker, ...]:
        if any(marker.priority is not None for marker in value):
            raise ValueError("a marker of 'all' has no priority of its own: set that of the profile")
        return value

    @property
    def markers(self) -> tuple[str, ...]:
        """Files that detection looks at."""
        return tuple(dict.fromkeys(m.file for m in (*self.all, *self.any)))


Packages = Annotated[tuple[PackageName, ...], Field(max_length=MAX_PACKAGES)]


class _ImageTable(ProfileModel):
    """`[image]` of a profile."""

    name: str
    packages: Packages = ()


class VersionImage(ProfileModel):
    """An image and the version of its Python or Go. The version is that of Debian's release: it stays the same."""

    version: str = Field(pattern=r"^[0-9]{1,4}(\.[0-9]{1,4}){1,2}$")
    image: str


class Profile(ProfileModel):
    """One kind of repository. `artifacts`: ignore patterns of untracked build output, which is never committed.

    `packages`: Debian packages that its checks need beside what `image` has. In a file both may stand in a table,
    `[image]` with `name` and `packages` (docs/adr/0058).

    `git_facts`: its checks get facts of the commit as variables, and their verdicts hold for this commit only.

    `compiler_cache`: its compilers find those of ccache first, where its image has them (docs/adr/0109).

    `image_help`: how a person makes its image, if none is shipped; said where the image is missing.

    `pythons`, `gos`: images to choose from by the project's `requires-python`, or by the line `go` of its go.mod, that
    of `image` first. `requires_version`: that text, if it excludes the first of them; `image` is then the first one
    that it allows, if any.

    `definitions`: patterns for the repository map, of languages that ctags does not know. `classes`: of its files, by
    when an edit of them takes effect. `launch`: how an application is started and probed; `release`: what a release
    of it has (docs/applications.md).

    `problem`: why its file, `source`, is not a valid profile. It keeps its place in detection, so that no other profile
    with other checks is used silently instead. `repository_image`: chosen for one repository, goes before all others.

    `folder`: where its checks run, '' for the top. `project_parts`: the projects of a repository with several; their
    checks are in `checks`, named `PROJECT.CHECK`, and all else of them is in the part. `project_name`: of such a part.
    `submodule_urls`: its checkouts hold the files of submodules from these remotes. `lfs`: they hold files of Git LFS.
    """

    name: str
    label: str
    image: str
    packages: Packages = ()
    priority: int = 10
    artifacts: tuple[str, ...] = ()
    detect: DetectionRules = DetectionRules()
    checks: tuple[Check, ...] = Field(default=(), alias="check")
    layers: tuple[LayerRule, ...] = Field(default=(), alias="layer", max_length=2)
    services: tuple[ServiceRule, ...] = Field(default=(), alias="service")
    git_facts: bool = False
    compiler_cache: bool = False
    image_help: str = Field(default="", max_length=1000)
    pythons: tuple[VersionImage, ...] = Field(default=(), alias="python", max_length=10)
    gos: tuple[VersionImage, ...] = Field(default=(), alias="go", max_length=10)
    definitions: tuple[DefinitionRule, ...] = Field(default=(), alias="definition", max_length=50)
    classes: tuple[FileClass, ...] = Field(default=(), alias="class", max_length=MAX_CLASSES)
    launch: LaunchRule | None = None
    release: ReleaseRule | None = Field(default=None, alias="promote")
    problem: str = ""
    source: str = Field(default="", exclude=True)
    repository_image: str = Field(default="", exclude=True)
    requires_version: str = Field(default="", exclude=True)
    folder: str = Field(default="", exclude=True)
    project_name: str = Field(default="", exclude=True)
    project_parts: tuple[Profile, ...] = Field(default=(), exclude=True)
    submodule_urls: tuple[str, ...] = Field(default=(), exclude=True)
    lfs: bool = Field(default=False, exclude=True)

    @model_validator(mode="before")
    @classmethod
    def _flatten_image(cls, document: object) -> object:
        if isinstance(document, dict) and isinstance(document.get("image"), dict):
            if document.get("packages"):
                raise ValueError("with a table [image], packages belong into it")
            table = _ImageTable.model_validate(document["image"])
            return {**document, "image": table.name, "packages": table.packages}
        return document

    @model_validator(mode="after")
    def _validate_order(self) -> Profile:
        require_plain_ids(self.checks)
        self.order_checks([c.id for c in self.checks])
        if self.pythons and self.gos:
            raise ValueError("images are chosen by [[python]] or by [[go]], not by both")
        if len(self.layers) == 2 and len({layer.ecosystem for layer in self.layers} - _BESIDE_OTHERS) != 1:
            raise ValueError("of two layers, one has to be of rust or go, and the other one of another ecosystem")
        return self

    @model_validator(mode="after")
    def _validate_services(self) -> Profile:
        self.require_usable_services()
        return self

    def require_usable_services(self) -> None:
        """Raises: ValueError for services that cannot run side by side, or that are for no check."""
        names = [service.name for service in self.services]
        if len(names) > MAX_SERVICES:
            raise ValueError(f"{len(names)} services; at most {MAX_SERVICES} are possible")
        if doubled := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"several services are named {', '.join(doubled)}")
        ids = {check.id for check in self.checks}
        for service in self.services:
            if unknown := sorted(set(service.checks) - ids):
                raise ValueError(f"the service '{service.name}' names the unknown check {', '.join(unknown)}")
        for check_id in ids:
            ports = [service.port for service in self.services if service.serves(check_id)]
            if len(set(ports)) < len(ports):
                raise ValueError(f"services of the check '{check_id}' listen on the same port")

    @model_validator(mode="after")
    def _validate_classes(self) -> Profile:
        names = [rule.name for rule in self.classes]
        if doubled := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"several classes are named {', '.join(doubled)}")
        ids = {check.id for check in self.checks}
        for rule in self.classes:
            if unknown := sorted(set(rule.checks) - ids):
                raise ValueError(f"the class '{rule.name}' names the unknown check {', '.join(unknown)}")
            if useless := [text for text in rule.paths if not class_patterns.is_class_pattern(text)]:
                raise ValueError(f"the class '{rule.name}' has a pattern that matches no path: {useless[0]!r}")
        return self

    @model_validator(mode="after")
    def _validate_launch(self) -> Profile:
        if named := [check.id for check in self.checks if check.launch is not None]:
            raise ValueError(f"the check '{named[0]}' has 'launch': an application is launched by the table [launch]")
        if self.launch is None and self.release is not None:
            raise ValueError("[promote] needs [launch]: only a candidate that was launched is promoted")
        if self.launch is not None:
            if LAUNCH in {check.id for check in self.checks}:
                raise ValueError(f"with [launch], no check can be named '{LAUNCH}'")
            self.order_checks(self.launch.requires)
            self.launch.as_check()
        return self

    def with_launch(self) -> Profile:
        """The profile with one more check, which launches the application; itself if it is none."""
        if self.launch is None:
            return self
        return self.model_copy(update={"checks": (*self.checks, self.launch.as_check())})

    @property
    def markers(self) -> tuple[str, ...]:
        """Files that detection looks at."""
        return self.detect.markers

    @property
    def parts(self) -> tuple[Profile, ...]:
        """What needs an image, packages and services of its own: the top and each project, with its own checks. A part
        without checks is left out. Only the profile itself for a repository without projects.
        """
        if not self.project_parts:
            return (self,)
        top = self.model_copy(update={"project_parts": ()})
        parts = (part.model_copy(update={"checks": self._checks_of(part)}) for part in (top, *self.project_parts))
        return tuple(part for part in parts if part.checks)

    @property
    def full_name(self) -> str:
        """The profiles of all parts, for people: `python (api), node (web)`; else the name."""
        if not self.project_parts:
            return self.name
        return ", ".join(f"{p.name} ({p.project_name})" if p.project_name else p.name for p in self.parts)

    @property
    def version_images(self) -> tuple[VersionImage, ...]:
        """Its images to choose from, by the version of `language`."""
        return self.pythons or self.gos

    @property
    def language(self) -> str:
        """What `version_images` are versions of, for people."""
        return "Python" if self.pythons else "Go"

    @property
    def lacks_version(self) -> bool:
        """Whether none of its images has a Python or Go that the project allows."""
        return bool(self.requires_version) and self.image == self.version_images[0].image

    def parts_of(self, checks: Iterable[Check]) -> tuple[Profile, ...]:
        """The parts that these checks belong to."""
        needed = {project_of(check.id) for check in checks}
        return tuple(part for part in self.parts if part.project_name in needed)

    def uses_compiler_cache(self, checks: Iterable[Check]) -> bool:
        """Whether one of the parts that these checks belong to has a compiler cache."""
        return any(part.compiler_cache for part in self.parts_of(checks))

    def _checks_of(self, part: Profile) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if project_of(check.id) == part.project_name)

    def order_checks(self, check_ids: Iterable[str]) -> tuple[Check, ...]:
        """The checks with these ids and those they require, required ones first, else in file order.

        Raises: ValueError for an unknown id or a cycle.
        """
        by_id = {c.id: c for c in self.checks}
        graph: dict[str, tuple[str, ...]] = {}
        pending = list(check_ids)
        while pending:
            name = pending.pop()
            if name not in by_id:
                raise ValueError(f"unknown check '{name}'")
            if name not in graph:
                graph[name] = by_id[name].requires
                pending += by_id[name].requires
        position = {name: i for i, name in enumerate(by_id)}
        try:
            order = list(
                TopologicalSorter({n: graph[n] for n in sorted(graph, key=position.__getitem__)}).static_order()
            )
        except CycleError as error:
            raise ValueError("checks require each other in a cycle") from error
        return tuple(by_id[name] for name in order)


def project_of(check_id: str) -> str:
    """The name of the project that a check belongs to; '' for the top."""
    return check_id.rpartition(".")[0]


def require_plain_ids(checks: Iterable[Check]) -> None:
    """Raises: ValueError for an id that looks like that of a project's check."""
    if named := sorted(check.id for check in checks if project_of(check.id)):
        raise ValueError(f"the check id '{named[0]}' has a dot, which names a project")


def load_profiles(folders: Iterable[Path], workspace: PurePosixPath) -> dict[str, Profile]:
    """Load profiles by name; a later folder overrides names of an earlier one. `<worktree>` becomes `workspace`.

    A file with an error becomes a profile with a `problem`; the others are not affected.
    """
    profiles: dict[str, Profile] = {}
    for folder in folders:
        profiles |= {path.stem: _load_profile(path, workspace, profiles) for path in sorted(folder.glob("*.toml"))}
    return profiles


def _load_profile(path: Path, workspace: PurePosixPath, known: Mapping[str, Profile]) -> Profile:
    document: dict[str, Any] = {}
    try:
        text = path.read_text(encoding="utf-8").replace("<worktree>", str(workspace))
        document = _parse(text)
        return _build_profile(path.stem, document, known) if "extends" in document else _build_whole(path.stem, text)
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        return _build_broken_profile(
            path, _read_what_is_left(path), describe_errors(error, Profile), known.get(path.stem)
        )
    except (OSError, ValidationError) as error:
        return _build_broken_profile(path, document, describe_errors(error, Profile), known.get(path.stem))
    except ValueError as error:
        return _build_broken_profile(path, document, str(error), known.get(path.stem))


def _read_what_is_left(path: Path) -> dict[str, Any]:
    try:
        return broken_detection.read_detection(path.read_bytes().decode(errors="replace"))
    except OSError:
        return {}


@lru_cache(maxsize=_CACHED_FILES)
def _parse(text: str) -> dict[str, Any]:
    """Not to be changed: each workbench of a process loads the same shipped files. Raises: ValueError."""
    return parse_toml(text)


@lru_cache(maxsize=_CACHED_FILES)
def _build_whole(name: str, text: str) -> Profile:
    """A profile that extends no other. Raises: ValueError."""
    return _build_profile(name, _parse(text), {})


_BESIDE_OTHERS = frozenset[str]({"rust", "go"})  # layers that need no place in PATH

_INHERITED = {
    "label": "label",
    "image": "image",
    "packages": "packages",
    "artifacts": "artifacts",
    "check": "checks",
    "layer": "layers",
    "service": "services",
    "git_facts": "git_facts",
    "compiler_cache": "compiler_cache",
    "definition": "definitions",
    "class": "classes",
    "launch": "launch",
    "promote": "release",
    "python": "pythons",
    "go": "gos",
}
_RECOGNITION = {"priority": "priority", "detect": "detect"}


def _build_profile(name: str, document: Mapping[str, Any], known: Mapping[str, Profile]) -> Profile:
    """A profile from its file. With `extends`, what runs is that of a shipped profile, as far as the file does not say
    it; how it is recognised only if it replaces that profile. Raises: ValueError.
    """
    written = {key: value for key, value in document.items() if key != "extends"}
    if "extends" in document:
        origin = known.get(str(document["extends"]))
        if origin is None or origin.problem:
            raise ValueError(f"extends: there is no usable shipped profile {str(document['extends'])[:_SHOWN_CHARS]!r}")
        keys = _INHERITED | _RECOGNITION if origin.name == name else _INHERITED
        inherited = {key: getattr(origin, field) for key, field in keys.items()}
        if "image" not in written:
            inherited["image_help"] = origin.image_help
        elif isinstance(written["image"], str) or "name" in written["image"]:
            del inherited["python"], inherited["go"]  # its image is another
        if isinstance(written.get("image"), dict):  # the table says both; without a name it adds to the same image
            del inherited["packages"]
            written["image"] = {"name": origin.image} | written["image"]
        written = inherited | written
    return Profile.model_validate({**written, "name": name, **_NOT_IN_FILES})


def _build_broken_profile(path: Path, document: Mapping[str, Any], problem: str, replaced: Profile | None) -> Profile:
    """A profile with a `problem`. Detection: what can be read of it, else that of the replaced profile, else never."""
    try:
        place = _DetectionFields.model_validate(document)
    except ValidationError:
        place = _DetectionFields.model_validate(broken_detection.simplify_detection(document))
    if replaced is not None and not place.detect.markers:
        place = _DetectionFields(priority=replaced.priority, detect=replaced.detect)
    return Profile(
        name=path.stem,
        label="",
        image="",
        priority=place.priority,
        detect=place.detect,
        problem=problem,
        source=str(path),
    )


class _DetectionFields(BaseModel):
    """The keys of a profile that detection needs; all others are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    priority: int = 10
    detect: DetectionRules = DetectionRules()


def require_usable(profile: Profile) -> Profile:
    """Return the profile. Raises: `invalid_input` naming the file and its errors."""
    if profile.problem:
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            f"The profile {profile.source} cannot be used",
            details=profile.problem,
            hint=HINT,
        )
    return profile
