"""The scene of all entries about containers: a task with probes as its checks, and soft containers as controls.

Each check runs at most once, when the first entry needs it; many entries then use the same run. Their control is the
same probe in a soft container (`sandbox.engine.unhardened`).
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from sandbox.attack.harness.attack_host import AttackHost
from sandbox.attack.harness.listeners import Listeners
from sandbox.attack.harness.scene import Scene
from sandbox.engine.unhardened import Bind, UnhardenedExit
from sandbox.errors import SandboxError

if TYPE_CHECKING:
    from sandbox.models import CheckRun, Task

WORKSPACE = "/workspace"
_LIMITS = "cpus = 1.0, tmp_bytes = 8388608, home_bytes = 8388608, disk_bytes = 67108864, disk_files = 4000"
"""Limits that a probe reaches at once. `CHECK` adds those of files and output."""

PROFILE = 'label = "attack"\nimage = "base"\npriority = 9999\n[[detect.any]]\nfile = "f.txt"\n'
CHECK = """
[[check]]
id = "{id}"
label = "{id}"
argv = {argv}
timeout_s = {timeout_s}
limits = {{ {limits}, file_bytes = 16777216, output_bytes = 65536, open_files = {open_files} }}
"""


def small_limits(runtime: str) -> tuple[int, int]:
    """MiB of memory, and processes, of a probe. A runtime with its own kernel uses a part of both."""
    return (128, 64) if runtime == "runc" else (512, 256)


@dataclass(frozen=True)
class ProbeItem:
    """One attempt of the probe."""

    allowed: bool
    why: str


@dataclass(frozen=True)
class ProbeOutput:
    """What a probe printed. `complete`: it ran to its end."""

    items: dict[str, ProbeItem] = field(default_factory=dict)
    facts: dict[str, list[str]] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether the probe ran to its end."""
        return "end" in self.facts


def parse_probe(text: str) -> ProbeOutput:
    """Parse the lines of probe.pl; other lines are ignored. Pure."""
    probed = ProbeOutput()
    for line in text.splitlines():
        kind, *words = line.split("\t")
        if kind == "item" and len(words) == 3:
            probed.items[words[0]] = ProbeItem(words[1] == "ALLOWED", words[2])
        elif kind == "fact" and len(words) == 2:
            probed.facts.setdefault(words[0], []).append(words[1])
    return probed


@dataclass(frozen=True)
class ProbeCheck:
    """One check of the attack profile."""

    id: str
    argv: tuple[str, ...]
    timeout_s: float = 60.0
    open_files: int = 256

    def toml(self, mebibytes: int, pids: int) -> str:
        """Its entry in the profile; a JSON string is a valid TOML basic string."""
        limits = f"memory_bytes = {mebibytes << 20}, pids = {pids}, {_LIMITS}"
        values = {"argv": json.dumps([*self.argv]), "timeout_s": self.timeout_s, "open_files": self.open_files}
        return CHECK.format(id=self.id, limits=limits, **values)


class Guests:
    """The scene, listeners and runs that the entries about containers share."""

    def __init__(self, host: AttackHost, scene: Scene, probes: Sequence[ProbeCheck]) -> None:
        self.host, self.scene = host, scene
        self.listeners = Listeners(host.instance)
        self.reached: list[str] = []
        self._runs: dict[str, CheckRun | SandboxError] = {}
        profiles = scene.home / "profiles"
        profiles.mkdir()
        probing = ("sh", "-c", 'exec perl -e "$@" >/workspace/probed', "sh", *self.argv(WORKSPACE))
        everything = [*probes, ProbeCheck("probe", probing, 120.0)]
        (profiles / "attack.toml").write_text(
            PROFILE + "".join(p.toml(*small_limits(host.runtime)) for p in everything)
        )
        self.other = scene.new_task()  # a separate task: a guest that gets through damages its worktree
        self._plant()
        scene.new_task()

    def _plant(self) -> None:
        """Add a `.git` file without a mask and, if we are root, a setuid program."""
        deeper = self.scene.worktree / "deeper"
        deeper.mkdir()
        (deeper / ".git").write_text("gitdir: /nonexistent\n")
        if os.geteuid() == 0:
            helper = self.scene.worktree / "helper"
            helper.write_bytes(Path(shutil.which("id") or "/usr/bin/id").read_bytes())
            helper.chmod(0o4755)
            for path in (deeper, deeper / ".git"):
                os.chown(path, *self.scene.worktree.stat()[4:6])

    def argv(self, workspace: str) -> tuple[str, ...]:
        """The words after `perl -e`: the program, and the addresses of the listeners."""
        program = files("sandbox.attack.harness").joinpath("probe.pl").read_text(encoding="utf-8")
        ports = (str(self.listeners.tcp_port), str(self.listeners.udp_port), self.listeners.abstract)
        return (program, *ports, workspace)

    def run(self, check_id: str, task: Task | None = None) -> CheckRun:
        """The one run of a probe in the product's guest, of the scene's task or another one.

        Raises: the same error as the first time.
        """
        if check_id not in self._runs:
            task_id = (task or self.scene.task).id
            try:
                (self._runs[check_id],) = self.scene.workbench.run_checks(task_id, [check_id])
            except SandboxError as error:
                self._runs[check_id] = error
        found = self._runs[check_id]
        if isinstance(found, SandboxError):
            raise found
        return found

    @cached_property
    def hardened_output(self) -> ProbeOutput:
        """The probe in a guest of the product; sets `knocked` to the listeners it reached."""
        self.listeners.pop_reached()
        self.run("probe", self.other)
        self.reached = self.listeners.pop_reached()
        content = self.scene.workbench.read_file(self.other.id, "probed").content
        return parse_probe(content)

    @cached_property
    def soft_output(self) -> ProbeOutput:
        """The same probe in a soft container."""
        return parse_probe(self.run_soft("perl", "-e", *self.argv("/scratch")).stdout.decode(errors="replace"))

    def run_soft(
        self, *argv: str, binds: Sequence[Bind] | None = None, image: str = "", user: str = "0:0"
    ) -> UnhardenedExit:
        """Run a command in a soft container; without `binds` it sees the scene's `outside` as /scratch."""
        seen = (Bind(self.scene.outside, "/scratch"),) if binds is None else binds
        return self.host.soft_containers.run(image or self.host.image("base"), argv or None, binds=seen, user=user)

    def close(self) -> None:
        """Close the listeners."""
        self.listeners.close()


def guests_of(scene: Scene) -> Guests:
    """The `Guests` that the scene of a container entry belongs to."""
    found = scene.host.guests
    assert isinstance(found, Guests)  # noqa: S101 - the protocol cannot name the class: import cycle
    return found
