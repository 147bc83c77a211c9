"""Which folders are members of the workspace at the top: its checks build and test them as well. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from sandbox.dependencies import yaml_subset
from sandbox.dependencies.collection import Collection as Manifests
from sandbox.dependencies.folder_patterns import fits_pattern
from sandbox.dependencies.node_manifest import FILE as PACKAGE_JSON
from sandbox.dependencies.node_manifest import PNPM_WORKSPACE

_MAX_PATTERNS = 200
_PYTEST_FILES = ("pyproject.toml", "pytest.ini", "tox.ini", "setup.cfg")
_MODULE = re.compile(r"<module>\s{0,20}([^<>\s]{1,200})\s{0,20}</module>")
_INCLUDE = re.compile(r"""\binclude\b\s{0,20}\(?\s{0,20}((?:["'][^"'\n]{1,200}["'][\s,]{0,200})+)""")
_COMMENT = re.compile(r"//[^\n]*")
_NO_TEST = "no test specified"  # of `npm init`
_QUOTED = re.compile(r"""["']:?([^"'\n]{1,200})["']""")


def find_listed(read: Callable[[str], bytes | None], kinds: Collection[str], folders: Iterable[str]) -> frozenset[str]:
    """The folders that manifests at the top list as members, if the tests of the top are theirs. `kinds`: of `rust`,
    `python`, `node`, `maven` and `gradle`. Go is not among them: `go test ./...` tests one module of a workspace.
    """
    manifests = Manifests(read)
    lists = [_LISTS[kind](manifests) for kind in _LISTS if kind in kinds]
    return frozenset(folder for folder in folders if any(_is_listed(folder, *listed) for listed in lists))


def _is_listed(folder: str, patterns: list[str], excluded: list[str]) -> bool:
    return _fits(folder, patterns) and not _fits(folder, excluded)


def _fits(folder: str, patterns: list[str]) -> bool:
    return any(fits_pattern(folder, pattern) for pattern in patterns[:_MAX_PATTERNS])


_Lists = tuple[list[str], list[str]]
"""Patterns of members, and of those that are left out."""


def _list_cargo(manifests: Manifests) -> _Lists:
    workspace = _table(manifests.load_toml("Cargo.toml"), "workspace")
    return _texts(workspace.get("members")), _texts(workspace.get("exclude"))


def _list_uv(manifests: Manifests) -> _Lists:
    if any("testpaths" in manifests.load_text(name) for name in _PYTEST_FILES):
        return [], []  # pytest looks there alone
    uv = _table(_table(manifests.load_toml("pyproject.toml"), "tool"), "uv")
    workspace = _table(uv, "workspace")
    return _texts(workspace.get("members")), _texts(workspace.get("exclude"))


def _list_node(manifests: Manifests) -> _Lists:
    document = manifests.load_json(PACKAGE_JSON)
    own = _table(document, "scripts").get("test")
    if own is not None and _NO_TEST not in str(own):
        return [], []  # of members the scripts run only if the root has none
    found = document.get("workspaces")
    listed = _texts(found.get("packages") if isinstance(found, dict) else found)
    listed += yaml_subset.read_list(manifests.load_text(PNPM_WORKSPACE), "packages") if found is None else []
    left_out = [text.removeprefix("!") for text in listed if text.startswith("!")]
    return [text for text in listed if not text.startswith("!")], left_out


def _list_maven(manifests: Manifests) -> _Lists:
    return _MODULE.findall(manifests.load_text("pom.xml")), []


def _list_gradle(manifests: Manifests) -> _Lists:
    texts = (manifests.load_text(name) for name in ("settings.gradle", "settings.gradle.kts"))
    included = (match[1] for text in texts for match in _INCLUDE.finditer(_COMMENT.sub("", text)))
    return [name.replace(":", "/") for names in included for name in _QUOTED.findall(names)], []


_LISTS: Mapping[str, Callable[[Manifests], _Lists]] = {
    "rust": _list_cargo,
    "python": _list_uv,
    "node": _list_node,
    "maven": _list_maven,
    "gradle": _list_gradle,
}


def _table(document: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = document.get(key)
    return found if isinstance(found, dict) else {}


def _texts(found: object) -> list[str]:
    return [text for text in found if isinstance(text, str)] if isinstance(found, list) else []
