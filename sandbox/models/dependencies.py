"""Dependencies that a repository declares: data of its manifests and lock files, and what was refused of them."""

from __future__ import annotations

from enum import StrEnum

from sandbox.models.model import Model


class RequirementRole(StrEnum):
    """What a requirement is declared for. `development` holds test tools only where a project has no `test` list."""

    RUNTIME = "runtime"
    TEST = "test"
    DEVELOPMENT = "development"
    BUILD = "build"


class RefusalReason(StrEnum):
    """Why an entry of a manifest is not used. Its value is what users and records see."""

    OPTION = "option"  # `--index-url`, `--find-links`, `--pre`: only the operator configures the package manager
    URL = "url"  # an archive at an address of the repository's choice
    VERSION_CONTROL = "version_control"  # a git, hg, svn or bzr reference
    PATH = "path"  # a file or directory, of the repository or of the machine
    NAME = "name"  # no name of a package
    VERSION = "version"  # a version specifier that cannot be passed on as plain data
    MARKER = "marker"  # an environment marker that is more than comparisons of plain words
    HASH = "hash"  # a hash of a weak or unknown algorithm, or none at all
    SYNTAX = "syntax"  # cannot be parsed, or is computed by code
    LIMIT = "limit"  # larger, deeper or more than is read
    ABSENT = "absent"  # the registry has no version of it that fits
    UNFIT = "unfit"  # no versions with it, or with others of the same list, fit together
    ANOTHER_VERSION = "another_version"  # no entry of a manifest: a package that is not as the lock file has it


class Requirement(Model):
    """One package that a project asks for: plain data, safe to write into a file of a package manager.

    `name` is normalized (PEP 503). `specifier`: PEP 440, '' for any version. `marker`: PEP 508, '' for always.
    `hashes`: `sha256:HEX` of acceptable archives, empty if none is declared. `origin`: file and place within it.
    """

    name: str
    specifier: str = ""
    extras: tuple[str, ...] = ()
    marker: str = ""
    hashes: tuple[str, ...] = ()
    role: RequirementRole
    origin: str


class RefusedEntry(Model):
    """An entry of a manifest that is not used. `text`: its beginning, without control characters."""

    text: str
    reason: RefusalReason
    origin: str


class LockedPackage(Model):
    """One package of a lock file. `hashes`: `sha256:HEX` of its archives. Addresses in lock files are never used.

    `marker`: PEP 508, where this version is meant; '' for everywhere.
    """

    name: str
    version: str
    marker: str = ""
    hashes: tuple[str, ...] = ()
    origin: str


class Manifest(Model):
    """What the manifests of one tree declare. `project`: the normalized name of the project itself, '' if unknown.

    `files`: that were read, in order. `refused`: entries that are not used, each with the reason. `computed`: what the
    project needs to run is computed by its build.
    """

    project: str = ""
    computed: bool = False
    requires_python: str = ""
    files: tuple[str, ...] = ()
    requirements: tuple[Requirement, ...] = ()
    locked: tuple[LockedPackage, ...] = ()
    refused: tuple[RefusedEntry, ...] = ()
