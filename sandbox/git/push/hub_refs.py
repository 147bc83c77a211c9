"""Refs of tasks in a hub: an ordinary git remote that carries the state of tasks between hosts.

Theory. A task has one ref in the hub, `refs/space-sandbox/tasks/<task>/<epoch>`. Every update names the value that the
ref must have (a lease), and a change of worker creates the ref of the next epoch and deletes that of the last one in
one atomic push. So a worker that was believed dead is refused by the hub: the ref that it expects is gone. That
holds without clocks, and whatever that worker knows.

The push that deletes the ref of a closed task creates `refs/space-sandbox/closed/<day>/<task>`, which says what the
close answered. `gc` deletes it some days later.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from typing import NamedTuple

from sandbox.credentials import remove_secret
from sandbox.errors import ErrorCode, SandboxError
from sandbox.git.failures import memory_error
from sandbox.git.objects import is_object_id
from sandbox.git.process import Git, ResourceLimits
from sandbox.git.push.reasons import PushReason, PushRejected
from sandbox.git.push.receiving import MAX_PACK_BYTES, receive_pack_options
from sandbox.git.push.rejection import classify_rejection
from sandbox.git.transport import RemoteAccess, list_refs, network_access
from sandbox.lazy_pattern import lazy_pattern
from sandbox.memory import TRANSFER_BUDGET, TRANSFER_BYTES

PREFIX = "refs/space-sandbox/tasks/"
ENDS = "refs/space-sandbox/closed/"
_EPOCH = lazy_pattern("[1-9][0-9]{0,8}")
"""As `name_ref` writes it: the hub may have other names, which digits of other scripts or zeros would pass for ours."""

_END = lazy_pattern(f"{ENDS}[0-9]{{8}}/task-[0-9a-f-]{{36}}")


class RefUpdate(NamedTuple):
    """`new`: the commit to be there afterwards; None deletes the ref. `expected`: now; None: the ref must not exist."""

    new: str | None
    expected: str | None


def name_ref(task_id: str, epoch: int) -> str:
    """The full name of the ref of a task."""
    return f"{PREFIX}{task_id}/{epoch}"


def list_epochs(git: Git, access: RemoteAccess, task_id: str) -> dict[int, str]:
    """The commits of a task in the hub, by epoch. Raises: network errors."""
    start = f"{PREFIX}{task_id}/"
    found = {name.removeprefix(start): oid for oid, name in list_refs(git, access, patterns=(f"{start}*",))}
    return {int(name): oid for name, oid in found.items() if _EPOCH.fullmatch(name) and is_object_id(oid)}


def name_end_ref(task_id: str, day: date) -> str:
    """The full name of the ref that says how a task was closed on a day."""
    return f"{ENDS}{day:%Y%m%d}/{task_id}"


def find_end(git: Git, access: RemoteAccess, task_id: str) -> str | None:
    """The ref that says how a task was closed; None if there is none any more. Raises: network errors."""
    found = [name for _, name in list_refs(git, access, patterns=(f"{ENDS}*/{task_id}",)) if _END.fullmatch(name)]
    return max(found, default=None)


class HubList(NamedTuple):
    """The last epoch of each task, and of each that was closed not long ago its ref and the commit of that."""

    last: Mapping[str, int]
    ends: Mapping[str, tuple[str, str]]


def list_hub(git: Git, access: RemoteAccess) -> HubList:
    """All tasks in the hub. Raises: network errors."""
    last: dict[str, int] = {}
    ends: dict[str, tuple[str, str]] = {}
    for oid, name in list_refs(git, access, patterns=(f"{PREFIX}*", f"{ENDS}*")):
        task_id, _, epoch = name.removeprefix(PREFIX).partition("/")
        if _END.fullmatch(name) and is_object_id(oid):
            ends[name.rpartition("/")[2]] = (name, oid)
        elif name.startswith(PREFIX) and _EPOCH.fullmatch(epoch):
            last[task_id] = max(last.get(task_id, 0), int(epoch))
    return HubList(last, ends)


def update_refs(git: Git, access: RemoteAccess, updates: Mapping[str, RefUpdate]) -> None:
    """Change refs of the hub, all or none.

    Raises: `conflict` (`reason`: `epoch_ended`) if one is not as expected; `push_rejected` and network errors.
    """
    leases = [f"--force-with-lease={ref}:{update.expected or ''}" for ref, update in updates.items()]
    specs = [f"{update.new or ''}:{ref}" for ref, update in updates.items()]
    limits = ResourceLimits(MAX_PACK_BYTES, TRANSFER_BYTES)
    with network_access(access) as network, TRANSFER_BUDGET.reserve(TRANSFER_BYTES, access.timeout_s):
        result = git.attempt(
            "push", "--porcelain", "--no-verify", "--no-follow-tags", "--atomic", *leases,
            *receive_pack_options(git, access.remote), "--", access.remote.url, *specs,
            network=replace(network, limits=limits), deadline_s=access.timeout_s,
        )  # fmt: skip
    if result.code == 0:
        return
    stderr = remove_secret(result.stderr, access.credential)
    if error := memory_error("push", stderr):
        raise error
    output = remove_secret(result.stdout.decode(errors="replace"), access.credential)
    rejected = classify_rejection(next(iter(updates)), result.code, stderr, output)
    moved = isinstance(rejected, PushRejected) and rejected.reason in {
        PushReason.BRANCH_MOVED,
        PushReason.BRANCH_EXISTS,
        PushReason.BRANCH_DELETED,
    }
    raise _epoch_error(output) if moved or "stale info" in output else rejected


def _epoch_error(output: str) -> SandboxError:
    return SandboxError(
        ErrorCode.CONFLICT,
        "The task was given to another worker",
        details=output[:1000],
        hint="This worker's state of the task is out of date; ask the cluster for the task's worker.",
        reason="epoch_ended",
    )
