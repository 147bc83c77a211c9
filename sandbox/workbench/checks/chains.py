"""Which checks share a clean room, and in which order they are asked. Pure.

Checks that require each other, however far apart, are one chain: they run one after the other in one room, because what
the first one builds is what the next one tests. Chains know nothing of each other, so each has a room of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sandbox.models import Check, CheckRun, Verdict

Chain = tuple[Check, ...]


def chains_of(checks: Sequence[Check]) -> tuple[Chain, ...]:
    """Cut checks, required ones first, into chains; both keep the order of the checks."""
    chains: list[list[Check]] = []
    for check in checks:
        linked = [chain for chain in chains if any(before.id in check.requires for before in chain)]
        members = [c for chain in linked for c in chain]
        first = min((chains.index(chain) for chain in linked), default=len(chains))
        chains = [chain for chain in chains if chain not in linked]
        chains.insert(first, [*members, check])
    position = {check.id: n for n, check in enumerate(checks)}
    return tuple(tuple(sorted(chain, key=lambda c: position[c.id])) for chain in chains)


def ask(
    chain: Sequence[Check], answer: Callable[[Check], CheckRun | None], *, keep_going: bool
) -> tuple[CheckRun, ...] | None:
    """Ask for each check whose required ones passed, up to the first failure; None as soon as one has no answer."""
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
    """Whether each of these passed; also of none."""
    return all(run.verdict is Verdict.PASSED for run in runs)
