"""A container engine of a test's own, for what must not be done to one that others use.

It shares nothing with the machine's engine but the kernel: data, sockets, configuration and network namespace are its
own. (In the same namespace it would take `docker0` away from the other one.) It starts in about half a second.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from devtools.mounts import unmount_below
from sandbox.engine.connection import connect
from sandbox.errors import SandboxError

DEADLINE_S = 60.0
_REMAPPED = ("unshare", "--net", "--mount", "--propagation=slave", "sh", "-ec")  # it sees later mounts of the host
_REMAPPED_SCRIPT = 'for file in /etc/subuid /etc/subgid; do mount --bind "$0" $file; done; exec dockerd "$@"'
_REMAPPED_USER = "daemon"
"""An account that every Debian has. Its range of ids is told to this engine alone, in a mount namespace of its own."""
FIRST_MAPPED_ID = 100_000
CGROUPS = Path("/sys/fs/cgroup")
NETWORK = {"bridge": "none", "iptables": False, "ip6tables": False, "ip-forward": False}


class PrivateEngine:
    """Lives as long as the block. Needs root, `dockerd` and `unshare`. `runtimes`: programs by name, beside runc.

    `propagation`: it gets a mount table of its own (`private`: later mounts of the host are not in it). `hidden`: a
    directory that is an empty file system there. `maps_users`: with userns-remap; ids from `FIRST_MAPPED_ID`.
    """

    def __init__(
        self,
        runtimes: Mapping[str, Path] | None = None,
        *,
        propagation: str = "",
        hidden: Path | None = None,
        maps_users: bool = False,
    ) -> None:
        self._starts = _command(propagation, hidden)
        self._runtimes = {name: {"path": str(path)} for name, path in (runtimes or {}).items()}
        self._maps_users = maps_users

    @staticmethod
    def why_not() -> str:
        """What this machine lacks for one; empty: nothing."""
        absent = [name for name in ("dockerd", "unshare") if shutil.which(name) is None]
        if absent:
            return f"no {', '.join(absent)}"
        return "" if os.geteuid() == 0 else "an engine of our own needs root"

    @property
    def url(self) -> str:
        """For `engine.host` or DOCKER_HOST."""
        return f"unix://{self._folder}/engine.sock"

    @property
    def pid(self) -> int:
        """Of dockerd: `unshare` became it."""
        return self._process.pid

    def __enter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp(prefix="sandbox-engine-"))  # short: paths of sockets have 107 bytes
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

    def load(self, image: str) -> None:
        """Copy a small image from the machine's engine."""
        with closing(connect("", os.environ, DEADLINE_S)) as theirs, closing(connect(self.url, {}, DEADLINE_S)) as ours:
            saved = b"".join(theirs.api.get_image(image))
            ours.api.load_image(saved)  # type: ignore[no-untyped-call]  # stub

    @property
    def group(self) -> str:
        """The control group that its guests belong in, for a container policy: it is emptied when the engine stops."""
        return self._folder.name

    def groups(self) -> list[Path]:
        """Control groups that hold its containers' processes, in each hierarchy that there is."""
        return [*CGROUPS.glob(self._folder.name), *CGROUPS.glob(f"*/{self._folder.name}")]

    def _start(self) -> None:
        configuration = self._folder / "daemon.json"
        configuration.write_text(json.dumps({**NETWORK, "runtimes": self._runtimes}))
        own = {
            "data-root": self._folder / "data",
            "exec-root": self._folder / "exec",
            "pidfile": self._folder / "pid",
            "host": self.url,
            "config-file": configuration,
            "cgroup-parent": f"/{self._folder.name}",
        }
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603 - fixed words and our own folder
                [*self._command(), *(f"--{name}={value}" for name, value in own.items())],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        ends_at = time.monotonic() + DEADLINE_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > ends_at:
                raise RuntimeError(f"The engine did not start: {(self._folder / 'log').read_text()[-2000:]}")
            time.sleep(0.05)

    def _command(self) -> list[str]:
        if not self._maps_users:
            return self._starts
        ids = self._folder / "ids"
        ids.write_text(f"{_REMAPPED_USER}:{FIRST_MAPPED_ID}:65536\n")
        self._folder.chmod(0o711)  # its guests' root is another user of this host, and goes through
        return [*_REMAPPED, _REMAPPED_SCRIPT, str(ids), f"--userns-remap={_REMAPPED_USER}"]

    def _answers(self) -> bool:
        try:
            connect(self.url, {}, DEADLINE_S).close()
        except SandboxError:
            return False
        return True

    def _stop(self) -> None:
        """Its shims outlive a dockerd that has to be killed, and the `runc init` of a start that failed outlives all of
        them (seen: 20.10). The latter have no name, but a control group below our own.
        """
        if hasattr(self, "_process"):
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(10)
            self._process.kill()
            self._process.wait(DEADLINE_S)
        for pid in self._processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for group in self.groups():
            _empty(group)
        unmount_below(self._folder)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _processes(self) -> list[int]:
        """Whose command line names our folder, which has a name that nobody else uses."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                with suppress(OSError):
                    if os.fsencode(self._folder) in (entry / "cmdline").read_bytes():
                        found.append(int(entry.name))
        return found


def _command(propagation: str, hidden: Path | None) -> list[str]:
    own = ["--mount", f"--propagation={propagation}"] if propagation else []
    if hidden is None:
        return ["unshare", "--net", *own, "dockerd"]
    return ["unshare", "--net", *own, "sh", "-c", f'mount -t tmpfs none "{hidden}" && exec dockerd "$@"', "dockerd"]


def _empty(group: Path) -> None:
    """Kill what is in a control group and those below it, and remove them."""
    ends_at = time.monotonic() + DEADLINE_S
    while group.is_dir() and time.monotonic() < ends_at:
        for folder in sorted((path.parent for path in group.rglob("cgroup.procs")), reverse=True):
            with suppress(OSError):  # gone, or not yet empty: the next round sees
                for pid in (folder / "cgroup.procs").read_text().split():
                    os.kill(int(pid), signal.SIGKILL)
                folder.rmdir()
        time.sleep(0.05)
