"""The use-cases by name. Each module is loaded at its first use, so a command loads only those (docs/adr/0003)."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # to add a use-case module, add its name here and in `_ROOMS`
    from sandbox.workbench import reconciling as reconciling
    from sandbox.workbench.approvals import chosen_profile as chosen_profile
    from sandbox.workbench.approvals import repeated_calls as repeated_calls
    from sandbox.workbench.approvals import requests as requests
    from sandbox.workbench.checks import artifact_provenance as artifact_provenance
    from sandbox.workbench.checks import background as background
    from sandbox.workbench.checks import bisect as bisect
    from sandbox.workbench.checks import collected_artifacts as collected_artifacts
    from sandbox.workbench.checks import commit_history as commit_history
    from sandbox.workbench.checks import explore as explore
    from sandbox.workbench.checks import fill_pool as fill_pool
    from sandbox.workbench.checks import guest_list as guest_list
    from sandbox.workbench.checks import history as history
    from sandbox.workbench.checks import launch_candidate as launch_candidate
    from sandbox.workbench.checks import layer_list as layer_list
    from sandbox.workbench.checks import log_lines as log_lines
    from sandbox.workbench.checks import look_at_runs as look_at_runs
    from sandbox.workbench.checks import policy_questions as policy_questions
    from sandbox.workbench.checks import result_pages as result_pages
    from sandbox.workbench.checks import shared_artifacts as shared_artifacts
    from sandbox.workbench.checks import shared_images as shared_images
    from sandbox.workbench.checks import signed_receipts as signed_receipts
    from sandbox.workbench.checks import stop as stop
    from sandbox.workbench.checks import task_checks as task_checks
    from sandbox.workbench.checks import task_events as task_events
    from sandbox.workbench.checks import usage_over_time as usage_over_time
    from sandbox.workbench.checks import verify as verify
    from sandbox.workbench.checks import wanted_packages as wanted_packages
    from sandbox.workbench.controller import audit as audit
    from sandbox.workbench.controller import credentials as credentials
    from sandbox.workbench.controller import doctor as doctor
    from sandbox.workbench.controller import home_events as home_events
    from sandbox.workbench.controller import host_capabilities as host_capabilities
    from sandbox.workbench.controller import image_archives as image_archives
    from sandbox.workbench.controller import image_builds as image_builds
    from sandbox.workbench.controller import journaling as journaling
    from sandbox.workbench.controller import rules as rules
    from sandbox.workbench.controller import signing as signing
    from sandbox.workbench.delivery import follow as follow
    from sandbox.workbench.delivery import hub as hub
    from sandbox.workbench.delivery import imported_tasks as imported_tasks
    from sandbox.workbench.delivery import moved_tasks as moved_tasks
    from sandbox.workbench.delivery import promote as promote
    from sandbox.workbench.delivery import pull_requests as pull_requests
    from sandbox.workbench.delivery import push as push
    from sandbox.workbench.delivery import receipt_notes as receipt_notes
    from sandbox.workbench.reconciling import remove_repository as remove_repository
    from sandbox.workbench.reconciling import storage_report as storage_report
    from sandbox.workbench.repositories import change_settings as change_settings
    from sandbox.workbench.repositories import clone as clone
    from sandbox.workbench.repositories import detection as detection
    from sandbox.workbench.repositories import map as map
    from sandbox.workbench.repositories import profile_checks as profile_checks
    from sandbox.workbench.repositories import repository_settings as repository_settings
    from sandbox.workbench.repositories import seen_facts as seen_facts
    from sandbox.workbench.repositories import trust as trust
    from sandbox.workbench.repositories import updates as updates
    from sandbox.workbench.tasks import apply as apply
    from sandbox.workbench.tasks import change_export as change_export
    from sandbox.workbench.tasks import clean as clean
    from sandbox.workbench.tasks import edit as edit
    from sandbox.workbench.tasks import impact as impact
    from sandbox.workbench.tasks import lifecycle as lifecycle
    from sandbox.workbench.tasks import read as read
    from sandbox.workbench.tasks import search as search
    from sandbox.workbench.tasks import snapshots as snapshots
    from sandbox.workbench.tasks import status as status
    from sandbox.workbench.tasks import sync as sync
    from sandbox.workbench.tasks import worktree_workspaces as worktree_workspaces
else:
    _ROOMS = {
        "": ("reconciling",),
        "approvals": ("chosen_profile", "repeated_calls", "requests"),
        "checks": (
            "artifact_provenance",
            "background",
            "bisect",
            "collected_artifacts",
            "commit_history",
            "explore",
            "launch_candidate",
            "guest_list",
            "history",
            "layer_list",
            "log_lines",
            "look_at_runs",
            "policy_questions",
            "fill_pool",
            "stop",
            "task_checks",
            "task_events",
            "result_pages",
            "usage_over_time",
            "shared_artifacts",
            "shared_images",
            "signed_receipts",
            "verify",
            "wanted_packages",
        ),
        "controller": (
            "audit",
            "credentials",
            "doctor",
            "home_events",
            "host_capabilities",
            "image_archives",
            "image_builds",
            "journaling",
            "rules",
            "signing",
        ),
        "delivery": (
            "follow",
            "hub",
            "imported_tasks",
            "moved_tasks",
            "promote",
            "pull_requests",
            "push",
            "receipt_notes",
        ),
        "reconciling": ("remove_repository", "storage_report"),
        "repositories": (
            "change_settings",
            "clone",
            "detection",
            "map",
            "profile_checks",
            "repository_settings",
            "seen_facts",
            "trust",
            "updates",
        ),
        "tasks": (
            "apply",
            "change_export",
            "clean",
            "edit",
            "impact",
            "lifecycle",
            "read",
            "search",
            "snapshots",
            "status",
            "sync",
            "worktree_workspaces",
        ),
    }
    _MODULES = {
        name: f"sandbox.workbench.{room}.{name}".replace("..", ".") for room, names in _ROOMS.items() for name in names
    }

    def __getattr__(name: str) -> ModuleType:
        if name not in _MODULES:
            raise AttributeError(name)
        return importlib.import_module(_MODULES[name])
