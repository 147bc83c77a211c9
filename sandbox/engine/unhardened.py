"""A deliberately unhardened ("soft") container. ONLY for the positive controls of `sandbox.attack`.

The product never creates such a container: root, nearly every capability, no seccomp filter, no masked paths. If a
probe fails in here, it cannot work on this host at all, and its failure in a real guest proves no mitigation. Three
restrictions remain: no network, no host path except those that the caller names below its scratch directory, and
limits of memory and processes. Only our own probes run in it, never code of a repository.
"""

from __future__ import annotations

import io
import tarfile
import threading
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker.errors

from sandbox.engine.container import remove_container
from sandbox.engine.docker_api import DockerApi, translate_errors
from sandbox.errors import ErrorCode, SandboxError

CAPABILITIES = (
    *("DAC_READ_SEARCH", "NET_ADMIN", "NET_RAW", "SYS_ADMIN", "SYS_BOOT", "SYS_CHROOT", "SYS_MODULE", "SYS_NICE"),
    *("SYS_PACCT", "SYS_PTRACE", "SYS_RAWIO", "SYS_TIME", "SYSLOG"),
)
"""Added to the engine's default. Not ALL: an engine cannot give a capability that it does not have itself."""

MEMORY_BYTES = 1024**3
PIDS = 2048


@dataclass(frozen=True)
class Bind:
    """A scratch path of the caller, and its place in the container."""

    source: Path
    target: str
    read_only: bool = True


@dataclass(frozen=True)
class UnhardenedExit:
    """How an unhardened container ended. `stdout` contains both streams."""

    exit_code: int
    stdout: bytes


@dataclass(frozen=True)
class UnhardenedContainers:
    """Runs unhardened containers, with the runtime of real guests, so that a control is comparable with them.

    `labels` are set on each container, for the cleanup after a crash.
    """

    engine: DockerApi
    runtime: str
    labels: Mapping[str, str]

    def run(
        self,
        image: str,
        argv: Sequence[str] | None,
        *,
        binds: Sequence[Bind] = (),
        user: str = "0:0",
        deadline_s: float = 120.0,
    ) -> UnhardenedExit:
        """Run one to its end, at most `deadline_s` seconds, and remove it. `argv` None: the image's own command.

        Raises: `internal` when the engine refuses, `timeout` when it hangs.
        """
        name, api = f"sandbox-soft-{uuid.uuid4().hex}", self.engine.api
        body = {**_unhardened_options(image, self.runtime, binds), "Labels": dict(self.labels)}
        if argv is not None:
            body |= {"Entrypoint": list(argv), "Cmd": [], "User": user, "WorkingDir": "/"}
        try:
            with translate_errors("run an unhardened container"):
                api.create_container_from_config(body, name=name)  # type: ignore[no-untyped-call]  # stub
                api.start(name)
                code = self._wait(name, deadline_s)
                return UnhardenedExit(code, bytes(api.logs(name)))
        finally:
            remove_container(self.engine, name)

    def build(self, tag: str, dockerfile: str) -> None:
        """Build an image from a Dockerfile that only sets configuration. Raises: `internal` when the build fails."""
        content, archive = dockerfile.encode(), io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as tar:
            member = tarfile.TarInfo("Dockerfile")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
        archive.seek(0)
        api = self.engine.api
        with translate_errors("build an image"):
            answer = api.build(fileobj=archive, custom_context=True, tag=tag, rm=True, forcerm=True, decode=True)
            lines = list(answer)
        if wrong := [str(line["error"]) for line in lines if "error" in line]:
            raise SandboxError(ErrorCode.INTERNAL, f"The engine could not build {tag}", details=wrong[0])

    def _wait(self, name: str, deadline_s: float) -> int:
        timer = threading.Timer(deadline_s, self._kill, (name,))
        timer.start()
        try:
            return int(self.engine.api.wait(name, timeout=round(deadline_s + 30))["StatusCode"])
        finally:
            timer.cancel()

    def _kill(self, name: str) -> None:
        with translate_errors("kill an unhardened container"):
            self.engine.api.kill(name, signal="SIGKILL")


def delete_image(engine: DockerApi, tag: str) -> None:
    """Delete an image; a missing one is fine."""
    with translate_errors("delete an image"), suppress(docker.errors.ImageNotFound):
        engine.api.remove_image(tag, force=True)


def _unhardened_options(image: str, runtime: str, binds: Sequence[Bind]) -> dict[str, Any]:
    mounts = [
        {"Type": "bind", "Source": str(bind.source), "Target": bind.target, "ReadOnly": bind.read_only}
        for bind in binds
    ]
    return {
        "Image": image,
        "NetworkDisabled": True,
        "HostConfig": {
            "Runtime": runtime,
            "Mounts": mounts,
            "CapAdd": list(CAPABILITIES),
            "SecurityOpt": ["seccomp=unconfined", "apparmor=unconfined", "label=disable"],
            "MaskedPaths": [],
            "ReadonlyPaths": [],
            "NetworkMode": "none",
            "Memory": MEMORY_BYTES,
            "MemorySwap": MEMORY_BYTES,
            "PidsLimit": PIDS,
        },
    }
