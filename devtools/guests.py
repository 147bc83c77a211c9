"""Kept containers of tasks that tests left open: a home in a temporary directory is given up as a whole."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from sandbox.checks.executors import OPTIONS_LABEL
from sandbox.engine.connection import connect
from sandbox.engine.container import remove_container
from sandbox.errors import SandboxError


def remove_guests_of(home: Path) -> None:
    """Remove the kept containers of a home. Asks no engine when there can be none."""
    if any((home / "repositories" / "reports").glob("*")):
        remove_guests_below(home)


def remove_guests_below(folder: Path) -> None:
    """Remove every kept container that has something below `folder` mounted. No engine: none."""
    try:
        engine = connect("", os.environ, 60.0)
    except SandboxError:
        return
    with contextlib.closing(engine):
        for container in engine.api.containers(all=True, filters={"label": [OPTIONS_LABEL]}):
            sources = [Path(mount.get("Source", "/")) for mount in container["Mounts"]]
            if any(source.is_relative_to(folder) for source in sources):
                remove_container(engine, str(container["Id"]))
