"""A Podman of a test's own, with its Docker-compatible socket: data and socket are its own, and it ends with the block.

It runs as root with runc, which the machine's Docker has too: crun does not start here where control groups of both
versions are mounted (seen: 1.8.1).
"""

from __future__ import annotations

import subprocess
from contextlib import suppress

from devtools.privatedaemon import DEADLINE_S, PrivateDaemon


class PrivatePodman(PrivateDaemon):
    """Lives as long as the block. Needs root, `podman` and `runc`."""

    programs = ("podman", "runc")
    advice = ": run `scripts/setup podman`"
    prefix = "sandbox-podman-"

    def _build_command(self) -> list[str]:
        return [*self._podman(), "system", "service", "--time=0", self.url]

    def _podman(self) -> list[str]:
        own = {
            "root": self._folder / "root",
            "runroot": self._folder / "run",
            "tmpdir": self._folder / "tmp",
            "storage-driver": "overlay",
            "runtime": "runc",
            "cgroup-manager": "cgroupfs",
            "events-backend": "file",
        }
        return ["podman", *(f"--{name}={value}" for name, value in own.items())]

    def _remove_guests(self) -> None:
        """Its containers do not end with the service: each has a monitor of its own."""
        with (self._folder / "log").open("ab") as log, suppress(subprocess.TimeoutExpired):
            remove = [*self._podman(), "rm", "--all", "--force", "--time=0"]
            subprocess.run(  # noqa: S603 - fixed words and our own folder
                remove, stdin=subprocess.DEVNULL, stdout=log, stderr=log, timeout=DEADLINE_S, check=False
            )
