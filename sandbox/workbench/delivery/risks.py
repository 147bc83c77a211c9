"""Which changed files need a closer review before they leave this host."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sandbox.models import Change, DiffFile, Task
from sandbox.policy.paths import RepoPath
from sandbox.policy.writes import find_flags
from sandbox.workbench.controller.policies_in_force import Policies


def find_risky_files(
    policies: Policies, task: Task, files: Sequence[Change | DiffFile]
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """CI files, hooks, build scripts, lock files and similar: path and the matching rules of policies/paths.toml.

    A rename counts with both names.
    """
    return find_risky_paths(policies, task, [path for f in files for path in (f.old_path, f.path) if path is not None])


def find_risky_paths(policies: Policies, task: Task, paths: Iterable[str]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """As `find_risky_files`, for paths."""
    found = [(path, find_flags(RepoPath(path), policies.paths, task.repo_id)) for path in paths]
    return tuple((path, flags) for path, flags in found if flags)
