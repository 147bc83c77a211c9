"""A virtual machine that runs from power on to power off, and the lines that it writes to its second serial port.

KVM is used where it boots this kernel. Some hosts are virtual machines themselves and offer a /dev/kvm that cannot run
an ordinary kernel (seen: nested PVM): there QEMU translates (TCG), about ten times slower.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from devtools.vm.architectures import PLATFORMS, Platform
from devtools.vm.matrix_rows import Architecture, Machine

KVM, TCG = "kvm", "tcg"
_ACCELERATORS = {KVM: "kvm", TCG: "tcg,thread=multi,tb-size=512"}
_KVM_BOOTS_S = 15.0
_BOOTED = b"Linux version"
_POLL_S = 0.3
_KERNEL_OPTIONS = (
    "root=/dev/vda rw console={console} mitigations=off random.trust_cpu=on systemd.show_status=0 "
    "{options} panic=-1"  # a panic ends the machine
)


@dataclass(frozen=True)
class RootDisk:
    """What a machine boots: a disk with an ext4 file system, kernel and first file system. `options`: of the kernel."""

    image: Path
    kernel: Path
    initrd: Path
    options: tuple[str, ...] = ()
    architecture: Architecture = Architecture.AMD64

    @property
    def platform(self) -> Platform:
        """The kind of machine that boots it."""
        return PLATFORMS[self.architecture]


@dataclass(frozen=True)
class Boot:
    """One run of a machine. `data`: the image of its second disk. `keeps`: whether changes of the root disk stay.

    `masked`: units of systemd that do not start. `folder`: for the ports' files and what the machine changes.
    """

    root: RootDisk
    data: Path
    folder: Path
    machine: Machine
    keeps: bool = False
    masked: tuple[str, ...] = ()

    @property
    def console(self) -> Path:
        """What kernel and programs wrote: for people, when something went wrong."""
        return self.folder / "console"

    @property
    def port(self) -> Path:
        """What the measurements wrote."""
        return self.folder / "port"


def boot_command(boot: Boot, accelerator: str) -> list[str]:
    """The arguments of QEMU. Pure."""
    kind = boot.root.platform
    options = _KERNEL_OPTIONS.format(console=kind.console, options=kind.options)
    words = [options, *boot.root.options, *(f"systemd.mask={unit}" for unit in boot.masked)]
    snapshot = "off" if boot.keeps else "on"
    return [
        kind.program, *kind.board, "-accel", _ACCELERATORS[accelerator],
        "-cpu", "host" if accelerator == KVM else kind.processor,
        "-smp", str(boot.machine.cpus), "-m", str(boot.machine.memory_mib),
        "-display", "none", "-nodefaults", "-nic", "none", "-no-reboot", "-device", "virtio-rng-pci",
        "-kernel", str(boot.root.kernel), "-initrd", str(boot.root.initrd), "-append", " ".join(words),
        "-drive", f"file={boot.root.image},if=virtio,format=raw,cache=unsafe,snapshot={snapshot}",
        "-drive", f"file={boot.data},if=virtio,format=raw,cache=unsafe,snapshot=on",
        "-serial", f"file:{boot.console}", *(word.format(boot.port) for word in kind.port_words),
    ]  # fmt: skip


def run_machine(boot: Boot, accelerator: str, limit_s: float, on_line: Callable[[str], None]) -> str:
    """Boot and wait until it is off. Returns why it ended early; empty: by itself. Raises: OSError."""
    ends_at, read = time.monotonic() + limit_s, 0
    with _start(boot, accelerator) as process:
        while process.poll() is None and time.monotonic() < ends_at:
            time.sleep(_POLL_S)
            read = _pass_on(boot.port, read, on_line)
        ended = process.poll()
    _pass_on(boot.port, read, on_line)
    if ended is None:
        return f"its time limit of {limit_s:g} s was reached"
    return f"{boot.root.platform.program} ended with status {ended}" if ended else ""


def find_accelerator(boot: Boot) -> str:
    """`kvm` if this host's KVM boots the kernel, else `tcg`."""
    if boot.root.platform.machine != platform.machine() or not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return TCG
    ends_at = time.monotonic() + _KVM_BOOTS_S
    with _start(boot, KVM) as process:
        while process.poll() is None and time.monotonic() < ends_at:
            time.sleep(_POLL_S)
            if boot.console.exists() and _BOOTED in boot.console.read_bytes():
                return KVM
    return TCG


@contextmanager
def _start(boot: Boot, accelerator: str) -> Iterator[subprocess.Popen[bytes]]:
    """The process of a machine, which does not outlive the block."""
    for stale in (boot.console, boot.port):
        stale.unlink(missing_ok=True)
    with (boot.folder / "qemu.log").open("wb") as log:
        process = subprocess.Popen(  # noqa: S603 - fixed words and our own files
            boot_command(boot, accelerator),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, "TMPDIR": str(boot.folder)},  # where it keeps what a machine changes
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _pass_on(port: Path, read: int, on_line: Callable[[str], None]) -> int:
    """Pass on whole lines after byte `read`; where the next begins."""
    if not port.exists():
        return read
    content = port.read_bytes()[read:]
    whole = content[: content.rfind(b"\n") + 1]
    for line in whole.decode(errors="replace").splitlines():
        on_line(line.strip())
    return read + len(whole)


def run_command(argv: Sequence[str], deadline_s: float, *, reason: str) -> str:
    """What a command printed. Raises: RuntimeError with the end of what it complained."""
    done = subprocess.run(  # noqa: S603 - callers use fixed words and their own files
        list(argv), capture_output=True, text=True, timeout=deadline_s, check=False, stdin=subprocess.DEVNULL
    )
    if done.returncode:
        raise RuntimeError(f"{reason}: {argv[0]} ended with status {done.returncode}: {done.stderr[-1500:]}")
    return done.stdout


def tell(line: str) -> None:
    """Progress, for people."""
    sys.stderr.write(f"matrix: {line}\n")
    sys.stderr.flush()
