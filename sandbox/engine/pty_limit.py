"""Pseudo terminals of a guest. The kernel counts them for the whole host (`kernel.pty.max`), and containers share what
is not reserved for the host: one guest could take all.

A file system `devpts` has a limit of its own, `max`. No engine sets it, and a guest cannot. A process that is root on
the host may change it from there, without entering the guest's namespaces: fspick(2), since Linux 5.2.

Source: Documentation/filesystems/devpts.rst and fs/fs_context.c of the kernel. Seen: Linux 6.18.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from pathlib import Path

MAX_PTYS = 256
_SYS_FSCONFIG, _SYS_FSPICK = 431, 433  # the same on every architecture
_AT_FDCWD = -100
_FSPICK_CLOEXEC, _FSPICK_SYMLINK_NOFOLLOW = 0x1, 0x2
_SET_STRING, _RECONFIGURE = 1, 7
_KEPT = ("uid", "gid", "mode", "ptmxmode")
"""Options that get their defaults back unless they are named again."""

_libc = ctypes.CDLL(None, use_errno=True)


def limit_ptys(pid: int, proc: Path = Path("/proc")) -> None:
    """Bound the pseudo terminals of the guest that this process is in, as far as this process may. Never raises."""
    with suppress(OSError):
        options = build_pty_options((proc / str(pid) / "mountinfo").read_text(encoding="utf-8", errors="replace"))
        folder = proc / str(pid) / "root" / "dev" / "pts"
        if options and not _is_hosts(folder):
            _reconfigure(folder, options)


def build_pty_options(mountinfo: str) -> dict[str, str]:
    """The options of the guest's `devpts` with our limit; empty if it has none, or the limit already. Pure."""
    for line in mountinfo.splitlines():
        mount, _, file_system = line.partition(" - ")
        if mount.split()[4:5] == ["/dev/pts"] and file_system.startswith("devpts "):
            now = dict(word.partition("=")[::2] for word in file_system.split()[-1].split(","))
            kept = {name: now[name] for name in _KEPT if name in now}
            return {} if now.get("max") == str(MAX_PTYS) else {**kept, "max": str(MAX_PTYS)}
    return {}


def _is_hosts(folder: Path) -> bool:
    """Whether it is that of this process: a mistake would take the host's terminals."""
    return os.lstat(folder).st_dev == os.lstat("/dev/pts").st_dev


def _reconfigure(folder: Path, options: dict[str, str]) -> None:
    """Raises: OSError; EPERM for a process that is not root."""
    flags = _FSPICK_CLOEXEC | _FSPICK_SYMLINK_NOFOLLOW
    context = _require_success(_libc.syscall(_SYS_FSPICK, _AT_FDCWD, os.fsencode(folder), flags))
    try:
        for key, value in options.items():
            words = (key.encode("ascii"), value.encode("ascii"))
            _require_success(_libc.syscall(_SYS_FSCONFIG, context, _SET_STRING, *words, 0))
        _require_success(_libc.syscall(_SYS_FSCONFIG, context, _RECONFIGURE, None, None, 0))
    finally:
        os.close(context)


def _require_success(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result
