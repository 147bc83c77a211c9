"""The daemon of a home once it answers, which tests and benchmarks wait for."""

from __future__ import annotations

from pathlib import Path

from sandbox.daemon.place import DaemonRecord, find_owner


def find_daemon(home: Path) -> DaemonRecord | None:
    """The daemon that serves a home now; None also while it starts."""
    found = find_owner(home)
    return None if found is None or found.is_starting else found
