"""Which checks a request means, in which order, and with which limits."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from sandbox.checks.jobs import with_jobs
from sandbox.checks.parameters import fill_parameters
from sandbox.context.advice import no_checks_error
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import Check, Remark
from sandbox.profiles import Profile
from sandbox.store.records import not_found_error
from sandbox.workbench.controller.guest_memory import count_host_bytes

if TYPE_CHECKING:
    from sandbox.policy.container import ContainerPolicy

_MOST_SHOWN = 20  # ids of checks in a hint


def order_checks(
    profile: Profile,
    check_ids: Collection[str],
    policy: ContainerPolicy,
    advise: Callable[[], tuple[Remark, ...]] = tuple,
    arguments: Sequence[str] = (),
) -> tuple[Check, ...]:
    """The requested checks and their requirements, required ones first, with limits that this host can give.

    `advise`: called if the profile has no checks, for the error. `arguments`: for the only requested check. Raises:
    `not_found` for an unknown check, `invalid_input` when there is no check to run, and for arguments that it does not
    take.
    """
    check_ids = tuple(check_ids)  # a caller may give a set
    known = [c.id for c in profile.checks]
    if not known:
        error = no_checks_error(profile.full_name, advise())
        if not check_ids:
            raise error
        brief = f"There is no check '{check_ids[0][:100]}': the profile '{profile.full_name}' has none"
        raise SandboxError(ErrorCode.NOT_FOUND, brief, details=error.details, hint=error.hint)
    for name in check_ids:
        if name not in known:
            shown = ", ".join([*known[:_MOST_SHOWN], *(["..."] if len(known) > _MOST_SHOWN else [])])
            hint = f"The checks are those of the profile '{profile.full_name}': {shown}."
            hint += " Arguments for a part of a check stand after `--`." if len(check_ids) > 1 else ""
            raise not_found_error("check", name, known, hint, in_order=True)
    if not check_ids:
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            "No check was named",
            hint=f"The profile '{profile.full_name}' has: {', '.join(known)}.",
        )
    if arguments and len(check_ids) > 1:
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            "Arguments are for one check, and several are named",
            hint=f"Name one check: {', '.join(check_ids)}.",
        )
    filled = (
        fill_parameters(check, arguments if check.id == check_ids[0] else ())
        for check in profile.order_checks(check_ids)
    )
    bound = policy.memory_of_all_guests(count_host_bytes())
    return tuple(fit_to_host(check, os.cpu_count() or 1, bound) for check in filled)


def fit_to_host(check: Check, cpus: int, memory_bytes: int) -> Check:
    """Limit a check to the CPUs of the host, since the engine refuses more, and to the memory of all guests, which it
    could never have; set the number of jobs accordingly. Pure.
    """
    return with_jobs(check.model_copy(update={"limits": check.limits.within_host(cpus, memory_bytes)}))
