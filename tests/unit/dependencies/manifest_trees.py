"""Trees of manifests in memory."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping

from sandbox.dependencies.collection import ReadFile
from sandbox.dependencies.python_manifest import read_python_manifest
from sandbox.models.dependencies import Manifest, RequirementRole


def reader(tree: Mapping[str, str | bytes]) -> ReadFile:
    """Reads files of a dictionary by path, and lists the folders that have one."""

    def read(path: str) -> bytes | None:
        if path.startswith("/**/"):
            return "\n".join(posixpath.dirname(name) for name in tree if posixpath.basename(name) == path[4:]).encode()
        content = tree.get(path)
        return content.encode() if isinstance(content, str) else content

    return read


def read(**files: str) -> Manifest:
    """The manifest of files at the root: `__` in a keyword is a dot, as in `pyproject__toml`."""
    return read_python_manifest(reader({name.replace("__", "."): text for name, text in files.items()}))


def names(manifest: Manifest, role: RequirementRole) -> list[str]:
    """The names that are required in a role."""
    return [found.name for found in manifest.requirements if found.role is role]
