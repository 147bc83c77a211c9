"""Trees of manifests in memory."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping

from sandbox.dependencies.collection import ReadFile
from sandbox.dependencies.python_manifest import read_python_manifest
from sandbox.models.dependencies import Manifest, RequirementRole

PNPM_WORKSPACES = {
    "lines": "packages:\n  # all\n  - 'lib/*'\n\n- \"!lib/two\" # not this\ncatalog:\n  - other\n",
    "brackets": 'name: x\n"packages": [lib/*, "!lib/two"]\n',
    "quotes": "'packages':\n- lib/*\n-  '!lib/two'\n",
    "comment": "packages: # all\n- lib/*\n- '!lib/two'",
    "carriage returns": 'packages :\r\n  - "lib/*"\r\n\r\n  - "!lib/two"\r\ncatalog:\r\n  - other\r\n',
    "byte order mark": "\ufeffpackages:\n  - lib/*\n  - '!lib/two'\nother: [other]\n",
    "long lines": f"packages: [{'a' * 5_000}]\npackages:\n  - lib/*\n  - {'a' * 5_000}\n  - '!lib/two'\n",
}
"""Forms of pnpm-workspace.yaml, all of `lib/*` without `lib/two`: the layer's reader and the check's take the same."""


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
