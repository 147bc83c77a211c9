"""Servers whose process was killed before it could remove them: found by label, removed by the next start."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path

import docker
import docker.errors

LABEL = "space.sandbox.test"
OWNER_LABEL = "space.sandbox.test.owner"


def labels(session: str) -> dict[str, str]:
    """The labels of a server that lives no longer than this process."""
    return {LABEL: session, OWNER_LABEL: f"{os.getpid()}@{socket.gethostname()}"}


def remove_leftovers(client: docker.DockerClient) -> None:
    """Remove the servers of processes of this host that are gone; those of other hosts on the engine are left alone."""
    for container in client.api.containers(all=True, filters={"label": OWNER_LABEL}):
        pid, _, host = str(container["Labels"][OWNER_LABEL]).partition("@")
        if host == socket.gethostname() and not Path("/proc", pid).exists():
            with contextlib.suppress(docker.errors.NotFound, docker.errors.APIError):  # another start was faster
                client.api.remove_container(container["Id"], force=True, v=True)
