"""How much memory a git command may use: what it reserves of the budget, and the kernel's limit on it (ADR 47)."""

from __future__ import annotations

import resource
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from sandbox.errors import ErrorCode, SandboxError
from sandbox.lazy_dataclass import dataclass
from sandbox.memory import TRANSFER_BYTES

_MIB = 1024**2
_EXEC_S = 5.0


@dataclass(frozen=True)
class GitMemory:
    """`reserved_bytes`: of the budget of all threads. `limit_bytes`: data of the process (RLIMIT_DATA)."""

    reserved_bytes: int
    limit_bytes: int


SMALL = GitMemory(32 * _MIB, 32 * _MIB)
"""Enough for almost every command. Reached: reading commands are repeated once with `LARGE`."""
LARGE = GitMemory(256 * _MIB, 256 * _MIB)
"""For large objects and trees, and long histories. Reached: `quota_exceeded`."""
_SEARCH = GitMemory(128 * _MIB, 192 * _MIB)  # eight stacks of 8 MiB count for the kernel; threads hardly use them
_HISTORY = GitMemory(TRANSFER_BYTES, TRANSFER_BYTES)  # 100 B for each object of the history; a fetch takes 169 B

_REPEATABLE = frozenset(
    {"cat-file", "describe", "diff-tree", "for-each-ref", "ls-tree", "merge-base", "rev-list", "rev-parse", "show-ref"}
)


def is_repeatable(args: Sequence[str]) -> bool:
    """Whether a command only reads, so that it can be repeated with more memory."""
    return args[0] in _REPEATABLE


def reads_history(args: Sequence[str]) -> bool:
    """Whether a command keeps a record for each object of the history. Such commands reserve what transfers share: they
    take minutes, and looks must not wait for them.
    """
    return args[0] == "fsck" or (args[0] == "rev-list" and "--objects" in args)


def choose_history_memory(most_bytes: int) -> GitMemory:
    """Memory to check the history that a fetch with `most_bytes` has received. Pure."""
    return GitMemory(TRANSFER_BYTES, max(most_bytes, TRANSFER_BYTES))


def choose_memory(args: Sequence[str], requested: GitMemory) -> GitMemory:
    """The memory of a local command; `requested` unless the command is known to need something else. Pure."""
    if reads_history(args):
        return max(_HISTORY, requested, key=lambda memory: memory.limit_bytes)
    return _SEARCH if args[0] == "grep" else requested


def limit_memory(pid: int, most: int) -> bool:
    """Limit the data of a process that was just started; mapped packs do not count.

    The process may have allocated before, so that is compared with the limit afterwards: from then on the kernel checks
    each allocation. Costs a system call and one small file; a `prlimit` before git would cost one more program. On a
    slow machine it may still be on its way to git, with the memory of this process, which does not count.
    Returns whether the process is within the limit. Raises: `internal` if the kernel does not allow to set it.
    """
    try:
        with suppress(ProcessLookupError):  # it has ended
            _, hard = resource.prlimit(pid, resource.RLIMIT_DATA)
            allowed = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.prlimit(pid, resource.RLIMIT_DATA, (allowed, allowed))
    except PermissionError as error:
        raise SandboxError(
            ErrorCode.INTERNAL,
            "The memory of a git command cannot be limited",
            details=str(error),
            hint="The controller needs the system call prlimit on its own children; a seccomp profile may deny it.",
        ) from error
    if _read_data_bytes(pid) <= most:
        return True
    ends_at = time.monotonic() + _EXEC_S
    while _runs_our_program(pid) and time.monotonic() < ends_at:
        time.sleep(0.001)
    return _read_data_bytes(pid) <= most


def _runs_our_program(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/exe").samefile("/proc/self/exe")
    except OSError:  # it has ended
        return False


def _read_data_bytes(pid: int) -> int:
    """Private writable memory (VmData). 0 for a process that has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_bytes()
    except OSError:
        return 0
    sizes = [line.split()[1] for line in status.splitlines() if line.startswith(b"VmData:")]
    return int(sizes[0]) * 1024 if sizes else 0
