"""Kept containers of tasks that tests left open: a home in a temporary directory is given up as a whole."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from sandbox.checks.containers import OPTIONS_LABEL
from sandbox.engine.connection import Engine, connect
from sandbox.engine.container import INSTANCE_LABEL, remove
from sandbox.errors import SandboxError


def guests_at_work(engine: Engine, home: Path) -> list[str]:
    """Containers of a home but for kept ones in which PID 1 is alone."""
    label = f"{INSTANCE_LABEL}={(home / 'instance').read_text()}"
    found = engine.api.containers(all=True, filters={"label": label})
    return [str(c["Names"][0]) for c in found if OPTIONS_LABEL not in c["Labels"] or _works(engine, c["Id"])]


def _works(engine: Engine, container_id: str) -> bool:
    running = engine.api.inspect_container(container_id)["State"]["Running"]
    return bool(running) and len(engine.api.top(container_id)["Processes"]) > 1


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
                remove(engine, str(container["Id"]))
