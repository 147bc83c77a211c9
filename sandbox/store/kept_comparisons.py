"""Comparisons of a tree with the base of its task, by what the verdicts of both are bound to.

A comparison is a file beside the cached verdicts, named by the digest of their keys, which it also contains. It holds
as long as both sides would get the same question: the same trees, images, checks, limits and policies, and as long as
no later run of a check did not pass. The gate reads it, so it needs no engine beyond the names of the images, and runs
no check.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping, Sequence

from sandbox.errors import SandboxError, describe_briefly
from sandbox.models.comparisons import TreeComparison
from sandbox.models.model import Model
from sandbox.models.runs import CheckRun
from sandbox.models.words import Verdict
from sandbox.store.home import Home, read_record, write_json

_log = logging.getLogger(__name__)

LastRuns = Mapping[str, CheckRun | None]
"""Of each check of the tree, the last run that the verdict cache has."""


class _ComparisonRecord(Model):
    """`last_runs`: of each check, the id of the last run that the verdict cache had."""

    keys: tuple[tuple[str, ...], tuple[str, ...]]
    comparison: TreeComparison
    last_runs: dict[str, str | None]


def save_comparison(
    home: Home, before: Sequence[str], after: Sequence[str], comparison: TreeComparison, last_runs: LastRuns
) -> None:
    """Keep a comparison; it replaces the one before it. `before`, `after`: keys of the bindings on both trees.

    If the home cannot be written only the record is lost, and a gate stays closed.
    """
    keys = (tuple(before), tuple(after))
    path = home.verdict(_name(keys))
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        seen = {name: run.run_id if run else None for name, run in last_runs.items()}
        record = _ComparisonRecord(keys=keys, comparison=comparison, last_runs=seen)
        write_json(path, record.model_dump(mode="json"))
    except OSError as error:
        _log.warning("the comparison with %s is not kept: %s", comparison.commit, error)


def find_comparison(
    home: Home, before: Sequence[str], after: Sequence[str], last_runs: LastRuns
) -> TreeComparison | None:
    """The last comparison with these bindings. One that is damaged or stored under another name is ignored, and so is
    one that is older than a run that did not pass.
    """
    keys = (tuple(before), tuple(after))
    try:
        record = read_record(home.verdict(_name(keys)), _ComparisonRecord)
    except SandboxError as error:
        _log.warning("a comparison cannot be used: %s", describe_briefly(error)[:200])
        return None
    if record is None or record.keys != keys or not _is_current(record, last_runs):
        return None
    return record.comparison


def _is_current(record: _ComparisonRecord, last_runs: LastRuns) -> bool:
    """Whether each check has passed since, or was not run again. A run without a conclusive end deletes its verdict."""
    return all(
        (run is not None and run.verdict is Verdict.PASSED)
        or (run.run_id if run else None) == record.last_runs.get(name)
        for name, run in last_runs.items()
    )


def _name(keys: tuple[tuple[str, ...], tuple[str, ...]]) -> str:
    text = "compared\n" + "\n\n".join("\n".join(side) for side in keys)
    return hashlib.sha256(text.encode()).hexdigest()
