"""Whether an engine sees a directory of this host: it may have its own mount table, machine or `/tmp`.

It is enough to create a container and never start it: the engine then looks for the source of a bind mount (seen:
20.10). A directory with a new random name exists nowhere else, so an engine that finds it sees the same directory.
"""

from __future__ import annotations

from pathlib import Path

from sandbox.engine.container import remove_container
from sandbox.engine.container_types import ProbeContainer
from sandbox.engine.dialects import find_dialect
from sandbox.engine.docker_api import DockerApi

_TARGET = "/mnt"


def can_mount(engine: DockerApi, folder: Path, probe: ProbeContainer) -> bool:
    """Whether the engine can mount `folder`. Removes its container. Raises: the errors of the engine adapter."""
    mount = {"Type": "bind", "Source": str(folder), "Target": _TARGET, "ReadOnly": True}
    options = {
        "Image": probe.image,
        "Cmd": ["true"],
        "Labels": probe.labels,
        "NetworkDisabled": True,
        "HostConfig": {"NetworkMode": "none", "Mounts": [mount]},
    }
    try:
        return find_dialect(engine).can_create(engine, probe.name, options)
    finally:
        remove_container(engine, probe.name)
