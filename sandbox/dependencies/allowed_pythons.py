"""Which versions of Python a project is for, from its manifests: data, no code of it runs. Pure.

It is read by many commands, so what most projects write, `>=3.N`, is compared without `packaging`: its import costs
more than all the rest.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from configparser import Error as ConfigError
from functools import lru_cache
from typing import TYPE_CHECKING

from sandbox.dependencies import ini_files
from sandbox.lazy_module import LazyModule
from sandbox.policy import untrusted_toml
from sandbox.policy.nested_tables import get_nested

if TYPE_CHECKING:
    from packaging import specifiers

    from sandbox.dependencies import poetry_constraints
else:  # loaded at first use (docs/adr/0080)
    specifiers = LazyModule("packaging.specifiers")
    poetry_constraints = LazyModule("sandbox.dependencies.poetry_constraints")

_SPECIFIER = re.compile(r"(?!.*===)[0-9a-z.,*<>=!~ ]{1,100}", re.ASCII)  # no more is shown of it
_AT_LEAST = re.compile(r">=\s*(\d{1,4})\.(\d{1,4})", re.ASCII)
_VERSION = re.compile(r"(\d+)\.(\d+)(?:\.\d+)*", re.ASCII)
_IN_SETUP_PY = re.compile(r"""^[^#\n]{0,200}\bpython_requires\s*=\s*(["'])([^"'\n]{1,100})\1""", re.MULTILINE)


def read_allowed_pythons(read: Callable[[str], bytes | None]) -> str:
    """The `requires-python` of a project (PEP 440), from the first manifest that has one; '' for any version.

    `read`: gives a manifest's content, None if there is none. Never raises for what a repository holds.
    """
    for path, find in _FINDERS.items():
        content = read(path)
        if content and b"python" in content and (found := find(content).strip()):
            return found if _SPECIFIER.fullmatch(found) else ""
    return ""


def allows_python(allowed: str, version: str) -> bool:
    """Whether a version is one of the allowed ones. What is no specifier excludes none: no tool could apply it."""
    simple, release = _AT_LEAST.fullmatch(allowed), _VERSION.fullmatch(version)
    if not allowed:
        return True
    if simple and release:
        return (int(release[1]), int(release[2])) >= (int(simple[1]), int(simple[2]))
    try:
        return specifiers.SpecifierSet(allowed).contains(version, prereleases=True)
    except specifiers.InvalidSpecifier:
        return True


@lru_cache(maxsize=64)
def _find_in_pyproject(content: bytes) -> str:
    try:
        document = untrusted_toml.loads(content.decode())
    except ValueError:
        return ""
    wanted = get_nested(document, "project", "requires-python")
    if isinstance(wanted, str):
        return wanted
    poetry = get_nested(document, "tool", "poetry", "dependencies", "python")
    converted = poetry_constraints.convert_constraint("python", poetry) if isinstance(poetry, str) else ""
    return converted.removeprefix("python") if isinstance(converted, str) else ""


@lru_cache(maxsize=64)
def _find_in_setup_cfg(content: bytes) -> str:
    text = content.decode(errors="replace")
    try:
        return ini_files.parse(text).get("options", "python_requires", fallback="")
    except ConfigError:
        return ""


def _find_in_pipfile(content: bytes) -> str:
    try:
        document = untrusted_toml.loads(content.decode())
    except ValueError:
        return ""
    wanted = get_nested(document, "requires", "python_version") or get_nested(
        document, "requires", "python_full_version"
    )
    return f">={wanted}" if isinstance(wanted, str) else ""


def _find_in_setup_py(content: bytes) -> str:
    found = _IN_SETUP_PY.search(content.decode(errors="replace"))
    return found[2] if found else ""


_FINDERS: Mapping[str, Callable[[bytes], str]] = {
    "pyproject.toml": _find_in_pyproject,
    "setup.cfg": _find_in_setup_cfg,
    "setup.py": _find_in_setup_py,
    "Pipfile": _find_in_pipfile,
}
