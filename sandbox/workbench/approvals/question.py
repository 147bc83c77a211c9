"""The question that is shown to a person who decides about an agent's call."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sandbox.errors import ErrorCode, SandboxError
from sandbox.gate import Step
from sandbox.git import objects
from sandbox.models import Change, DiffFile, Task
from sandbox.store.records import find_repository, find_task
from sandbox.text import spelled_out
from sandbox.workbench.checks import gate
from sandbox.workbench.controller.services import Parts
from sandbox.workbench.delivery import push
from sandbox.workbench.delivery.intermediate_files import passing
from sandbox.workbench.delivery.risks import flagged, flagged_paths
from sandbox.workbench.repositories.clone import cache_of
from sandbox.workbench.repositories.profile_checks import task_profile
from sandbox.workbench.tasks import status
from sandbox.workbench.tasks.lifecycle import looking

MOST_LINES = 2000
"""A longer question is refused: a person would not read it."""

MOST_CHARS = 256 * 1024
PUSHING, OPENING, CLEANING = "space_repo_push", "space_repo_open_pr", "space_repo_clean"
SENDING = frozenset({PUSHING, OPENING})
"""Tools that send the last commit to the remote."""

_CLEANED = (
    "deletes permanently: all files that git ignores here, of any origin (build output, local settings); files that",
    "  cannot be committed (nested repositories, sockets); each path listed under `without`",
    "keeps: other uncommitted changes, also as a snapshot",
)


def state_of(services: Parts, tool: str, task_id: str | None) -> str:
    """The git object that a call acts on: the commit for tools that send or clean, else the working tree.

    A clean does not use the working tree, because that may be too large to read, or missing.
    """
    if task_id is None:
        return ""
    task = find_task(services.home, task_id, allow_closed=True)
    if tool in SENDING or tool == CLEANING:
        return task.head_commit
    with looking(services, task) as opened:
        return objects.build_tree(opened.git, task.head_commit, opened.changes.tree)


def require_worth_asking(services: Parts, tool: str, arguments: Mapping[str, Any], task_id: str | None) -> None:
    """Do not ask a person about a call that would be refused anyway.

    Raises: `nothing_to_commit`; as `gate.require_open_gate`.
    """
    if tool not in SENDING or task_id is None:
        return
    task = find_task(services.home, task_id)
    push.require_commit(task)
    opened = Step.DRAFT_PR if arguments.get("draft", True) else Step.READY_PR
    gate.require_open(services, task, Step.PUSH if tool == PUSHING else opened)


def question(services: Parts, tool: str, arguments: Mapping[str, Any], task_id: str | None) -> tuple[str, ...]:
    """The complete question, as lines. Raises: `quota_exceeded` when it is too long to be read by a person."""
    lines = [f"An agent wants to call {tool}"]
    lines += [line for name, value in arguments.items() if value is not None for line in _argument(name, value)]
    if task_id is not None:
        lines += _about_task(services, tool, find_task(services.home, task_id, allow_closed=True))
    size = sum(map(len, lines))
    if len(lines) > MOST_LINES or size > MOST_CHARS:
        raise SandboxError(
            ErrorCode.QUOTA_EXCEEDED,
            f"The question would have {len(lines)} lines, {size} characters: too long to be read by a person",
            details=f"at most {MOST_LINES} lines and {MOST_CHARS} characters",
            hint="Split the work into calls with fewer files, or let a person run the command.",
        )
    return tuple(lines)


def _about_task(services: Parts, tool: str, task: Task) -> list[str]:
    repository = find_repository(services.home, task.repo_id)
    about = [
        f"repository: {repository.id}, remote {_told(repository.remote_url)}",
        f"branch: {_told(task.branch)}, commit {task.head_commit[:12]}",
    ]
    if tool == OPENING:
        about.append(f"pull request: into {_told(task.base_branch)}")
    if tool in SENDING:
        sent = status.committed(services, task)
        about.append(_verified(services, task))
        return [*about, *_files("sends", sent), *_flags(services, task, sent), *_passing(services, task, sent)]
    if tool == CLEANING:
        return [*about, *_CLEANED]
    changes = status.status(services, task.id).changes
    return [*about, *_files("uncommitted", changes), *_flags(services, task, changes)]


def _verified(services: Parts, task: Task) -> str:
    """Whether all checks passed on the commit in clean rooms."""
    profile = task_profile(services, task)
    if not profile.checks:
        return f"verified: no, the profile '{profile.name}' has no checks"
    known = gate.known_if_any(services, profile, objects.tree_of(cache_of(services, task.repo_id)[1], task.head_commit))
    if known.unknown:
        return f"verified: unknown ({known.unknown})"
    missing = ", ".join(known.unverified)
    return f"verified: NO, not passed: {missing}" if missing else "verified: yes, every check passed"


def _files(what: str, files: Sequence[Change | DiffFile]) -> list[str]:
    return [f"{what}: {len(files)} file(s)", *(f"  {f.kind.value:<12} {_named(f)}" for f in files)]


def _passing(services: Parts, task: Task, sent: Sequence[DiffFile]) -> list[str]:
    """Files of earlier commits: once sent, they can be read in the history."""
    paths = passing(services, task, sent)
    if not paths:
        return []
    risks = [
        f"RISK: {_told(path)} in an earlier commit ({', '.join(f)})" for path, f in flagged_paths(services, task, paths)
    ]
    return [f"in earlier commits only: {len(paths)} file(s)", *(f"  {_told(path)}" for path in paths), *risks]


def _named(file: Change | DiffFile) -> str:
    """Both names of a rename: the removed path matters as much."""
    return f"{_told(file.old_path)} -> {_told(file.path)}" if file.old_path else _told(file.path)


def _flags(services: Parts, task: Task, files: Sequence[Change | DiffFile]) -> list[str]:
    return [f"RISK: {_told(path)} ({', '.join(flags)})" for path, flags in flagged(services, task, files)]


def _argument(name: str, value: Any) -> list[str]:
    """The complete value: a person can only approve what is shown."""
    lines = (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)).split("\n")
    return (
        [f"  {name}: {_told(lines[0])}"] if len(lines) == 1 else [f"  {name}:", *(f"    | {_told(x)}" for x in lines)]
    )


def _told(text: str) -> str:
    """The complete text, with a note if it has non-ASCII letters that may look like others."""
    return spelled_out(text) + ("" if text.isascii() else "  [not all ASCII]")
