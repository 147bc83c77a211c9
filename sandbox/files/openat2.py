"""openat2(2): resolve a path below a directory handle, atomically, without following any link.

Checking a path and then opening it loses the race against a guest that replaces directories by links (THREATS H05:
hundreds of leaks a second). The kernel's own resolution with RESOLVE_BENEATH has no such race. It needs Linux 5.6 or
newer; there is no weaker fallback.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform

from sandbox.errors import ErrorCode, SandboxError

_RESOLVE_NO_XDEV = 0x01
_RESOLVE_NO_MAGICLINKS = 0x02
_RESOLVE_NO_SYMLINKS = 0x04
_RESOLVE_BENEATH = 0x08
_RESOLVE = _RESOLVE_BENEATH | _RESOLVE_NO_SYMLINKS | _RESOLVE_NO_MAGICLINKS | _RESOLVE_NO_XDEV
_SYS_OPENAT2 = 437  # the same number on every architecture Linux added it to
_ATTEMPTS = 64  # EAGAIN is normal while the guest renames directories

_libc = ctypes.CDLL(None, use_errno=True)


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def openat2(directory: int, path: bytes, flags: int) -> int:
    """Open what exists at `path` below `directory`. Raises: OSError like os.open; ELOOP for any link in the path, EXDEV
    for a path that leaves the tree.
    """
    if b"\0" in path:  # C would stop reading there, and open a different path than the checked one
        raise OSError(errno.EINVAL, "NUL in a path")
    how = _OpenHow(flags | os.O_CLOEXEC, 0, _RESOLVE)
    for _ in range(_ATTEMPTS):
        fd: int = _libc.syscall(_SYS_OPENAT2, directory, path, ctypes.byref(how), ctypes.sizeof(how))
        if fd >= 0:
            return fd
        code = ctypes.get_errno()
        if code not in {errno.EAGAIN, errno.EINTR}:
            raise OSError(code, os.strerror(code))
    raise BlockingIOError(errno.EAGAIN, "the path kept changing")


def require_openat2() -> None:
    """Raises: `policy_violation` on a kernel without openat2."""
    try:
        root = os.open("/", os.O_PATH | os.O_CLOEXEC)
        try:
            os.close(openat2(root, b".", os.O_PATH))
        finally:
            os.close(root)
    except OSError as error:
        raise SandboxError(
            ErrorCode.POLICY_VIOLATION,
            f"This kernel ({platform.release()}) has no openat2",
            details=str(error),
            hint="Reading hostile trees safely requires Linux 5.6 or newer.",
        ) from error
