"""Make sure that an operation acts on the state that was approved: the same commit or tree, and the same facts.

Theory. A question shows more than what a commit or tree says: the branch that a pull request goes into, the commit that
the files are compared with, the remote. A sync changes the first two, and neither the tree nor the commit. So what a
person approves is a text: the id of the commit or tree, a space, and as JSON all facts that the question shows. It is a
part of the call's fingerprint, and compared again by the operation itself, under its lock. An id alone, as a program
gives it, is compared alone. An operation on files that no commit has puts a digest of their content after the id.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import TypeGuard

from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import Repository, Task
from sandbox.store.home import Home
from sandbox.store.records import find_repository, find_task

Facts = Mapping[str, str | bool | None]

ASK_AGAIN = "Make the call again: a person is then asked about the state of now."
PROFILE_CHOICE = "profile_choice"
"""The fact that has the state of a choice of a profile, which is one of profiles and not of the task."""

PROMPT, COMPARISON, BELOW_BASE, SIBLINGS = "prompt", "comparison", "below_base", "siblings"
_DIGESTS = {
    PROMPT: "the text of the task's prompt",
    COMPARISON: "the comparison with the base that the pull request publishes",
    BELOW_BASE: "the commits that are sent with the base",
    SIBLINGS: "the files of the other tasks",
    PROFILE_CHOICE: "what the chosen profile changes",
}
"""Facts that have a digest, and what it is of: a person cannot read it."""

_SOME_CHANGE = ("what it acts on",)
_SHOWN_CHARS = 200
_MOST_CHARS = 64 * 1024
"""Of a state. Two branches and a remote at their longest have less than half of it."""

_MOST_FACTS, _NAME_CHARS = 32, 64


def describe_record(home: Home, task: Task, **more: str | bool | None) -> Facts:
    """What questions show of a task's record and of its repository, and `more`. Raises: `not_found`."""
    return {
        "remote": find_repository(home, task.repo_id).remote_url,
        "branch": task.branch,
        "head_commit": task.head_commit,
        "base_branch": task.base_branch,
        "base_commit": task.base_commit,
        "profile": task.profile,
        **more,
    }


def describe_owner(home: Home, owner_id: str) -> Facts:
    """As `describe_record`, of a task, or of a repository's default branch.

    Raises: `not_found`; `conflict` for a closed task.
    """
    if owner_id.startswith("task-"):
        return describe_record(home, find_task(home, owner_id))
    return describe_repository(find_repository(home, owner_id))


def describe_repository(repository: Repository) -> Facts:
    """What questions show of a repository's record. Pure."""
    return {"remote": repository.remote_url, "branch": repository.default_branch}


def digest_siblings(trees: Mapping[str, str]) -> str:
    """What a person approves of other tasks that a call reads. `trees`: of their working states, by task. Pure."""
    return hashlib.sha256(json.dumps(dict(trees), sort_keys=True).encode()).hexdigest()


def join_state(target: str, facts: Facts, content: str = "") -> str:
    """The text that is approved. `target`: the id of a commit or tree. `content`: a digest, without spaces."""
    digest = f" {content}" if content else ""
    return f"{target}{digest} {json.dumps(facts, sort_keys=True, separators=(',', ':'))}"


def add_choice(state: str, choice: str) -> str:
    """A state of a task, or an empty one, with the state of a choice of a profile. Raises: `invalid_input`."""
    target, content, facts = _split_state(state)
    return join_state(target, {**facts, PROFILE_CHOICE: choice}, content)


def find_choice(state: str) -> str:
    """The state of a choice of a profile in a state; empty without one. Raises: `invalid_input`."""
    return str(_split_state(state)[2].get(PROFILE_CHOICE) or "")


def is_choice_alone(state: str) -> bool:
    """Whether a state says nothing of a task, but which profile was chosen. Raises: `invalid_input`."""
    target, content, facts = _split_state(state)
    return not target and not content and facts.keys() == {PROFILE_CHOICE}


def require_approved_state(
    what: str,
    target: str,
    approved: str | None,
    find_facts: Callable[[Facts], Facts],
    find_content: Callable[[], str] | None = None,
) -> None:
    """As `require_approved`, also for a text of `join_state`: each fact in it must be as it is now, and the content.

    `find_facts`: the facts of now; it is called with those that were approved. `find_content`: the digest of now; None:
    the operation has none. Raises: `conflict`; `invalid_input` for a text that `join_state` does not make.
    """
    wanted, content, asked = _split_state(approved or "")
    if (asked and not wanted) or (content and find_content is None):
        raise _unreadable_error()
    require_approved(what, target, wanted or None)
    if asked:
        _require_facts(asked, find_facts(asked))
    if content and find_content is not None:
        require_approved("content of the paths to delete", find_content(), content)


def _require_facts(asked: Facts, found: Facts) -> None:
    changed = [name for name in asked if asked[name] != found.get(name)]
    if changed:
        raise SandboxError(
            ErrorCode.CONFLICT,
            f"What was approved has changed: {', '.join(changed)}",
            details="\n".join(_describe_change(name, "approved", asked, found) for name in changed),
            hint=ASK_AGAIN,
        )


def describe_changes(asked: str, now: str) -> tuple[str, ...]:
    """What differs between two states, a line for each fact. `asked`: '' if it is not known. Pure."""
    if asked == now:
        return ()
    try:
        (target, content, facts), (target_now, content_now, facts_now) = _split_state(asked), _split_state(now)
    except SandboxError:  # a worker of a cluster says what it likes
        return _SOME_CHANGE
    if not asked:
        return _SOME_CHANGE
    lines = [
        _describe_change(name, "asked about", facts, facts_now)
        for name in sorted(facts.keys() | facts_now.keys())
        if facts.get(name) != facts_now.get(name)
    ]
    is_shown = (target, target_now) == (facts.get("head_commit"), facts_now.get("head_commit"))
    if target != target_now and not is_shown:
        lines.append(f"commit or tree: asked about {_show(target)}, now {_show(target_now)}")
    if content != content_now:
        lines.append("content of the paths to delete")
    return tuple(lines) or _SOME_CHANGE


def _describe_change(name: str, verb: str, before: Facts, now: Facts) -> str:
    """`verb`: what was done about the fact of before."""
    of = _DIGESTS.get(name)
    if name not in before:
        return f"{name}: not {verb} by an earlier version" + (f" ({of})" if of else "")
    if of is not None:
        return f"{name}: {of} is not the one that was {verb}"
    return f"{name}: {verb} {_show(before[name])}, now {_show(now.get(name))}"


def _split_state(state: str) -> tuple[str, str, Facts]:
    """The id, the digest of the content and the facts; '' and none for an id alone. Approvals of an earlier version
    have a digest without facts. Programs and callers of a cluster give it as well. Raises: `invalid_input`.
    """
    target, _, rest = state.partition(" ")
    content, _, text = ("", "", rest) if rest.startswith("{") else rest.partition(" ")
    if not text:
        return target, content, {}
    try:
        facts = json.loads(text) if len(state) <= _MOST_CHARS else None
    except (ValueError, RecursionError):
        facts = None
    if not _is_facts(facts):
        raise _unreadable_error()
    return target, content, facts


def _unreadable_error() -> SandboxError:
    return SandboxError(
        ErrorCode.INVALID_INPUT,
        "The approved state cannot be read",
        details="After the id of the commit or tree it needs a JSON object of strings, booleans and nulls, at most "
        f"{_MOST_FACTS}, and {_MOST_CHARS} characters in all",
        hint="Give the state as the approval has it, or the id alone.",
    )


def _is_facts(value: object) -> TypeGuard[Facts]:
    return (
        isinstance(value, dict)
        and len(value) <= _MOST_FACTS
        and all(len(name) <= _NAME_CHARS and name.isascii() and name.isidentifier() for name in value)
        and all(fact is None or isinstance(fact, str | bool) for fact in value.values())
    )


def _show(value: str | bool | None) -> str:
    return "none" if value is None else ascii(value)[:_SHOWN_CHARS]


def require_approved(what: str, actual: str, approved: str | None) -> None:
    """`what`: "commit" or "tree". `approved`: the id that a person approved, or that the call started with; None: any.

    Raises: `conflict`.
    """
    if approved not in {None, actual}:
        raise SandboxError(
            ErrorCode.CONFLICT,
            f"The task's {what} is not the one that was requested",
            details=f"requested {approved}, found {actual}",
            hint="Review the diff, then request it again.",
        )
