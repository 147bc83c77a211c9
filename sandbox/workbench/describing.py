"""What a pull request says of a task, gathered from its record."""

from __future__ import annotations

from collections.abc import Sequence

from sandbox.forges.body import Facts
from sandbox.gate import Step, required
from sandbox.git.log import subjects
from sandbox.git.objects import tree_of
from sandbox.models import DiffFile, Task
from sandbox.workbench import gates, states
from sandbox.workbench.checklist import task_profile
from sandbox.workbench.parts import Parts
from sandbox.workbench.passing import passing
from sandbox.workbench.repositories import cache_of
from sandbox.workbench.risks import flagged, flagged_paths


def facts(parts: Parts, task: Task, given: str | None = None, *, trusted: bool = False) -> Facts:
    """Of the task's last commit. `given`: the caller's own text; `trusted`: a person's.

    Without an engine the verdicts are unknown, and it says so. Raises: what reading the cache clone raises.
    """
    _, git = cache_of(parts, task.repo_id)
    tree = tree_of(git, task.head_commit)
    files = states.committed(parts, task)
    profile = task_profile(parts, task)
    known = gates.known_if_any(parts, profile, tree)
    return Facts(
        prompt=task.prompt,
        given=given,
        trusted=trusted,
        commits=subjects(git, task.base_commit, task.head_commit),
        files=files,
        runs=tuple(run for run in known.said.values() if run is not None),
        missing=tuple(name for name, run in known.said.items() if run is None),
        tree=tree,
        head=task.head_commit,
        verified=known.verified,
        unknown=known.unknown,
        gate=_gate(parts, known.verified),
        risks=_risks(parts, task, files),
        profile=profile.name,
    )


def _risks(parts: Parts, task: Task, files: Sequence[DiffFile]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Of what the commits change as a whole, and of what one of them had and a later one took back."""
    earlier = flagged_paths(parts, task, passing(parts, task, files))
    return (*flagged(parts, task, files), *((path, (*flags, "in an earlier commit")) for path, flags in earlier))


def _gate(parts: Parts, verified: bool | None) -> str:
    """What the setting `gate.require` demands of a pull request, and whether the tree has it."""
    require = parts.settings.gate.require
    steps = [
        words
        for step, words in ((Step.DRAFT_PR, "a draft"), (Step.READY_PR, "a request that is ready"))
        if required(step, require)
    ]
    if not steps:
        return "The gate demands no verification of pull requests."
    state = {True: "satisfied", False: "not satisfied", None: "unknown"}[verified]
    return f"The gate demands it of {' and of '.join(steps)}: {state}."
