"""The verdict cache: verdicts of clean rooms by their binding. An identical check is answered without running it.

A record is one file, named by the digest of its binding, which it also contains. A record that is damaged, or is stored
under another name, is ignored, and the next run writes it again (docs/adr/0021).

Chance, a neighbour or a starved host can make a check fail. So the first failure of a check is stored but answers no
request: the check runs again, and only a second failure, of a run that began after the first had ended, is cached. A
pass between them starts the count again, and so does a run without a verdict: that answers no request either, but the
check counts as failed until it passes (THREATS S231).
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pydantic import Field

from sandbox.errors import SandboxError, describe_briefly
from sandbox.models import Check, CheckRun, Model, ObjectId, ServiceSetup, Verdict
from sandbox.store.home import Home, read_record, write_json

KEY_VERSION = 5
"""Increment it whenever a guest of the same binding gets different mounts, environment, file times or supervisor."""

_NOT_STARTED = 126  # also the exit code of a command that the host had no memory or process for

VERDICTS_LOCK = "verdicts"
"""The lock of all records: each is held for a few milliseconds."""

_LOCK_WAIT_S = 10.0
_MEMORY_WAIT_S = 1.0
_log = logging.getLogger(__name__)


class Binding(Model):
    """All that a verdict depends on. If any field differs, the verdict is not valid.

    `check`: its whole definition, with the limits in force. `policy`: digest of what every guest gets, and of the range
    of its user ids. `layers`: keys of the dependency layers. `services`: what ran beside the check. `submodules`,
    `lfs`: their files were laid out; which ones, the tree says. `user`: uid and gid that the guest shared with others,
    None if it had a uid of its own. `after`: key of the previous check in the same room, which in turn binds the checks
    before it; '' for the first. Their output is the input of this check. `compiler_cache`: its compilers could take
    results of the default branch's rooms, so it was not compiled from scratch; `compiler_cache_of`: of that repository.
    `submodules_with_lfs`: remotes of submodules that had their files of Git LFS, by their own settings; a record
    without any has no such field, which older controllers of the home would refuse.
    """

    version: int = KEY_VERSION
    tree: ObjectId
    image_digest: str
    check: Check
    policy: str
    runtime: str
    platform: str
    layers: tuple[str, ...] = ()
    services: tuple[ServiceSetup, ...] = ()
    submodules: bool = False
    lfs: bool = False
    submodules_with_lfs: tuple[str, ...] = Field(default=(), exclude_if=lambda value: not value)
    user: tuple[int, int] | None
    after: str = ""
    compiler_cache: bool = False
    compiler_cache_of: str = ""

    @property
    def key(self) -> str:
        """sha256 of the canonical JSON, in hex."""
        document = self.model_dump(mode="json")
        for name in ("compiler_cache", "compiler_cache_of"):  # as before there was one: those are from scratch, too
            if not document[name]:
                del document[name]
        if self.submodules:  # else as before it was part of the key
            document["submodules_with_lfs"] = list(self.submodules_with_lfs)
        text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(text.encode()).hexdigest()


class _Record(Model):
    """`first_failure`: the check failed once, and chance may have been the reason; or the run is not conclusive, and
    the check failed before it. `passed_since`: it passed after that in a run that is no evidence, so the next failure
    is a first one again; left out if not.
    """

    binding: Binding
    run: CheckRun
    first_failure: bool
    passed_since: bool = Field(default=False, exclude_if=lambda value: not value)


def find_verdict(home: Home, binding: Binding) -> CheckRun | None:
    """The run that answers a request with this binding, marked as cached; None if there is none, so it has to run."""
    record = _read_record(home, binding)
    return None if record is None or record.first_failure else _mark_cached(record)


def find_last_run(home: Home, binding: Binding) -> CheckRun | None:
    """The last run with this binding, marked as cached; also a first failure, and one that is not conclusive after a
    failure. None if there is none.
    """
    record = _read_record(home, binding)
    return None if record is None else _mark_cached(record)


def _mark_cached(record: _Record) -> CheckRun:
    return record.run.model_copy(update={"cached": True})


def _read_record(home: Home, binding: Binding) -> _Record | None:
    try:
        record = read_record(home.verdict(binding.key), _Record)
    except SandboxError as error:
        _log.warning("a cached verdict cannot be used: %s", describe_briefly(error)[:200])
        return None
    if record is None or record.binding != binding or not _has_binding(record.run, binding):
        return None
    return record


def save_verdict(home: Home, binding: Binding, run: CheckRun) -> bool:
    """Cache the verdict of a clean room. A failure without a confirmation is stored as a first failure. A pass replaces
    a failure only if it began after that had ended. A run that is not conclusive deletes a pass, which may have been
    luck; after a failure it is stored instead, and answers no request. Whether the run is stored: no other pass is
    evidence.

    If the home cannot be written, only the cache entry is lost: the check runs again, and a gate stays closed. If
    another process hangs while it changes a verdict, a pass is not stored; all else is, as it closes the gate.
    """
    now, chosen = datetime.now(UTC), list[_Record | None]()

    def choose(before: _Record | None) -> _Record | None:
        record = _choose_record(before, binding, run, now)
        chosen.append(record)
        return record

    written = _change_record(home, binding, choose, what="not cached", run=run)
    stored = written and chosen[0] is not None and chosen[0].run.run_id == run.run_id
    if written and not stored and is_conclusive(run):
        _log.warning("'%s' counts as failed: its pass did not begin after its last failure had ended", binding.check.id)
    return stored


def _choose_record(before: _Record | None, binding: Binding, run: CheckRun, now: datetime) -> _Record | None:
    """What to store after a run; None: what is there is deleted. Pure."""
    is_bound, has_failed = _has_binding(run, binding), before is not None and before.run.verdict is not Verdict.PASSED
    if before is not None and has_failed and not _may_replace(run, before.run, now, is_bound=is_bound):
        return _doubt(before)
    if is_conclusive(run) and is_bound:
        first = run.verdict is Verdict.FAILED and not _is_confirmed(before, binding, run)
        return _Record(binding=binding, run=run, first_failure=first)
    return _Record(binding=binding, run=run, first_failure=True) if has_failed else None


def _may_replace(run: CheckRun, failed: CheckRun, now: datetime, *, is_bound: bool) -> bool:
    """Whether a run may take the place of one that did not pass: another such run may, and a later pass."""
    passes = run.verdict is Verdict.PASSED
    is_later = began_after(run, failed) or _is_ahead(failed, now)
    return is_bound and (not passes or (is_conclusive(run) and is_later))


def _is_ahead(run: CheckRun, now: datetime) -> bool:
    """Whether the clock was set back since the run: its time says nothing, and no pass would be later for a while."""
    return run.started_at > now


def _doubt(before: _Record) -> _Record:
    """The failure as a first one, which no later failure confirms."""
    return before.model_copy(update={"first_failure": True, "passed_since": True})


def doubt_failure(home: Home, binding: Binding) -> None:
    """Note that the check passed in a run that is no evidence: no verdict is kept of it, but a failure before it counts
    as a first one, also a confirmed one, and none after it confirms that.
    """

    def choose(before: _Record | None) -> _Record | None:
        return _doubt(before) if before is not None and before.run.verdict is Verdict.FAILED else before

    _change_record(home, binding, choose, what="as before, though it passed since")


def forget_pass(home: Home, binding: Binding) -> None:
    """Delete the cached verdict if it is a pass. If the home cannot be written it stays, with a warning."""

    def choose(before: _Record | None) -> _Record | None:
        return None if before is None or before.run.verdict is Verdict.PASSED else before

    _change_record(home, binding, choose, what="not deleted")


def forget_failure_ahead(home: Home, binding: Binding) -> None:
    """Delete the cached verdict if it is no pass, and dated after now: the clock was set back since."""
    now = datetime.now(UTC)

    def choose(before: _Record | None) -> _Record | None:
        failed = before is not None and before.run.verdict is not Verdict.PASSED
        return None if before is not None and failed and _is_ahead(before.run, now) else before

    _change_record(home, binding, choose, what="not deleted")


def remove_unchanged(home: Home, listed: Mapping[Path, float]) -> str:
    """Delete records that were not written since they were listed; with each its time of modification, as stat(2)
    gives it. A failure that was stored meanwhile stays. Returns ''. Raises: `conflict`.
    """
    with home.locked(VERDICTS_LOCK, _LOCK_WAIT_S):
        for path, modified_at in listed.items():
            with suppress(FileNotFoundError):
                if path.stat().st_mtime == modified_at:
                    path.unlink()
    return ""


def _change_record(
    home: Home,
    binding: Binding,
    choose: Callable[[_Record | None], _Record | None],
    *,
    what: str,
    run: CheckRun | None = None,
) -> bool:
    """Replace the record by what `choose` makes of it; None deletes it. Under a lock, so that no run that was stored
    meanwhile is overwritten unseen. A process that hangs must not keep the gate open: without the lock all is written
    but the pass of a `run`. `what`: what becomes of the verdict otherwise, for a warning. Whether it was done.
    """
    path = home.verdict(binding.key)
    try:
        with ExitStack() as held:
            try:
                held.enter_context(home.locked(VERDICTS_LOCK, _LOCK_WAIT_S))
            except SandboxError:
                if run is not None and run.verdict is Verdict.PASSED:
                    _log.warning("the verdict of '%s' is %s: another process holds the cache", binding.check.id, what)
                    return False
            before = _read_record(home, binding)
            record = choose(before)
            if record is None:
                path.unlink(missing_ok=True)
            elif record is not before:
                path.parent.mkdir(mode=0o700, exist_ok=True)
                write_json(path, record.model_dump(mode="json"))
    except OSError as error:
        _log.warning("the verdict of '%s' is %s: %s", binding.check.id, what, error)
        return False
    return True


def is_conclusive(run: CheckRun) -> bool:
    """Whether the run is conclusive: the command ended by itself with an exit status, and no service of it had ended.
    Limits, deadlines and kills may differ on a host that is less busy. Pure.
    """
    ended_by_itself = run.exit_code not in {None, _NOT_STARTED} and run.signal is None
    if any(service.ended_early for service in run.services):
        return False
    return ended_by_itself and run.verdict in {Verdict.PASSED, Verdict.FAILED}


def _is_confirmed(before: _Record | None, binding: Binding, run: CheckRun) -> bool:
    """Whether a failure counts at once: the check is deterministic, or its previous conclusive run failed as well.

    Runs that overlap in time do not confirm each other: the host was busy for both. A fork that the host refused, or
    waiting for memory, is no property of the code: such a run neither confirms a failure nor is one that another run
    can confirm. One that reached `limits.pids` is due to the check, but how many processes it has at once is chance: it
    fails twice.
    """
    if was_short_of_resources(run):
        return False
    if binding.check.deterministic and not run.usage.forks_refused:
        return True
    if before is None or before.run.verdict is not Verdict.FAILED or was_short_of_resources(before.run):
        return False
    if before.passed_since or not is_conclusive(before.run):
        return False
    return not before.first_failure or began_after(run, before.run)


def was_short_of_resources(run: CheckRun) -> bool:
    """Whether the host may have refused a fork, or tasks of the guest or of the host waited for memory long enough to
    matter. Pure.
    """
    pressure = run.usage.pressure
    waited_s = 0.0 if pressure is None else pressure.memory_s or 0.0
    return (bool(run.usage.forks_refused) and not run.usage.own_pids_limit) or waited_s >= _MEMORY_WAIT_S


def began_after(run: CheckRun, before: CheckRun) -> bool:
    """Whether a run began after another one had ended. Pure."""
    return run.started_at > before.started_at + timedelta(seconds=before.wall_time_s)


def is_bound(run: CheckRun, binding: Binding) -> bool:
    """Whether a binding is that of a run, also of a cached one. Pure."""
    return _has_binding(run.model_copy(update={"cached": False}), binding)


def _has_binding(run: CheckRun, binding: Binding) -> bool:
    actual = (run.tree, run.image_digest, run.check_id, run.runtime, run.layers, run.clean_room, run.cached)
    expected = (binding.tree, binding.image_digest, binding.check.id, binding.runtime, binding.layers, True, False)
    ran = [(service.name, service.image_digest) for service in run.services]
    cached = (run.compiler_cache == "read") == binding.compiler_cache
    return cached and actual == expected and ran == [(s.rule.name, s.image_digest) for s in binding.services]
