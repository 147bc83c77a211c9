"""Trees of manifests in memory."""

from __future__ import annotations

from sandbox.dependencies.collection import ReadFile
from sandbox.dependencies.python_manifest import read_python_manifest
from sandbox.models.dependencies import Manifest, RequirementRole


def reader(tree: dict[str, str | bytes]) -> ReadFile:
    """Reads files of a dictionary by path."""
    return lambda path: content.encode() if isinstance(content := tree.get(path), str) else content


def read(**files: str) -> Manifest:
    """The manifest of files at the root: `__` in a keyword is a dot, as in `pyproject__toml`."""
    return read_python_manifest(reader({name.replace("__", "."): text for name, text in files.items()}))


def names(manifest: Manifest, role: RequirementRole) -> list[str]:
    """The names that are required in a role."""
    return [found.name for found in manifest.requirements if found.role is role]
