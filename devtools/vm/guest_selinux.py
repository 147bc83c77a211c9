"""What SELinux denies to guests, in the machine of a row: in the columns before, and in a home without its labels.

That guests get all that they need shows little until the same guests are denied something.
"""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from devtools.vm.guest_policy import GUEST_DOMAIN
from devtools.vm.qemu import run_command
from sandbox.egress.proxy import listen_on
from sandbox.errors import SandboxError
from sandbox.guest_labels import ATTRIBUTE, has_selinux, is_permissive
from sandbox.models import Probe, ProbeLevel, Verdict
from sandbox.workbench import VerifyOptions, Workbench

_DENIED = re.compile(r"avc: +denied +\{ (?P<what>[^}]+) \}(?P<fields>.*)")
_FIELD = re.compile(r'(\w+)="?([^" ]*)')
_CONNECT = """socket(S, PF_UNIX, SOCK_STREAM, 0);
connect(S, sockaddr_un("/mounted/$ARGV[0]")) or die "$!\\n"; print "connected\\n";"""
_SHOWN, _COMMAND_S = 300, 300.0
_LINE = "lsm"


class GuestSelinux:
    """`open_home`: the product on a home that is not used yet. `source`: of a repository whose checks pass."""

    def __init__(self, home: Path, source: Path, open_home: Callable[[], Workbench]) -> None:
        self._home, self._source, self._open = home, source, open_home
        self._mounted = home.parent / "mounted"
        self.seen: list[str] = []

    def measure(self) -> None:
        """All steps. Raises: RuntimeError for what is not as it must be."""
        _require(has_selinux() and not is_permissive(), "SELinux is not in enforcing mode")
        _require(self._run() == "passed", "a job in a new home fails")
        self._use_two_guests()
        denied = list_denials(_read_log())
        self.seen.append(f"denied to guests until here, of the columns before too: {denied}")
        _require(denied == "none", "guests are denied what they need")
        self._mount_a_folder()
        self._connect_to_a_socket()
        self._take_labels_away()
        self._label_as_doctor_says()

    def _use_two_guests(self) -> None:
        """The next guest of a task has other categories of SELinux, and writes a file of the one before."""
        with self._open() as workbench:
            task = workbench.create_task(workbench.clone(str(self._source)).repository.id).id
            (first,) = workbench.run_checks(task, ["build"])
            _run(["docker", "rm", "--force", *_run(["docker", "ps", "--quiet"]).split()])
            (second,) = workbench.run_checks(task, ["build"])
            workbench.close_task(task, delete_worktree=True, discard=True)
        self.seen.append(f"two guests of a task write the same file: {first.verdict}, {second.verdict}")
        _require((first.verdict, second.verdict) == (Verdict.PASSED, Verdict.PASSED), "guests of a task share no files")

    def _mount_a_folder(self) -> None:
        """The control: the engine alone, and a folder that every user may read."""
        self._mounted.mkdir()
        (self._mounted / "file").write_text("read\n")
        seen = [self._try_in_guest("cat", "/mounted/file")]
        _run(["chcon", "-R", "-t", "container_file_t", str(self._mounted)])
        seen.append(self._try_in_guest("cat", "/mounted/file"))
        self.seen.append(f"a mounted folder without a label: {seen[0]}, with one: {seen[1]}")
        _require("Permission denied" in seen[0], "a guest reads a folder without a label")
        _require(seen[1] == "read", "a guest does not read a folder with a label")

    def _connect_to_a_socket(self) -> None:
        """In the labelled folder: one of any process, and one as the proxy for registries makes it."""
        seen = []
        with socket.socket(socket.AF_UNIX) as plain:
            plain.bind(str(self._mounted / "plain"))
            plain.listen()
            with listen_on(self._mounted / "ours", None):
                seen = [self._try_in_guest("perl", "-MSocket", "-e", _CONNECT, name) for name in ("plain", "ours")]
        self.seen.append(f"a socket of any process: {seen[0]}, of the proxy: {seen[1]}")
        _require("Permission denied" in seen[0], "a guest connects to a socket without a label")
        _require(seen[1] == "connected", "a guest does not connect to the socket of the proxy")

    def _try_in_guest(self, *argv: str) -> str:
        """As root, for whom no mode of a file or a socket is in the way."""
        with self._open() as workbench:
            image = next(info.tag for info in workbench.images() if info.name == "base")
        run = ["docker", "run", "--rm", "--user=0", "--network=none", f"--volume={self._mounted}:/mounted:ro"]
        done = subprocess.run(  # noqa: S603 - in a machine of ours
            [*run, image, *argv], capture_output=True, text=True, check=False
        )
        return (done.stdout + done.stderr).strip()

    def _take_labels_away(self) -> None:
        """As in a home that was copied: all files have the type of the folder above it."""
        label = os.getxattr(self._home.parent, ATTRIBUTE)
        for path in (self._home, *self._home.rglob("*")):
            os.setxattr(path, ATTRIBUTE, label, follow_symlinks=False)
        probe = self._ask_doctor()
        _require(probe.level is ProbeLevel.FAIL, f"doctor says {probe.level} of a home without labels: {probe.value}")
        self.seen.append(f"a home without labels: doctor {probe.level.upper()} {_LINE}")
        ended = self._run()
        self.seen.append(f"a job there: {ended}")
        _require(ended.startswith("error "), "it did not end with an error before its checks")

    def _label_as_doctor_says(self) -> None:
        _, chcon, rest = self._ask_doctor().hint.partition("chcon ")
        _run(shlex.split(chcon + rest))
        probe = self._ask_doctor()
        _require(probe.level is ProbeLevel.OK, f"doctor says {probe.level} after its command: {probe.value}")
        ended = self._run()
        _require(ended == "passed", f"a job after the command of doctor: {ended}")
        self.seen.append(f"after the command of doctor: OK {_LINE}, the job {ended}")

    def _ask_doctor(self) -> Probe:
        with self._open() as workbench:
            return next(probe for probe in workbench.doctor() if probe.name == _LINE)

    def _run(self) -> str:
        try:
            with self._open() as workbench:
                summary = workbench.run(str(self._source), options=VerifyOptions(cache=False))
        except SandboxError as error:
            return f"error {error.code}: {error.brief} {error.details}"[:_SHOWN]
        return "passed" if summary.verified else ", ".join(f"{run.check_id} {run.verdict}" for run in summary.runs)


def list_denials(log: str) -> str:
    """What SELinux denied to guests, or would have, by the kernel's log. Pure."""
    found: Counter[str] = Counter()
    for match in _DENIED.finditer(log):
        fields = dict(_FIELD.findall(match["fields"]))
        if f":{GUEST_DOMAIN}:" in fields.get("scontext", ""):
            target = fields["tcontext"].split(":")[2]
            name = fields.get("path") or fields.get("name", "")
            found[f"{match['what']} of {target} {fields['tclass']} {name}".strip()] += 1
    return ", ".join(f"{what} {times}x" for what, times in found.most_common(20)) or "none"


def _read_log() -> str:
    return _run(["dmesg"])


def _run(argv: list[str]) -> str:
    return run_command(argv, _COMMAND_S, reason="SELinux for guests")


def _require(true: bool, otherwise: str) -> None:
    if not true:
        raise RuntimeError(otherwise)
