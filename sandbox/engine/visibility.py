"""Whether an engine sees a directory of this host: it may have a mount table, a machine or a `/tmp` of its own.

A container that is created and never started is enough: the engine looks for the source of a bind mount then (seen:
20.10). A directory whose name was just made up exists nowhere else, so what finds it is the same directory.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import docker.errors

from sandbox.engine.connection import Engine, translated
from sandbox.engine.container import is_unseen, remove

_TARGET = "/mnt"


@dataclass(frozen=True)
class Guise:
    """What a container is made of that only tries a mount: its name, any local image, and labels by which it is found
    when we are killed meanwhile.
    """

    name: str
    image: str
    labels: dict[str, str]


def sees(engine: Engine, folder: Path, guise: Guise) -> bool:
    """Whether the engine can mount `folder`. Leaves nothing. Raises: what the engine adapter raises."""
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
