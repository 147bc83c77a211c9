"""What differs between machines of two architectures. Everything else of a machine is the same."""

from __future__ import annotations

from dataclasses import dataclass

from devtools.vm.matrix_rows import Architecture


@dataclass(frozen=True)
class Platform:
    """`machine`: as uname(1) names it. `program`, `board` and `processor`: of QEMU; `processor` is what it emulates.

    `console`: the device of the first serial port. `port`: that of the second one, and `port_words`: what gives it to
    the machine, with `{}` for the file. `options`: of the kernel. `kernel`: Debian's package. `wheels`: names of this
    platform at the Python package index; empty: of this host.
    """

    machine: str
    program: str
    board: tuple[str, ...]
    processor: str
    console: str
    port: str
    port_words: tuple[str, ...]
    options: str
    kernel: str
    wheels: tuple[str, ...] = ()


PLATFORMS = {
    Architecture.AMD64: Platform(
        machine="x86_64",
        program="qemu-system-x86_64",
        board=("-machine", "q35"),
        processor="max",
        console="ttyS0",
        port="ttyS1",
        port_words=("-serial", "file:{}"),
        options="no_timer_check",  # on a busy host TCG's timer is late
        kernel="linux-image-cloud-amd64",
    ),
    Architecture.ARM64: Platform(
        machine="aarch64",
        program="qemu-system-aarch64",
        board=("-machine", "virt,gic-version=3"),
        # The cores of Graviton 2. `max` signs pointers, which takes several times as long under TCG.
        processor="neoverse-n1",
        console="ttyAMA0",
        port="hvc0",  # the board has one serial port
        port_words=(
            "-device", "virtio-serial-pci", "-chardev", "file,id=port,path={}", "-device", "virtconsole,chardev=port",
        ),
        options="",
        kernel="linux-image-cloud-arm64",
        wheels=("manylinux2014_aarch64", *(f"manylinux_2_{glibc}_aarch64" for glibc in range(17, 37))),  # to Debian 12
    ),
}  # fmt: skip
