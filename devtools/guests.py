"""Kept containers of tasks that tests left open: a home in a temporary directory is given up as a whole."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from sandbox.checks.executors import OPTIONS_LABEL
from sandbox.engine.connection import connect
from sandbox.engine.container import remove_container
from sandbox.engine.container_labels import INSTANCE_LABEL
from sandbox.errors import SandboxError
from sandbox.store.home import Home


def remove_guests_of(home: Path) -> None:
    """Remove the kept containers of a home. Asks no engine when there can be none."""
    if any((home / "repositories" / "reports").glob("*")):
        remove_guests_below(home)


def remove_guests_below(folder: Path) -> None:
    """Remove every kept container that has something below `folder` mounted, and every one out of which a controller
    that a test killed was just copying PID 1: it may have no mounts yet, and its home may be gone. No engine: none.
    """
    try:
        engine = connect("", os.environ, 60.0)
    except SandboxError:
        return
    with contextlib.closing(engine):
        extractors = engine.api.containers(all=True, filters={"name": "sandbox-init-"})
        instances = set(_list_instances(folder)) if extractors else set()
        for container in (*engine.api.containers(all=True, filters={"label": [OPTIONS_LABEL]}), *extractors):
            sources = [Path(mount.get("Source", "/")) for mount in container["Mounts"]]
            is_known = (container["Labels"] or {}).get(INSTANCE_LABEL) in instances
            if is_known or any(source.is_relative_to(folder) for source in sources):
                remove_container(engine, str(container["Id"]))


def _list_instances(folder: Path) -> Iterator[str]:
    """The ids of all homes below a folder."""
    for place, folders, files in os.walk(folder):
        if "instance" in files:
            yield Home(Path(place)).instance_id
        if "repositories" in folders:
            folders.remove("repositories")
