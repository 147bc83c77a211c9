"""Whether an engine sees a directory of this host: it may have its own mount table, machine or `/tmp`.

It is enough to create a container and never start it: the engine then looks for the source of a bind mount (seen:
20.10). A directory with a new random name exists nowhere else, so an engine that finds it sees the same directory.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sandbox.engine.container import is_missing_mount_source, remove_container
from sandbox.engine.container_types import ProbeContainer
from sandbox.engine.docker_api import DockerApi, translate_errors
from sandbox.lazy_module import LazyModule

if TYPE_CHECKING:
    import docker.errors
else:  # loaded for an error, and for what `socket_api` has not (docs/adr/0080)
    docker = LazyModule("docker")

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
        with translate_errors("try a mount"):
            try:
                engine.api.create_container_from_config(options, name=probe.name)  # type: ignore[no-untyped-call]  # stub
            except docker.errors.APIError as error:
                if is_missing_mount_source(error):
                    return False
                raise
    finally:
        remove_container(engine, probe.name)
    return True
