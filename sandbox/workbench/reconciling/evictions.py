"""Keep to `storage.max_bytes` and to the limits of repositories: evict as much as is too much (`evictable`)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

from sandbox.byte_sizes import format_bytes
from sandbox.config import Settings
from sandbox.models import LeftoverAction
from sandbox.models.storage import MeasuredStorage
from sandbox.store.storage_record import save_measured
from sandbox.workbench.controller.services import Services
from sandbox.workbench.reconciling.evictable import TIERS, Evictable
from sandbox.workbench.reconciling.reconciler import Finding, Reconciler
from sandbox.workbench.reconciling.storage_use import HomeUse, measure_home


def has_limit(services: Services) -> bool:
    """Whether any limit of `storage` is set."""
    settings = services.settings
    storage = settings.storage
    of_repositories = (repository.max_bytes for repository in settings.repositories.values())
    return bool(storage.max_bytes or storage.repository_max_bytes or any(of_repositories))


def limit_of(settings: Settings, repo_id: str) -> int:
    """The limit of a repository in bytes; 0 for none."""
    own = settings.repositories.get(repo_id)
    if own is not None and own.max_bytes is not None:
        return own.max_bytes
    return settings.storage.repository_max_bytes


def find_over_budget(reconciler: Reconciler) -> Iterator[Finding]:
    """What has to go so that the home and its repositories keep to their limits. Without any it does not look."""
    services = reconciler.services
    if not has_limit(services):
        return
    found = measure_home(services.home)
    budget = _Budget(reconciler, found)
    for tier in TIERS:
        if not budget.is_exceeded:
            break
        evictable = [each for find in tier for each in find(services)]
        is_changed = False
        for each in sorted(evictable, key=lambda one: one.last_use):
            if why := budget.why_evict(each):
                yield replace(each.finding, note=f"{why}; {each.finding.note}")
                budget.count(each)
                is_changed = not reconciler.dry_run
        if is_changed:
            found = measure_home(services.home)
            budget = _Budget(reconciler, found)
    remember(services, found)
    yield from budget.name_excess()


def remember(services: Services, found: HomeUse) -> None:
    """Note what the home holds, for the admission of large writers."""
    held = {repo_id: found.of_repository(repo_id).bytes for repo_id in found.repositories()}
    save_measured(services.home, MeasuredStorage(at=time.time(), bytes=found.total.bytes, repositories=held))


class _Budget:
    """By how much the limits are exceeded, while things go. In a dry run, what earlier finders would free is free."""

    def __init__(self, reconciler: Reconciler, found: HomeUse) -> None:
        self._reconciler = reconciler
        services, done = reconciler.services, reconciler.done if reconciler.dry_run else []
        self._seen = {(left.kind, left.name) for left in done}
        limit = services.settings.storage.max_bytes
        freed = sum(left.bytes for left in done)
        self._excess = {"": found.total.bytes - freed - limit} if limit else {}
        for repo_id in found.repositories():
            if own := limit_of(services.settings, repo_id):
                self._excess[repo_id] = found.of_repository(repo_id).bytes - own

    @property
    def is_exceeded(self) -> bool:
        return any(excess > 0 for excess in self._excess.values())

    def why_evict(self, each: Evictable) -> str:
        """Why this has to go; '' if it need not."""
        if (each.finding.kind, each.finding.name) in self._seen:
            return ""
        if self._excess.get("", 0) > 0:
            return "the home holds more than storage.max_bytes"
        if each.repo_id and self._excess.get(each.repo_id, 0) > 0:
            return "its repository holds more than its limit"
        return ""

    def count(self, each: Evictable) -> None:
        """Count what the finding that was just handled frees."""
        done = self._reconciler.done[-1] if self._reconciler.done else None
        if done and done.name == each.finding.name and done.action is LeftoverAction.REMOVED:
            for owner in {"", each.repo_id} & self._excess.keys():
                self._excess[owner] -= each.finding.bytes

    def name_excess(self) -> Iterator[Finding]:
        """The limits that are still exceeded."""
        for owner, excess in self._excess.items():
            if excess > 0:
                note = f"{format_bytes(excess)} more than its limit: they exist only here, or were used just now"
                yield Finding("storage", owner or "home", note=note)
