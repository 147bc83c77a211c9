"""The label of SELinux that folders of ours need so that guests can use them.

An engine that confines guests by SELinux lets them use files with the type `container_file_t` only; what it starts
without a relabelling option finds its folders closed. `:Z`, that option, relabels all that is below a path on each
start. We label a folder once, when we make it and it is empty: files that are made in it inherit its type (see "type
transition" in the SELinux Notebook), copies of them in an overlay too. A path that we did not make is never labelled.

A guest that fetches packages speaks to a Unix socket of ours. To connect to one SELinux asks for two types: that of its
file, as above, and that of the socket itself, which is the listening process's unless that process asks for another.
docs/adr/0165.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

ATTRIBUTE = "security.selinux"
LABEL = b"system_u:object_r:container_file_t:s0\0"
SOCKET_LABEL = b"system_u:system_r:container_t:s0\0"
_NEW_SOCKETS = Path("/proc/thread-self/attr/sockcreate")  # proc(5); a newline: no label is asked for
_KERNEL = Path("/sys/fs/selinux")


def has_selinux(kernel: Path = _KERNEL) -> bool:
    """Whether the kernel has a policy of SELinux; then `enforce` says whether it only reports."""
    return (kernel / "enforce").exists()


def is_permissive(kernel: Path = _KERNEL) -> bool:
    """Whether SELinux only records what it would deny, to every process."""
    try:
        return (kernel / "enforce").read_text(encoding="ascii").strip() == "0"
    except OSError:
        return False


def label_for_guests(path: Path) -> None:
    """Label a new file or an empty folder of ours. Without SELinux, or where it refuses, `path` stays as it is."""
    if has_selinux():
        with suppress(OSError):  # a policy without containers; `sandbox doctor` says so
            os.setxattr(path, ATTRIBUTE, LABEL, follow_symlinks=False)


def make_guest_folder(path: Path) -> None:
    """Make a folder that guests will see, or something in it; one that is there stays as it is. Raises: OSError."""
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        if not path.is_dir():
            raise
    else:
        label_for_guests(path)


@contextmanager
def guest_sockets(new_sockets: Path = _NEW_SOCKETS) -> Iterator[None]:
    """Guests may connect to sockets that this thread makes inside the block, if they see them.

    Raises: OSError if the label cannot be taken back: later sockets of the thread would have it.
    """
    attribute = _open_for_writing(new_sockets) if has_selinux() else None
    if attribute is None:
        yield
        return
    try:
        with suppress(OSError):  # a policy without containers
            os.pwrite(attribute, SOCKET_LABEL, 0)
        try:
            yield
        finally:
            os.pwrite(attribute, b"\n", 0)
    finally:
        os.close(attribute)


def _open_for_writing(path: Path) -> int | None:
    """Opened once: taking the label back must not need a file descriptor, of which none may be left."""
    try:
        return os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None


def is_labelled(path: Path) -> bool:
    """Whether guests may use a path, by its type. False on a file system without labels."""
    try:
        label = os.getxattr(path, ATTRIBUTE, follow_symlinks=False)
    except OSError:
        return False
    return label.split(b":")[2:3] == LABEL.split(b":")[2:3]
