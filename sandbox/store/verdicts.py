"""Verdicts of clean rooms by all that they are bound to: the same question is answered without running anything.

A record is one file, named by the digest of what it is bound to, which it also holds: one that is damaged, or lies
under another's name, is as good as none, and the next run writes it again (docs/adr/0021).
"""

from __future__ import annotations

import hashlib
import json
import logging

from pydantic import ValidationError

from sandbox.errors import SandboxError
from sandbox.models import Check, CheckRun, Model, ObjectId, Verdict
from sandbox.store.home import Home, read_json, write_json

KEY_VERSION = 2
"""Raised whenever a guest of the same binding gets something else than before: mounts, environment, supervisor."""

_NOT_STARTED = 126  # also what is told of a command for which the host had no memory or process left

_log = logging.getLogger(__name__)


class Binding(Model):
    """What a verdict is true of; whatever differs in here is another question.

    `check`: its whole definition, with the limits in force. `policy`: digest of what every guest gets. `user`: uid and
    gid in the guest. `after`: key of the check that ran in the room just before, which binds all before that; '' for
    the first. Their output is this one's input.
    """

    version: int = KEY_VERSION
    tree: ObjectId
    image_digest: str
    check: Check
    policy: str
    runtime: str
    platform: str
    user: tuple[int, int]
    after: str = ""

    @property
    def key(self) -> str:
        """sha256 of the canonical JSON, in hex."""
        document = self.model_dump(mode="json")
        text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(text.encode()).hexdigest()


class _Record(Model):
    binding: Binding
    run: CheckRun


def find_verdict(home: Home, binding: Binding) -> CheckRun | None:
    """The run that answers the question, marked as cached; None when nobody knows."""
    try:
        document = read_json(home.verdict(binding.key))
        record = None if document is None else _Record.model_validate(document)
    except (SandboxError, ValidationError) as error:
        _log.warning("a kept verdict cannot be used: %s", str(error)[:200])
        return None
    if record is None or record.binding != binding or not _answers(record.run, binding):
        return None
    return record.run.model_copy(update={"cached": True})


def keep_verdict(home: Home, binding: Binding, run: CheckRun) -> None:
    """Keep what a clean room just said. What is no answer to keep takes the one before it away: it was the luckier one.

    A home that cannot be written costs the answer, not the run: the check runs again, and a gate stays closed.
    """
    path = home.verdict(binding.key)
    try:
        if is_decided(run) and _answers(run, binding):
            path.parent.mkdir(mode=0o700, exist_ok=True)
            write_json(path, _Record(binding=binding, run=run).model_dump(mode="json"))
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        _log.warning("the verdict of '%s' is not kept: %s", run.check_id, error)


def is_decided(run: CheckRun) -> bool:
    """Whether the command itself decided, by ending with an exit status: limits, deadlines and kills may fall otherwise
    on a host that is less busy. Pure.
    """
    ended_by_itself = run.exit_code not in {None, _NOT_STARTED} and run.signal is None
    return ended_by_itself and run.verdict in {Verdict.PASSED, Verdict.FAILED}


def _answers(run: CheckRun, binding: Binding) -> bool:
    told = (run.tree, run.image_digest, run.check_id, run.runtime, run.clean_room, run.cached)
    return told == (binding.tree, binding.image_digest, binding.check.id, binding.runtime, True, False)
