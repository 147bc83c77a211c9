"""A daemon of a test's own that speaks the engine's API: what a private Docker and a private Podman have in common."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import tempfile
import time
from contextlib import closing, suppress
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from sandbox.engine.connection import DockerEngine, connect
from sandbox.errors import SandboxError
from sandbox.files.mount_points import unmount_below

DEADLINE_S = 120.0
_POLL_S = 0.05
_STOP_S = 15.0


class PrivateDaemon:
    """Lives as long as the block. Its data, its socket and its log are in a folder of its own. Needs root.

    `programs`: what it needs. `advice`: how a machine gets them. `prefix`: of its folder's name.
    """

    programs: ClassVar[tuple[str, ...]]
    advice: ClassVar[str] = ""
    prefix: ClassVar[str]
    _folder: Path
    _process: subprocess.Popen[bytes] | None = None

    @classmethod
    def why_not(cls) -> str:
        """What this machine lacks for one; empty: nothing."""
        if absent := [name for name in cls.programs if shutil.which(name) is None]:
            return f"no {', '.join(absent)}{cls.advice}"
        return "" if os.geteuid() == 0 else "an engine of our own needs root"

    @property
    def url(self) -> str:
        """For `engine.host` or DOCKER_HOST."""
        return f"unix://{self._folder}/engine.sock"

    def __enter__(self) -> Self:
        # Short: paths of sockets have 107 bytes. Hexadecimal: it also names a control group, which may have no "_".
        self._folder = Path(tempfile.gettempdir(), self.prefix + secrets.token_hex(4))
        self._folder.mkdir(mode=0o700)
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

    def connect(self) -> DockerEngine:
        """A connection to it."""
        return connect(self.url, {}, DEADLINE_S)

    def load(self, *images: str) -> None:
        """Copy images from the machine's engine."""
        with (
            closing(connect("", os.environ, DEADLINE_S)) as theirs,
            closing(self.connect()) as ours,
            theirs.save_images(images) as stream,
        ):
            ours.load_images(iter(lambda: stream.read(1 << 20), b""))

    def kill(self) -> None:
        """End the daemon as a crash would. What it started may live on."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(DEADLINE_S)

    def start_again(self) -> None:
        """Start it after `kill`, with the same data; returns when it answers."""
        self._start()

    def _build_command(self) -> list[str]:
        """The argv of the daemon, which listens at `url`."""
        raise NotImplementedError

    def _remove_guests(self) -> None:
        """What lives on without the daemon. Called before it ends."""

    def _remove_leftovers(self) -> None:
        """What lives on without the daemon. Called after it ended."""

    def _start(self) -> None:
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - fixed words and our own folder
                self._build_command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=self._folder,  # a monitor of Podman's writes a file `oom` where its service was started
            )
        ends_at = time.monotonic() + DEADLINE_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > ends_at:
                raise RuntimeError(f"The engine did not start: {(self._folder / 'log').read_text()[-2000:]}")
            time.sleep(_POLL_S)

    def _answers(self) -> bool:
        try:
            self.connect().close()
        except SandboxError:
            return False
        return True

    def _stop(self) -> None:
        if self._process is not None:
            self._remove_guests()
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_STOP_S)
            self._process.kill()
            self._process.wait(DEADLINE_S)
        self._remove_leftovers()
        unmount_below(self._folder)  # a bind mount of its data too, which an engine that was killed leaves
        shutil.rmtree(self._folder, ignore_errors=True)
