"""Whether an engine sees a directory of this host: it may have its own mount table, machine or `/tmp`.

It is enough to create a container and never start it: the engine then looks for the source of a bind mount (seen:
20.10). A directory with a new random name exists nowhere else, so an engine that finds it sees the same directory.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import docker.errors

from sandbox.engine.container import is_unseen, remove
from sandbox.engine.docker_api import DockerApi, translated

_TARGET = "/mnt"


@dataclass(frozen=True)
class Guise:
    """A container that only tests a mount: its name, any local image, and labels for the cleanup if this process is
    killed.
    """

    name: str
    image: str
    labels: dict[str, str]


def sees(engine: DockerApi, folder: Path, guise: Guise) -> bool:
    """Whether the engine can mount `folder`. Removes its container. Raises: the errors of the engine adapter."""
    mount = {"Type": "bind", "Source": str(folder), "Target": _TARGET, "ReadOnly": True}
    options = {
        "Image": guise.image,
        "Cmd": ["true"],
        "Labels": guise.labels,
        "NetworkDisabled": True,
        "HostConfig": {"NetworkMode": "none", "Mounts": [mount]},
    }
    try:
        with translated("try a mount"):
            try:
                engine.api.create_container_from_config(options, name=guise.name)  # type: ignore[no-untyped-call]  # stub
            except docker.errors.APIError as error:
                if is_unseen(error):
                    return False
                raise
    finally:
        remove(engine, guise.name)
    return True
