"""The ignore rules of a base commit, kept with all that they depend on: no profile is read to answer a status.

Rules are those of the tree, and the build output of the profiles that the settings or the tree choose. To choose them,
a command would read and validate every profile: a fifth of what a `status` costs (docs/adr/0100).
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sandbox.errors import SandboxError
from sandbox.git.process import Git
from sandbox.lazy_module import LazyModule
from sandbox.models import ChosenSettings, Task
from sandbox.store.home import Home, read_json, write_json
from sandbox.store.records import list_repositories
from sandbox.store.trust import trusts_anything
from sandbox.version import __version__
from sandbox.workbench.repositories.stored_facts import read_stored_facts
from sandbox.workspaces.base_facts import BaseFacts
from sandbox.workspaces.ignore import exact_rule
from sandbox.workspaces.layout import BaseTree

if TYPE_CHECKING:
    from sandbox.workbench.controller.policies_in_force import Policies
    from sandbox.workbench.repositories import commit_facts, commit_settings, repository_settings
else:  # loaded when no rules are kept
    commit_facts = LazyModule("sandbox.workbench.repositories.commit_facts")
    commit_settings = LazyModule("sandbox.workbench.repositories.commit_settings")
    repository_settings = LazyModule("sandbox.workbench.repositories.repository_settings")

_log = logging.getLogger(__name__)

_ROOM_BYTES = 64 * 1024**2
"""Below this the rules are not kept: what is left is for closing tasks and gc (docs/adr/0051)."""

_DETECTION = 1
"""To be raised when the same files and settings lead to other profiles, or a profile to other ignore rules."""


def load_task_base(home: Home, policies: Policies, task: Task, git: Git, without: Sequence[str] = ()) -> BaseTree:
    """The base of a task as its comparison needs it. `without`: further paths to ignore.

    Raises: `quota_exceeded`, `not_found`, and what a choice of a profile raises.
    """
    recorded = next((r.settings for r in list_repositories(home) if r.id == task.repo_id), ChosenSettings())
    key = _write_key(home, policies, task, recorded)
    facts, artifacts = _read_kept(home, task, key, recorded)
    if facts is None or artifacts is None:
        facts = commit_facts.load_facts(home, policies, task.repo_id, git, task.base_commit)
        chosen = _complete(home, policies, task, facts)
        artifacts = repository_settings.choose_artifacts(policies, facts, chosen)
        _keep(home, task, key, artifacts)
    return _with_rules(facts, artifacts, without, recorded)


def rules_of_facts(home: Home, policies: Policies, task: Task, facts: BaseFacts, without: Sequence[str]) -> BaseTree:
    """As `load_task_base`, from facts that were read before, in a controller that has read its profiles."""
    chosen = _complete(home, policies, task, facts)
    return _with_rules(facts, repository_settings.choose_artifacts(policies, facts, chosen), without, chosen)


def _with_rules(facts: BaseFacts, artifacts: Sequence[str], without: Sequence[str], chosen: ChosenSettings) -> BaseTree:
    rules = facts.rules((*artifacts, *map(exact_rule, without)))
    return BaseTree(facts, rules, has_submodules=bool(chosen.submodules))


def _complete(home: Home, policies: Policies, task: Task, facts: BaseFacts) -> ChosenSettings:
    chosen = repository_settings.read_settings(home, policies, task.repo_id, task.profile)
    return commit_settings.complete_settings(home, policies, task.repo_id, facts, chosen)


def _write_key(home: Home, policies: Policies, task: Task, recorded: ChosenSettings) -> str:
    """A hash of all that leads from a commit to its rules; '' if that includes more than files and a record."""
    if trusts_anything(home, task.repo_id) or policies.projects.get(task.repo_id):
        return ""
    if not (digest := policies.profiles_digest):
        return ""
    settings = recorded.model_dump(mode="json")
    parts = [_DETECTION, __version__, digest, task.base_commit, task.profile, settings]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _read_kept(
    home: Home, task: Task, key: str, recorded: ChosenSettings
) -> tuple[BaseFacts | None, tuple[str, ...] | None]:
    try:
        document = read_json(home.rules(task.repo_id, task.base_commit)) if key else None
    except SandboxError:
        return None, None
    if document is None or document.get("key") != key:
        return None, None
    return read_stored_facts(home, task.repo_id, task.base_commit, recorded.folders), tuple(document["artifacts"])


def _free_bytes(home: Home) -> int:
    disk = os.statvfs(home.root)
    return disk.f_bavail * disk.f_frsize


def _keep(home: Home, task: Task, key: str, artifacts: Sequence[str]) -> None:
    if not key or _free_bytes(home) < _ROOM_BYTES:
        return
    try:
        write_json(home.rules(task.repo_id, task.base_commit), {"key": key, "artifacts": list(artifacts)}, synced=False)
    except OSError as error:  # a full disk: a status has to work there too
        _log.info("the ignore rules of %s could not be saved: %s", task.base_commit[:12], error)
