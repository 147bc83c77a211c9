"""A container engine of a test's own, for what must not be done to one that others use.

It shares nothing with the machine's engine but the kernel: data, sockets, configuration and network namespace are its
own. (In the same namespace it would take `docker0` away from the other one.) It starts in about half a second.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from devtools.privatedaemon import DEADLINE_S, PrivateDaemon

_REMAPPED = ("unshare", "--net", "--mount", "--propagation=slave", "sh", "-ec")  # it sees later mounts of the host
_REMAPPED_SCRIPT = 'for file in /etc/subuid /etc/subgid; do mount --bind "$0" $file; done; exec dockerd "$@"'
_REMAPPED_USER = "daemon"
"""An account that every Debian has. Its range of ids is told to this engine alone, in a mount namespace of its own."""
FIRST_MAPPED_ID = 100_000
CGROUPS = Path("/sys/fs/cgroup")
NETWORK = {"bridge": "none", "iptables": False, "ip6tables": False, "ip-forward": False}


class PrivateEngine(PrivateDaemon):
    """Lives as long as the block. Needs root, `dockerd` and `unshare`. `runtimes`: programs by name, beside runc.

    `propagation`: it gets a mount table of its own (`private`: later mounts of the host are not in it). `hidden`: a
    directory that is an empty file system there. `maps_users`: with userns-remap; ids from `FIRST_MAPPED_ID`.
    """

    programs = ("dockerd", "unshare")
    prefix = "sandbox-engine-"

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

    @property
    def pid(self) -> int:
        """Of dockerd: `unshare` became it."""
        if self._process is None:
            raise RuntimeError("the engine has not started")
        return self._process.pid

    @property
    def group(self) -> str:
        """The control group that its guests belong in, for a container policy: it is emptied when the engine stops."""
        return self._folder.name

    def groups(self) -> list[Path]:
        """Control groups that hold its containers' processes, in each hierarchy that there is."""
        return [*CGROUPS.glob(self._folder.name), *CGROUPS.glob(f"*/{self._folder.name}")]

    def _build_command(self) -> list[str]:
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
        return [*self._dockerd(), *(f"--{name}={value}" for name, value in own.items())]

    def _dockerd(self) -> list[str]:
        if not self._maps_users:
            return self._starts
        ids = self._folder / "ids"
        ids.write_text(f"{_REMAPPED_USER}:{FIRST_MAPPED_ID}:65536\n")
        self._folder.chmod(0o711)  # its guests' root is another user of this host, and goes through
        return [*_REMAPPED, _REMAPPED_SCRIPT, str(ids), f"--userns-remap={_REMAPPED_USER}"]

    def _remove_leftovers(self) -> None:
        """Its shims outlive a dockerd that has to be killed, and the `runc init` of a start that failed outlives all of
        them (seen: 20.10). The latter have no name, but a control group below our own.
        """
        for pid in self._processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for group in self.groups():
            _empty(group)

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
