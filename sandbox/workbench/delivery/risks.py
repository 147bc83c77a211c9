"""Which changed files need a closer review before they leave this host."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sandbox.models import Change, DiffFile, Task
from sandbox.policy.paths import RepoPath
from sandbox.policy.writes import find_flags
from sandbox.workbench.controller.services import Services


def find_risky_files(
    services: Services, task: Task, files: Sequence[Change | DiffFile]
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """CI files, hooks, build scripts, lock files and similar: path and the matching rules of policies/paths.toml.

    A rename counts with both names.
    """
    return find_risky_paths(services, task, [path for f in files for path in (f.old_path, f.path) if path is not None])


def find_risky_paths(services: Services, task: Task, paths: Iterable[str]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """As `find_risky_files`, for paths."""
    found = [(path, find_flags(RepoPath(path), services.policies.paths, task.repo_id)) for path in paths]
    return tuple((path, flags) for path, flags in found if flags)
