"""What it means that an agent wants another profile for a new task, or takes a task with one to another base: the
lines of the question, and their digest.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from pydantic import BaseModel

from sandbox.errors import ErrorCode, SandboxError
from sandbox.git.cache_clones import resolve_commit
from sandbox.git.process import Git
from sandbox.git.refs import resolve_ref
from sandbox.models import Actor, Check, Task
from sandbox.profiles import Profile
from sandbox.store.records import find_task
from sandbox.text import escape_invisible
from sandbox.workbench.controller.services import Services
from sandbox.workbench.repositories.clone import find_pull_request_ref
from sandbox.workbench.repositories.commit_facts import load_profile
from sandbox.workbench.tasks.approved_state import ASK_AGAIN, find_choice, join_state
from sandbox.workbench.tasks.snapshots import find_base_of_snapshot, find_task_of_snapshot

CREATING, FORKING = "space_repo_create_task", "space_repo_fork_task"
SYNCING, CHECKING_OUT = "space_repo_sync", "space_repo_checkout"
BASE_ON_CLUSTER = "base_commit"
"""The argument that has the base of a new task that continues from one of a cluster, which is not in this home."""

MOVING = {SYNCING: "onto", CHECKING_OUT: "ref"}
"""Tools that give a task another base, and the argument that names it. Its profile stays, and changes something else
there if the base has other usual checks.
"""

CHOOSING = frozenset({CREATING, FORKING, *MOVING})
"""Tools by which the profile of a task can be another than the repository's."""

_SHOWN_FIELDS = ("image", "packages", "layers", "services", "artifacts", "pythons", "gos", "git_facts")
_UNWRITTEN_FIELDS = (
    "repository_image", "requires_version", "folder", "project_name", "project_parts", "submodule_urls", "lfs"
)  # fmt: skip
"""Of a profile: no JSON of it has them."""


class ProfileChoice(NamedTuple):
    """A profile for a new task of a repository that begins at `ref`; None: at the default branch. One that continues
    from a task, or from a snapshot of it or of any task, is based on what that is based on. `moved`: the task that
    moves to `ref`; None: to its base branch.
    """

    repo_id: str
    name: str
    ref: str | None = None
    task_id: str | None = None
    snapshot: str | None = None
    moved: str | None = None


def find_inherited_profile(services: Services, tool: str, arguments: Mapping[str, Any]) -> str | None:
    """The profile that was chosen for the task from which the new task of a call continues, or that a call moves to a
    base where that profile changes something else. None: there is none, or the call gives one. Raises: `not_found`.
    """
    if arguments.get("profile") is not None:
        return None
    if tool in MOVING and arguments.get("task_id") is not None:
        return _find_moved_profile(services, tool, arguments)
    if tool == FORKING and arguments.get("task_id") is not None:
        return find_task(services.home, arguments["task_id"], allow_closed=True).profile
    snapshot, repo_id = arguments.get("from_snapshot"), arguments.get("repo_id")
    if tool == CREATING and snapshot is not None and repo_id is not None:
        return find_task_of_snapshot(services, repo_id, snapshot).profile
    return None


def _find_moved_profile(services: Services, tool: str, arguments: Mapping[str, Any]) -> str | None:
    """None also for a base that was not fetched yet: the call itself compares it (`require_same_choice`)."""
    task = find_task(services.home, arguments["task_id"], allow_closed=True)
    choice = read_choice(tool, {**arguments, "profile": task.profile}, task.repo_id)
    if choice is None or task.profile is None:
        return None
    try:
        _, *profiles = _load_profiles(services, choice)
    except SandboxError as error:
        if error.code in {ErrorCode.NOT_FOUND, ErrorCode.INVALID_INPUT}:  # the call is refused for it
            return None
        raise
    return None if _digest_profiles(*profiles) == _digest_at(services, task, task.base_commit) else task.profile


def _digest_at(services: Services, task: Task, commit: str) -> str:
    """Of the choice of a task's profile, if the task was based on a commit."""
    _, git = services.repositories.open(task.repo_id)
    return _digest_profiles(*_load_both(services, task.repo_id, git, commit, task.profile))


def read_choice(tool: str, arguments: Mapping[str, Any], repo_id: str | None) -> ProfileChoice | None:
    """The choice of a profile in a call, also of one that its task inherits; None without one. Pure."""
    if tool not in CHOOSING or repo_id is None or arguments.get("profile") is None:
        return None
    name = arguments["profile"]
    if (known := arguments.get(BASE_ON_CLUSTER)) is not None:
        return ProfileChoice(repo_id, name, known)
    if tool in MOVING:
        return ProfileChoice(repo_id, name, arguments.get(MOVING[tool]), moved=arguments.get("task_id"))
    if tool == FORKING:
        return ProfileChoice(repo_id, name, None, arguments.get("task_id"), arguments.get("snapshot"))
    ref = arguments.get("ref") or arguments.get("base_branch")
    return ProfileChoice(repo_id, name, ref, None, arguments.get("from_snapshot"))


class ShownChoice(NamedTuple):
    """A choice of a profile as a person approves it: `lines` are shown, and `state` is what they approve: another text
    once anything of one of the two profiles changes, also what the lines do not show, or the commit that they name.
    """

    state: str
    lines: tuple[str, ...]


def look_at_choice(services: Services, choice: ProfileChoice) -> ShownChoice:
    """What the gate asks of a task with this profile, and no longer asks: as of the base of what it continues; else
    the commit that the last fetch found at its ref; else the default branch. State and lines are of one reading.

    Raises: `not_found`, `invalid_input` for a profile that cannot be used, or for the ref.
    """
    where, usual, chosen = _load_profiles(services, choice)
    state = join_state(_digest_profiles(usual, chosen), {"as_of": where})
    return ShownChoice(state, _describe_profiles(where, usual, chosen))


def _describe_profiles(where: str, usual: Profile, chosen: Profile) -> tuple[str, ...]:
    return (
        f"profile: {chosen.full_name} instead of {usual.full_name}, as of {where}",
        "before a push or pull request of this task the gate asks for the checks of this profile only",
        *compare_checks(usual, chosen),
        *_compare_rest(usual, chosen),
    )


def find_approved_choice(state: str | None) -> str | None:
    """The state of a choice in the state of a fork that was approved; None without one. Raises: `invalid_input`."""
    return find_choice(state or "") or None


def require_approved_choice(services: Services, task: Task, approved: str) -> None:
    """`task`: a new one. `approved`: a state of `look_at_choice`. What was fetched meanwhile may have moved the commit
    at which the task begins; that is no other choice, as long as it does not change one of the two profiles.

    Raises: `conflict`.
    """
    _, git = services.repositories.open(task.repo_id)
    usual, chosen = _load_both(services, task.repo_id, git, task.base_commit, task.profile)
    if _digest_profiles(usual, chosen) != approved.partition(" ")[0]:
        raise SandboxError(
            ErrorCode.CONFLICT,
            f"At {task.base_commit[:12]} the profile {task.profile} changes other checks than those that were approved",
            details="It begins at this commit, which was not the one that was shown, or has another profile by now.",
            hint=ASK_AGAIN,
        )


def require_same_choice(services: Services, approved: str | None, task: Task, commit: str) -> None:
    """Refuse to take a task with a chosen profile to a commit where that changes other checks, unless a person approved
    it: for agents only, as others choose profiles themselves. `approved`: the state that the call was approved with.

    Raises: `conflict`.
    """
    if task.profile is None or services.surface.actor is not Actor.AGENT:
        return
    choice, there = find_approved_choice(approved), _digest_at(services, task, commit)
    wanted = choice.partition(" ")[0] if choice else _digest_at(services, task, task.base_commit)
    if wanted != there:
        raise SandboxError(
            ErrorCode.CONFLICT,
            f"At {commit[:12]} the profile {task.profile} changes other checks than those that were approved",
            details=f"{task.id} was made with this profile at a base that has other checks without it.",
            hint=ASK_AGAIN,
        )


def _digest_profiles(usual: Profile, chosen: Profile) -> str:
    lines = (*_describe_profiles("", usual, chosen), *_list_parts(usual), *_list_parts(chosen))
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _load_both(services: Services, repo_id: str, git: Git, commit: str, name: str | None) -> tuple[Profile, Profile]:
    """The profile that a task has at a commit without a choice, and the one of this name."""
    usual, chosen = (load_profile(services, repo_id, git, commit, given) for given in (None, name))
    return usual, chosen


def _load_profiles(services: Services, choice: ProfileChoice) -> tuple[str, Profile, Profile]:
    """Where the task would begin, the profile that it would have there, and the chosen one."""
    repository, git = services.repositories.open(choice.repo_id)
    if (base := _find_continued_base(services, choice)) is not None:
        return f"commit {base[:12]}, its base", *_load_both(services, choice.repo_id, git, base, choice.name)
    default = resolve_commit(git, "HEAD", repository.default_branch)
    commit, where = default, f"commit {default[:12]} of the default branch"
    ref = choice.ref
    if ref is None and choice.moved is not None:
        ref = find_task(services.home, choice.moved, allow_closed=True).base_branch.removeprefix("refs/heads/")
    if ref is not None:
        try:
            commit = _find_fetched(git, ref) or resolve_commit(git, ref, repository.default_branch)
            where = f"commit {commit[:12]}"
        except SandboxError as error:  # a new branch, or a pull request: the call fetches it
            if error.code is not ErrorCode.NOT_FOUND:
                raise
            where += ": what it begins at was not fetched yet"
    return where, *_load_both(services, choice.repo_id, git, commit, choice.name)


def _find_continued_base(services: Services, choice: ProfileChoice) -> str | None:
    """The base of what the new task continues from, which becomes its own; None if it does not continue from a task."""
    if choice.snapshot is not None:
        return find_base_of_snapshot(services, choice.repo_id, choice.snapshot, choice.task_id)
    return choice.task_id and find_task(services.home, choice.task_id, allow_closed=True).base_commit


def _find_fetched(git: Git, ref: str) -> str | None:
    """The commit of a pull request as of its last fetch; None for another ref, or if it was not fetched."""
    wanted = find_pull_request_ref(git, ref)
    return None if wanted is None else resolve_ref(git, wanted.cached)


def compare_checks(usual: Profile, chosen: Profile) -> Iterator[str]:
    """The checks that a task with `chosen` has not, or has with another definition, and those it has. Pure."""
    found = {check.id: check for check in chosen.checks}
    missing = [check for check in usual.checks if check.id not in found]
    others = [check for check in usual.checks if check.id in found and check != found[check.id]]
    yield f"leaves out: {len(missing)} of {len(usual.checks)} check(s) of {usual.full_name}"
    yield from (f"  {_describe(check)}" for check in missing)
    yield f"runs another check of the same name: {len(others)}"
    for check in others:
        yield f"  {_describe(check)}"
        yield f"  now {_describe(found[check.id])}"
        if fields := _list_differences(check, found[check.id], [*Check.model_fields.keys() - {"argv"}]):
            yield f"  also differs in: {', '.join(fields)}"
    if usual.launch is not None and usual.launch != chosen.launch:
        yield "leaves out: the launch of the application" if chosen.launch is None else "launches it in another way"
    yield f"has: {len(chosen.checks)} check(s)"
    yield from (f"  {_describe(check)}" for check in chosen.checks)


def _compare_rest(usual: Profile, chosen: Profile) -> Iterator[str]:
    """What else the verdicts of its checks depend on. Pure."""
    if fields := _list_differences(usual, chosen, (*_SHOWN_FIELDS, *_UNWRITTEN_FIELDS)):
        yield f"its checks run with another: {', '.join(fields)}"


def _list_differences(one: BaseModel, other: BaseModel, fields: Iterable[str]) -> list[str]:
    return sorted(name for name in fields if getattr(one, name) != getattr(other, name))


def _list_parts(profile: Profile) -> Iterator[str]:
    """All that a profile says, as text: of itself and of the projects in it. Pure."""
    for part in (profile, *profile.project_parts):
        yield part.model_dump_json()
        yield from (f"{name}: {getattr(part, name)}" for name in _UNWRITTEN_FIELDS if name != "project_parts")


def _describe(check: Check) -> str:
    return escape_invisible(f"{check.id}: {shlex.join(check.argv)}")
