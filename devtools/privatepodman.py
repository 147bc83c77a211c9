"""A Podman of a test's own, with its Docker-compatible socket: data and socket are its own, and it ends with the block.

It runs as root with runc, which the machine's Docker has too: crun does not start here where control groups of both
versions are mounted (seen: 1.8.1).
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import closing, suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from devtools.mounts import unmount_below
from sandbox.engine.connection import DockerEngine, connect
from sandbox.errors import SandboxError

DEADLINE_S = 120.0
_POLL_S = 0.05
_STOP_S = 15.0


class PrivatePodman:
    """Lives as long as the block. Needs root, `podman` and `runc`."""

    @staticmethod
    def why_not() -> str:
        """What this machine lacks for one; empty: nothing."""
        absent = [name for name in ("podman", "runc") if shutil.which(name) is None]
        if absent:
            return f"no {', '.join(absent)}: run `scripts/setup podman`"
        return "" if os.geteuid() == 0 else "a Podman of our own needs root"

    @property
    def url(self) -> str:
        """For `engine.host` or DOCKER_HOST."""
        return f"unix://{self._folder}/engine.sock"

    def __enter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp(prefix="sandbox-podman-"))  # short: paths of sockets have 107 bytes
        try:
            self._start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def load(self, *images: str) -> None:
        """Copy images from the machine's engine."""
        with (
            closing(connect("", os.environ, DEADLINE_S)) as theirs,
            closing(self.connect()) as ours,
            theirs.save_images(images) as stream,
        ):
            ours.load_images(iter(lambda: stream.read(1 << 20), b""))

    def connect(self) -> DockerEngine:
        """A connection to it."""
        return connect(self.url, {}, DEADLINE_S)

    def _start(self) -> None:
        with self._open_log() as log:
            self._process = subprocess.Popen(  # noqa: S603 - fixed words and our own folder
                [*self._command(), "system", "service", "--time=0", self.url],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        ends_at = time.monotonic() + DEADLINE_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > ends_at:
                raise RuntimeError(f"Podman did not start: {(self._folder / 'log').read_text()[-2000:]}")
            time.sleep(_POLL_S)

    def _command(self) -> list[str]:
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

    def _open_log(self) -> IO[bytes]:
        return (self._folder / "log").open("ab")

    def _answers(self) -> bool:
        try:
            self.connect().close()
        except SandboxError:
            return False
        return True

    def _stop(self) -> None:
        """Its containers do not end with the service: each has a monitor of its own."""
        if hasattr(self, "_process"):
            with self._open_log() as log, suppress(subprocess.TimeoutExpired):
                remove = [*self._command(), "rm", "--all", "--force", "--time=0"]
                subprocess.run(  # noqa: S603 - fixed words and our own folder
                    remove, stdin=subprocess.DEVNULL, stdout=log, stderr=log, timeout=DEADLINE_S, check=False
                )
            self._process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_STOP_S)
            self._process.kill()
            self._process.wait(DEADLINE_S)
        unmount_below(self._folder)
        shutil.rmtree(self._folder, ignore_errors=True)
