"""Which checks share a clean room, and in which order they run. Pure.

Checks that require each other, directly or through others, are one chain. They run one after the other in one room,
because the next check tests what the first one built. Chains are independent, so each has its own room.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sandbox.models import Check, CheckRun, Verdict
from sandbox.store.verdicts import is_conclusive

Chain = tuple[Check, ...]


def split_into_chains(checks: Sequence[Check]) -> tuple[Chain, ...]:
    """Split checks (required ones first) into chains. Chains and their checks keep the order of `checks`."""
    chains: list[list[Check]] = []
    for check in checks:
        linked = [chain for chain in chains if any(before.id in check.requires for before in chain)]
        members = [c for chain in linked for c in chain]
        first = min((chains.index(chain) for chain in linked), default=len(chains))
        chains = [chain for chain in chains if chain not in linked]
        chains.insert(first, [*members, check])
    position = {check.id: n for n, check in enumerate(checks)}
    return tuple(tuple(sorted(chain, key=lambda c: position[c.id])) for chain in chains)


def answer_chain(
    chain: Sequence[Check], answer: Callable[[Check], CheckRun | None], *, keep_going: bool
) -> tuple[CheckRun, ...] | None:
    """Call `answer` for each check that has all its requirements passed; stop at the first failure, unless
    `keep_going`. Returns None as soon as one check has no answer.
    """
    runs: list[CheckRun] = []
    for check in chain:
        passed = {run.check_id for run in runs if run.verdict is Verdict.PASSED}
        if not passed.issuperset(check.requires):
            continue
        run = answer(check)
        if run is None:
            return None
        runs.append(run)
        if run.verdict is not Verdict.PASSED and not keep_going:
            break
    return tuple(runs)


def all_passed(runs: Sequence[CheckRun]) -> bool:
    """Whether every run passed; true for no runs."""
    return all(run.verdict is Verdict.PASSED for run in runs)


def is_verified(runs: Sequence[CheckRun], checks: Sequence[Check]) -> bool:
    """Whether each of the checks ran and passed, in a run that a verdict is kept of: the gate takes no other."""
    counts = all(is_conclusive(run) and not run.refused for run in runs)
    return len(runs) == len(checks) and all_passed(runs) and counts
