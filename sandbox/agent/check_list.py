"""Checks as `space_repo_list_checks` shows them: what they share once, and of each what is not the default. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from sandbox.agent.outputs import Checks, ListedCheck
from sandbox.models import Check, Limits, Remark


def list_shared(checks: Sequence[Check], advice: tuple[Remark, ...]) -> Checks:
    """The limits that most checks have, the checks with those that differ, and the remarks."""
    shared = {
        name: Counter(getattr(check.limits, name) for check in checks).most_common(1)[0][0]
        for name in (Limits.model_fields if checks else ())
    }
    return Checks(checks=tuple(_describe(check, shared) for check in checks), limits=shared, advice=advice)


def _describe(check: Check, shared: dict[str, int | float]) -> ListedCheck:
    said = check.model_dump(include=set(ListedCheck.model_fields) - {"limits"}, exclude_defaults=True)
    own = {name: value for name, value in dict(check.limits).items() if value != shared[name]}
    return ListedCheck(**said | {"timeout_s": check.timeout_s, "limits": own or None})
