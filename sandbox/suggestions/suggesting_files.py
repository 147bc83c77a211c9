"""Which files are read for suggestions; apart from their readers, because most commands need the names only."""

from __future__ import annotations

import re
from collections.abc import Iterable

from sandbox.lazy_pattern import lazy_pattern

SUGGESTING_FILES = frozenset(
    {
        "debian/control",
        ".devcontainer/devcontainer.json",
        ".devcontainer.json",
        ".tool-versions",
        "mise.toml",
        ".gitlab-ci.yml",
    }
)
"""The paths that are read, beside workflows."""

WORKFLOWS = ".github/workflows/"
"""Where workflows are. As a name among the markers of a commit: they were looked for."""

MAX_WORKFLOWS = 20
_WORKFLOW = lazy_pattern(re.escape(WORKFLOWS) + r"[^/]+\.ya?ml")


def is_workflow(path: str) -> bool:
    """Whether this is the path of a workflow."""
    return _WORKFLOW.fullmatch(path) is not None


def select_workflows(paths: Iterable[str]) -> tuple[str, ...]:
    """The workflows among the paths of a tree: the first ones by name."""
    return tuple(sorted(filter(is_workflow, paths))[:MAX_WORKFLOWS])
