"""Names of the branches of tasks: `space-agent/45c2abc0-lower-the-name`.

The eight characters are the beginning of the task's id. Tasks of earlier versions have their whole id there, and keep
that name: a task's record holds the name of its branch. Within a home no two tasks have the same eight characters
(`draw_task_id`), so a name of either form belongs to one task.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

from sandbox.errors import ErrorCode, SandboxError
from sandbox.git.process import Git
from sandbox.lazy_pattern import lazy_pattern
from sandbox.models import TASK_ID_PATTERN
from sandbox.store.home import Home
from sandbox.store.short_ids import SHOWN_CHARACTERS

PREFIX = "refs/heads/space-agent/"
ALL_BRANCHES = "space-agent/*"
"""Fits the branch of every task."""
_ID_LENGTH = len("task-") + 36
_SHORT = lazy_pattern(r"[0-9a-f]{8}(?=-)")
_SLUG_LENGTH = 40
MOST_BRANCH_CHARS = 80
"""Of the words that a caller chooses for a branch."""


def draw_task_id(home: Home, git: Git) -> str:
    """A new task id, with eight characters that no task of the home and no branch of the clone begins with."""
    while True:
        task_id = f"task-{uuid.uuid4()}"
        if not _is_taken(home, task_id[:SHOWN_CHARACTERS]) and not git.run("for-each-ref", *_patterns(task_id)):
            return task_id


def name_branch(task_id: str, prompt: str, chosen: str | None = None) -> str:
    """The branch of a new task. `chosen`: as `require_branch_words` takes it; None: the words of its prompt. Pure."""
    if chosen is not None:
        return f"space-agent/{_short(task_id)}-{require_branch_words(chosen)}"
    return f"space-agent/{_short(task_id)}-{_to_words(prompt)[:_SLUG_LENGTH].strip('-') or 'work'}"


def _to_words(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower().encode("ascii", "ignore").decode()).strip("-")


def require_branch_words(chosen: str) -> str:
    """The words of a branch that a caller chose, without the prefix that all branches of tasks have. What stands before
    them says which task the branch belongs to, so it cannot be chosen. Pure.

    Raises: `invalid_input` for other characters, or too many of them: no name is changed silently.
    """
    words = chosen.removeprefix("space-agent/")
    if len(words) <= MOST_BRANCH_CHARS and re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", words):
        return words
    near = _to_words(words)[:MOST_BRANCH_CHARS].strip("-")
    raise SandboxError(
        ErrorCode.INVALID_INPUT,
        f"The branch of a task cannot be named {chosen[:100]!a}",
        details=f"at most {MOST_BRANCH_CHARS} lower-case letters and digits, in words with one - between them",
        hint="The name is space-agent/ID-WORDS: the beginning of the task's id, and the words that you give"
        + (f", such as {near}." if near else "."),
    )


def is_branch_of(task_id: str, branch: str) -> bool:
    """Whether a branch, without `refs/heads/`, has a name that only this task's branch may have. Pure."""
    return re.fullmatch(rf"space-agent/({re.escape(task_id)}|{_short(task_id)})-[a-z0-9-]+", branch) is not None


def read_owner(ref: str) -> str | None:
    """What the name of a branch says of its task: its whole id, or the beginning `task-45c2abc0`. None for others."""
    name = ref.removeprefix(PREFIX)
    if re.match(TASK_ID_PATTERN.removesuffix("$") + "-", name):
        return name[:_ID_LENGTH]
    found = _SHORT.match(name) if ref.startswith(PREFIX) else None
    return f"task-{found[0]}" if found else None


def list_branches(git: Git, task_id: str) -> list[str]:
    """The commits of the branches with this task's name."""
    return git.run("for-each-ref", "--format=%(objectname)", *_patterns(task_id)).decode().split()


def list_branch_refs(git: Git, task_id: str) -> list[str]:
    """The full names of the branches with this task's name."""
    return git.run("for-each-ref", "--format=%(refname)", *_patterns(task_id)).decode().split()


def find_ids(home: Home, repo_id: str, beginning: str) -> set[str]:
    """The ids that begin so of all tasks that have a record, are being created, or left a worktree.

    A task that is being created has its mark before its branch, and its record before the mark goes. So if the branch
    was listed before, and there is no id here, then its creation is over and failed.
    """
    return {name for name in _list_ids(home, repo_id, beginning) if re.fullmatch(TASK_ID_PATTERN, name)}


def index_ids(home: Home, repo_id: str) -> dict[str, set[str]]:
    """As `find_ids` for all branches, by the beginning that a short name of a branch has: each directory is listed
    once. The branches were listed before.
    """
    index: dict[str, set[str]] = {}
    for task_id in find_ids(home, repo_id, "task-"):
        index.setdefault(task_id[:SHOWN_CHARACTERS], set()).add(task_id)
    return index


def select_ids(index: Mapping[str, set[str]], beginning: str) -> set[str]:
    """The ids of an index that begin so. `beginning`: as `read_owner` returns it. Pure."""
    return {task_id for task_id in index.get(beginning[:SHOWN_CHARACTERS], ()) if task_id.startswith(beginning)}


def _list_ids(home: Home, repo_id: str, beginning: str) -> Iterator[str]:
    yield from _stems(home.repositories / "tasks", f"{beginning}*.making")
    yield from _stems(home.repositories / "tasks", f"{beginning}*.json")
    yield from _stems(home.repositories / "worktrees" / repo_id, f"{beginning}*")
    yield from _stems(home.repositories / "layers" / repo_id, f"{beginning}*")


def _is_taken(home: Home, beginning: str) -> bool:
    return any(_stems(home.repositories / "tasks", f"{beginning}*"))


def _stems(folder: Path, pattern: str) -> list[str]:
    return [path.stem for path in folder.glob(pattern)]


def _short(task_id: str) -> str:
    return task_id[:SHOWN_CHARACTERS].removeprefix("task-")


def _patterns(task_id: str) -> tuple[str, str]:
    return f"{PREFIX}{task_id}-*", f"{PREFIX}{_short(task_id)}-*"
