"""Write each operation on a task into its journal: the request, the caller, the state, and the outcome.

Arguments are kept as a digest, results as ids and hashes: no content, message or secret is written (docs/adr/0013).
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from sandbox import models
from sandbox.errors import SandboxError
from sandbox.lazy_dataclass import dataclass
from sandbox.models import TASK_ID_PATTERN, JournalEntry
from sandbox.store import journal
from sandbox.store.home import Home
from sandbox.store.records import find_task
from sandbox.workbench.controller import journal_anchors, rule_changes
from sandbox.workbench.controller.callers import clip_text
from sandbox.workbench.controller.disk_admission import RECORD_DEMAND, Writer
from sandbox.workbench.controller.services import Services
from sandbox.workbench.controller.startup import ensure_recovered

if TYPE_CHECKING:
    from sandbox.models import (
        ApplyResult,
        Approval,
        CheckoutResult,
        CheckRun,
        CleanResult,
        CommitResult,
        Delivery,
        PatchedFile,
        PatchResult,
        PullRequest,
        PushResult,
        RestoreResult,
        Snapshot,
        StopResult,
        SyncResult,
        Task,
        Verification,
    )

_RESULT_MODULES = "sandbox.models."
MAX_NAMES, MAX_FILES, MAX_FILES_BYTES = 20, 200, 256 * 1024
UNSYNCED_OPERATIONS = frozenset({"patch", "edit", "write", "check", "fetch", "doctor"})
"""Entries that are not fsynced alone: the files of edits are fsynced, and a check has no effect (docs/adr/0013)."""

FREEING_OPERATIONS = frozenset(
    {"close", "clean", "remove", "gc", "gc-forget", "stop", "deny", "revoke", "expire", "credential-remove", "distrust"}
)
"""Operations that a full disk does not stop: they free space, end work, or take a permission back."""

_ResultT = TypeVar("_ResultT")


@dataclass(frozen=True)
class Evidence:
    """What a result says about the states before and after the operation. `facts`: others, by name."""

    names: tuple[str, ...] = ()
    before: str | None = None
    after: str | None = None
    files: tuple[PatchedFile, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Operation:
    """One operation while it runs. `task_ids`: tasks that get the entry; a task that the operation creates is added.

    Calling it with the result stores the evidence and returns the result.
    """

    task_ids: list[str]
    name: str
    arguments: str
    names: tuple[str, ...]
    facts: dict[str, str] = field(default_factory=dict)
    in_home_journal: bool = False
    delivery: Delivery | None = None
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    started_monotonic_s: float = field(default_factory=time.monotonic)
    evidence: Evidence = Evidence()

    def __call__(self, result: _ResultT) -> _ResultT:
        self.evidence = extract_evidence(result)
        if isinstance(result, models.Task) and result.id not in self.task_ids:
            self.task_ids.append(result.id)
        return result

    def note(self, *names: str, **facts: str) -> None:
        """Add names and facts of the result to the entry."""
        self.names, self.facts = (*self.names, *names), {**self.facts, **facts}

    def note_delivery(self, delivery: Delivery) -> None:
        """Note what is about to leave this host: the journal has it even if the sending fails."""
        self.delivery = delivery

    @property
    def journals(self) -> tuple[str, ...]:
        """Names of the journals that get the entry."""
        return (journal.HOME_JOURNAL,) if self.in_home_journal and not self.task_ids else tuple(self.task_ids)


@contextmanager
def record_operation(
    services: Services, task_id: str | None, name: str, arguments: Mapping[str, Any], *, names: Iterable[str] = ()
) -> Iterator[Operation]:
    """Journal the body, also when it raises. The body calls the yielded operation with its result.

    `task_id`: None for an operation that creates a task or concerns none; without a task the home's journal gets it.
    `names`: paths or ids among the arguments that may be written as plain text. Raises: `internal` when the operation
    succeeded and the journal cannot be written.
    """
    with _admit_record(services, name):
        ensure_recovered(services)
        known = [task_id] if task_id is not None and _is_known_task(services.home, task_id) else []
        operation = Operation(
            known, name, digest_arguments(arguments), shorten_names(names), in_home_journal=task_id is None
        )
        with _append_at_end(services, operation):
            yield operation


@contextmanager
def record_home_operation(
    services: Services,
    name: str,
    arguments: Mapping[str, Any],
    *,
    names: Iterable[str] = (),
    facts: Mapping[str, str] | None = None,
) -> Iterator[Operation]:
    """As `record_operation`, for operations outside tasks; but it does not clean up after killed controllers first."""
    operation = Operation(
        [], name, digest_arguments(arguments), shorten_names(names), dict(facts or {}), in_home_journal=True
    )
    with _admit_record(services, name), _append_at_end(services, operation):
        yield operation


def _admit_record(services: Services, operation: str) -> AbstractContextManager[None]:
    """Admit the journal entry and the records of an operation before it begins. Raises: `quota_exceeded`, unless the
    operation ends work or frees space: those may use the reserve.
    """
    if operation in FREEING_OPERATIONS:
        return services.disk.use_reserve()
    return services.disk.admit(Writer.RECORD, RECORD_DEMAND)


@contextmanager
def _append_at_end(services: Services, operation: Operation) -> Iterator[None]:
    rule_changes.note_changes(services)
    try:
        yield
    except BaseException as error:
        with suppress(SandboxError):  # the operation's own error matters more
            _append_entry(services, operation, _result_code(error))
        raise
    _append_entry(services, operation, "ok")


def _result_code(error: BaseException) -> str:
    if isinstance(error, SandboxError):
        return error.code.value
    return "interrupted" if isinstance(error, KeyboardInterrupt) else "internal"


def _append_entry(services: Services, operation: Operation, result: str) -> None:
    evidence = operation.evidence
    entry = JournalEntry(
        at=operation.started_at,
        actor=services.surface.actor,
        by=services.caller,
        operation=operation.name,
        arguments=operation.arguments,
        names=shorten_names((*operation.names, *evidence.names)),
        before=evidence.before,
        after=evidence.after,
        files=shorten_files(evidence.files),
        allowed=services.permission,
        sent=operation.delivery,
        tenant=services.settings.container.tenant or None,
        facts={**operation.facts, **evidence.facts},
        result=result,
        duration_s=round(time.monotonic() - operation.started_monotonic_s, 4),
    )
    synced = operation.name not in UNSYNCED_OPERATIONS
    for name in operation.journals:
        head = journal.append_entry(services.home, name, entry, synced=synced)
        if synced:
            journal_anchors.append_anchor(services.home, services.surface, name, head)


def _is_known_task(home: Home, task_id: str) -> bool:
    return re.fullmatch(TASK_ID_PATTERN, task_id) is not None and home.task(task_id).exists()


def shorten_names(names: Iterable[str]) -> tuple[str, ...]:
    """Clip, deduplicate and limit names. They come from callers, so they may be text that UTF-8 cannot encode."""
    return tuple(dict.fromkeys(clip_text(name) for name in names if name))[:MAX_NAMES]


def shorten_files(files: Sequence[PatchedFile]) -> tuple[PatchedFile, ...]:
    """The first files of an edit, together at most `MAX_FILES_BYTES` of an entry: followers read entries in pieces."""
    kept, left = [], MAX_FILES_BYTES
    for file in files[:MAX_FILES]:
        left -= len(json.dumps(file.model_dump(mode="json")))
        if left < 0:
            break
        kept.append(file)
    return tuple(kept)


def digest_arguments(arguments: Mapping[str, Any]) -> str:
    """sha256 of the canonical JSON; bytes are replaced by their digest. Pure."""
    text = json.dumps(arguments, sort_keys=True, separators=(",", ":"), ensure_ascii=True, default=_digest_bytes)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def _digest_bytes(value: object) -> str:
    if not isinstance(value, bytes):
        raise TypeError(f"{type(value).__name__} cannot be an argument")
    return f"sha256:{hashlib.sha256(value).hexdigest()}"


def read_task_journal(home: Home, task_id: str, limit: int | None) -> tuple[JournalEntry, ...]:
    """The task's journal or its newest `limit` entries, oldest first; also of a closed task. Raises: `not_found`."""
    name = find_task(home, task_id, allow_closed=True).id
    return journal.read_entries(home, name) if limit is None else journal.read_last_entries(home, name, limit)


_Extract = Callable[[Any], Evidence]
_EXTRACTORS: dict[str, _Extract] = {}


def extract_evidence(result: object) -> Evidence:
    """What the journal keeps of a result: one function below for each type of result with evidence."""
    if isinstance(result, tuple):
        return _extract_from_runs(result)
    names = (cls.__name__ for cls in type(result).__mro__ if cls.__module__.startswith(_RESULT_MODULES))
    extract = next((_EXTRACTORS[name] for name in names if name in _EXTRACTORS), None)
    return Evidence() if extract is None else extract(result)


def _extracts(model: str) -> Callable[[_Extract], _Extract]:
    """Register the function for a public model, by name: an operation loads its own result model, and no other."""

    def register(extract: _Extract) -> _Extract:
        _EXTRACTORS[model] = extract
        return extract

    return register


@_extracts("PatchResult")
def _(result: PatchResult) -> Evidence:
    return Evidence(names=tuple(f.path for f in result.files), files=result.files)


@_extracts("CommitResult")
def _(result: CommitResult) -> Evidence:  # a commit does not change files
    return Evidence(names=(result.commit,), before=result.tree, after=result.tree)


@_extracts("PushResult")
def _(result: PushResult) -> Evidence:
    return Evidence(names=(result.commit,))


@_extracts("PullRequest")
def _(result: PullRequest) -> Evidence:
    return Evidence(names=(result.url, result.head_commit))


@_extracts("Snapshot")
def _(result: Snapshot) -> Evidence:
    return Evidence(names=(result.id,), before=result.tree, after=result.tree)


@_extracts("RestoreResult")
def _(result: RestoreResult) -> Evidence:
    return Evidence(names=(result.previous.id,), before=result.previous.tree, after=result.tree)


@_extracts("SyncResult")
def _(result: SyncResult) -> Evidence:
    return Evidence(names=(result.state.value, result.onto, result.head_commit, *_name_snapshot(result.previous)))


@_extracts("CheckoutResult")
def _(result: CheckoutResult) -> Evidence:
    return Evidence(names=(result.base_commit, *_name_snapshot(result.previous)))


@_extracts("ApplyResult")
def _(result: ApplyResult) -> Evidence:
    return Evidence(names=tuple(file.path for file in result.files), after=result.tree)


def _name_snapshot(kept: Snapshot | None) -> tuple[str, ...]:
    return () if kept is None else (kept.id,)


@_extracts("CleanResult")
def _(result: CleanResult) -> Evidence:
    kept = result.previous
    return Evidence(names=(kept.id,) if kept else (), before=kept.tree if kept else None, after=result.tree)


@_extracts("Verification")
def _(result: Verification) -> Evidence:
    names, facts = tuple(map(_describe_run, result.runs)), {"verified": "yes" if result.verified else "no"}
    return Evidence(names=names, before=result.tree, after=result.tree, facts=facts)


@_extracts("StopResult")
def _(result: StopResult) -> Evidence:
    return Evidence(names=tuple(check.check_id for check in result.stopped))


@_extracts("Approval")
def _(result: Approval) -> Evidence:
    return Evidence(names=(result.id, result.state.value, result.scope.value))


@_extracts("Task")
def _(result: Task) -> Evidence:
    return Evidence(names=(result.id, result.head_commit))


def _extract_from_runs(result: tuple[object, ...]) -> Evidence:
    """The result of `check run`."""
    runs = [run for run in result if isinstance(run, models.CheckRun)]
    return Evidence(names=tuple(map(_describe_run, runs)), before=runs[0].tree if runs else None)


def _describe_run(run: CheckRun) -> str:
    return f"{run.check_id} {run.verdict.value}"
