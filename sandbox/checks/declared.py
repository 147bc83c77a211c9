"""Find out whether a project declares the package of a module. Reads a few files of the worktree, as guest data.

The result is only used for advice, so names are compared loosely, and an unreadable file counts as empty.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Set
from configparser import ConfigParser
from configparser import Error as ConfigError
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from sandbox.errors import SandboxError
from sandbox.files.names import EntryKind
from sandbox.files.tree import WorktreeFiles
from sandbox.policy import untrusted_toml
from sandbox.policy.nested_tables import get_nested
from sandbox.policy.paths import RepoPath, parse_repo_path

_FILE_BYTES = 64 * 1024  # per file: parsing is not linear, and a guest wrote them
_LINE_CHARS = 300
_REQUIREMENTS = tuple(
    f"{name}.txt"
    for name in ("requirements", "requirements-dev", "requirements-test", "dev-requirements", "test-requirements")
)
_PACKAGES = {
    "attr": "attrs", "bs4": "beautifulsoup4", "crypto": "pycryptodome", "cv2": "opencv-python",
    "dateutil": "python-dateutil", "docx": "python-docx", "dotenv": "python-dotenv", "git": "gitpython",
    "jwt": "pyjwt", "openssl": "pyopenssl", "pil": "pillow", "pkg-resources": "setuptools", "serial": "pyserial",
    "skimage": "scikit-image", "sklearn": "scikit-learn", "yaml": "pyyaml", "zmq": "pyzmq",
}  # fmt: skip
"""Modules of well-known packages with another name."""
_SOURCES = ("", "src/", "lib/", "python/")
"""Where a project has its packages."""

_PERL_MANIFESTS = ("META.json", "cpanfile", "Makefile.PL", "Build.PL")
_PERL_MODULE = re.compile(r"['\"]([A-Za-z]\w{0,80}(?:::\w{1,80}){0,10})['\"]")
_VERSION_OF_ARCHIVE = re.compile(r"-(?=\d)")
_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,100}")


@dataclass(frozen=True)
class DeclaredPackages:
    """The packages that the project in a workspace declares; its files are read once, at the first call. `left_out`:
    those that the guest does not have, by the reason.
    """

    workspace: Path
    left_out: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __call__(self, module: str) -> bool | str | None:
        """Whether a file of the project declares a Python, Node or Perl module; why its package is not there, if that
        is known; None for a Python module that would be in a package of the project itself. Never raises.
        """
        top = module if module.startswith("@") else re.split(r"[./]", module, maxsplit=1)[0]
        if "." in module and self._is_own_package(top):
            return None
        wanted = _normalize(top)
        packages = {wanted, _PACKAGES.get(wanted, wanted), f"python-{wanted}", f"py{wanted}"}
        return bool(self._names & packages) and (self._find_reason(packages) or True)

    def _find_reason(self, packages: Set[str]) -> str:
        """Why one of the packages, or an archive of it, was left out; '' for none."""
        for reason, names in self.left_out.items():
            for text in names:
                found = _NAME.match(text)
                name = _normalize(found[0]) if found else ""
                if packages & {name, _VERSION_OF_ARCHIVE.split(name, maxsplit=1)[0]}:
                    return reason
        return ""

    def _is_own_package(self, name: str) -> bool:
        with suppress(OSError, SandboxError), WorktreeFiles(self.workspace) as files:
            return any(files.kind(parse_repo_path(f"{folder}{name}")) is EntryKind.DIRECTORY for folder in _SOURCES)
        return False

    @cached_property
    def _names(self) -> frozenset[str]:
        with suppress(OSError, SandboxError), WorktreeFiles(self.workspace) as files:
            return frozenset(
                map(
                    _normalize,
                    (
                        *_packages_in_pyproject(files),
                        *_packages_in_requirements(files),
                        *_packages_in_node(files),
                        *_modules_in_perl(files),
                    ),
                )
            )
        return frozenset()


def _normalize(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _read_text(files: WorktreeFiles, path: str) -> str:
    try:
        return files.read(RepoPath(path), _FILE_BYTES).decode("utf-8", "replace")
    except SandboxError:
        return ""


def _packages_in_pyproject(files: WorktreeFiles) -> Iterator[str]:
    try:
        document = untrusted_toml.loads(_read_text(files, "pyproject.toml"))
    except ValueError:
        return
    yield from _requirement_names(get_nested(document, "project", "dependencies"))
    yield from _requirement_names(get_nested(document, "project", "optional-dependencies"))
    yield from _requirement_names(get_nested(document, "dependency-groups"))
    yield from _requirement_names(get_nested(document, "build-system", "requires"))
    poetry = get_nested(document, "tool", "poetry")
    groups = get_nested(poetry, "group")
    for table in (poetry, *(groups.values() if isinstance(groups, dict) else ())):
        for key in ("dependencies", "dev-dependencies"):
            names = get_nested(table, key)
            yield from names if isinstance(names, dict) else ()


def _packages_in_requirements(files: WorktreeFiles) -> Iterator[str]:
    for path in _REQUIREMENTS:
        yield from _requirement_names(_read_text(files, path).splitlines())
    parser = ConfigParser(interpolation=None, strict=False)
    text = _read_text(files, "setup.cfg")
    if max(map(len, text.split("\n"))) <= _LINE_CHARS:  # its parser is quadratic in the spaces of a line
        with suppress(ConfigError):
            parser.read_string(text)
    if parser.has_section("options"):
        for key in ("install_requires", "tests_require"):
            yield from _requirement_names(parser["options"].get(key, "").splitlines())
    if parser.has_section("options.extras_require"):
        for text in parser["options.extras_require"].values():
            yield from _requirement_names(text.splitlines())


def _packages_in_node(files: WorktreeFiles) -> Iterator[str]:
    try:
        document = json.loads(_read_text(files, "package.json") or "null")
    except (ValueError, RecursionError):
        return
    for key in ("dependencies", "devDependencies", "optionalDependencies", "peerDependencies"):
        names = get_nested(document, key)
        yield from names if isinstance(names, dict) else ()


def _modules_in_perl(files: WorktreeFiles) -> Iterator[str]:
    for path in _PERL_MANIFESTS:
        yield from _PERL_MODULE.findall(_read_text(files, path))


def _requirement_names(found: Any) -> Iterator[str]:
    """Yield the package names of requirements, from a list or from a table of lists."""
    for entry in found.values() if isinstance(found, dict) else [found]:
        for text in entry if isinstance(entry, list) else ():
            if isinstance(text, str) and (match := _NAME.match(text.strip())):
                yield match[0]
