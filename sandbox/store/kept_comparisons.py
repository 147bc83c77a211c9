"""Comparisons of a tree with the base of its task, by what the verdicts of both are bound to.

A comparison is a file beside the cached verdicts, named by the digest of their keys, which it also contains. It holds
as long as both sides would get the same question: the same trees, images, checks, limits and policies. The gate reads
it, so it needs no engine beyond the names of the images, and runs no check.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence

from pydantic import ValidationError

from sandbox.errors import SandboxError
from sandbox.models.comparisons import TreeComparison
from sandbox.models.model import Model
from sandbox.store.home import Home, read_json, write_json

_log = logging.getLogger(__name__)


class _ComparisonRecord(Model):
    keys: tuple[tuple[str, ...], tuple[str, ...]]
    comparison: TreeComparison


def save_comparison(home: Home, before: Sequence[str], after: Sequence[str], comparison: TreeComparison) -> None:
    """Keep a comparison; it replaces the one before it. `before`, `after`: keys of the bindings on both trees.

    If the home cannot be written only the record is lost, and a gate stays closed.
    """
    keys = (tuple(before), tuple(after))
    path = home.verdict(_name(keys))
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        write_json(path, _ComparisonRecord(keys=keys, comparison=comparison).model_dump(mode="json"))
    except OSError as error:
        _log.warning("the comparison with %s is not kept: %s", comparison.commit, error)


def find_comparison(home: Home, before: Sequence[str], after: Sequence[str]) -> TreeComparison | None:
    """The last comparison with these bindings. One that is damaged or stored under another name is ignored."""
    keys = (tuple(before), tuple(after))
    try:
        document = read_json(home.verdict(_name(keys)))
        record = None if document is None else _ComparisonRecord.model_validate(document)
    except (SandboxError, ValidationError) as error:
        _log.warning("a comparison cannot be used: %s", str(error)[:200])
        return None
    return record.comparison if record is not None and record.keys == keys else None


def _name(keys: tuple[tuple[str, ...], tuple[str, ...]]) -> str:
    text = "compared\n" + "\n\n".join("\n".join(side) for side in keys)
    return hashlib.sha256(text.encode()).hexdigest()
