"""Kept containers of tasks that tests left open: a home in a temporary directory is given up as a whole."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from sandbox.checks.executors import OPTIONS_LABEL
from sandbox.engine.connection import DockerEngine, connect
from sandbox.engine.container import remove_container
from sandbox.engine.container_labels import INSTANCE_LABEL
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
        _remove_couriers_below(engine, folder)


def _remove_couriers_below(engine: DockerEngine, folder: Path) -> None:
    """Remove the containers out of which controllers that a test killed were just copying PID 1; they mount nothing."""
    couriers = engine.api.containers(all=True, filters={"name": "sandbox-init-", "status": "created"})
    if not couriers:
        return
    here = set(_list_instances(folder))
    for container in couriers:
        if (container["Labels"] or {}).get(INSTANCE_LABEL) in here:
            remove_container(engine, str(container["Id"]))


def _list_instances(folder: Path) -> Iterator[str]:
    """The ids of all homes below a folder."""
    for place, folders, files in os.walk(folder):
        if "instance" in files:
            yield (Path(place) / "instance").read_text(errors="replace")
        if "repositories" in folders:
            folders.remove("repositories")
