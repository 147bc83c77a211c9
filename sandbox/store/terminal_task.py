"""Which task each terminal uses, so that `-` can stand for it: one small file for each session of processes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path

from sandbox.errors import ErrorCode, SandboxError
from sandbox.store.home import Home, write_atomically

NAME = "-"

UNSEEN_LEADER_S = 24 * 60 * 60
"""How long a task is kept for a session with a leader that `/proc` does not show: it ended, belongs to another user
where `/proc` hides those, or lives outside of our PID namespace (session 0, as in many CI jobs). The end of such a
session cannot be seen."""


_session: ContextVar[int] = ContextVar("session", default=0)
"""The session of the process that a command is run for; 0: of this process."""


@contextmanager
def in_session(session: int) -> Iterator[None]:
    """Run a command for a process of another session: the daemon runs it, the user sits at that one's terminal."""
    token = _session.set(session)
    try:
        yield
    finally:
        _session.reset(token)


def remember_task(home: Home, task_id: str) -> None:
    """From now on `-` is this task, in the terminal or script of this process. Forgets terminals that are closed."""
    folder = home.terminals
    folder.mkdir(mode=0o700, exist_ok=True)
    for path in folder.iterdir():
        if _is_closed(path):
            path.unlink(missing_ok=True)
    write_atomically(_locate(home), f"{task_id}\n".encode(), synced=False)


def recall_task(home: Home) -> str:
    """The task that `-` stands for. Raises: `not_found`."""
    with suppress(FileNotFoundError):
        return _locate(home).read_text().strip()
    raise SandboxError(
        ErrorCode.NOT_FOUND,
        "No task was created or chosen in this terminal, so '-' means none",
        hint="`sandbox use TASK` chooses one; `sandbox list` shows open ones.",
    )


def _locate(home: Home) -> Path:
    session = str(_session.get() or os.getsid(0))
    return home.terminals / (_identify(session) or session)


def _is_closed(path: Path) -> bool:
    session, _, started = path.name.partition("-")
    if started:
        return _identify(session) != path.name
    with suppress(FileNotFoundError):
        return time.time() - path.stat().st_mtime > UNSEEN_LEADER_S
    return True


def _identify(session: str) -> str:
    """A session's id and the time its leader started, '' once that has ended: the kernel uses ids again.

    The time is field 22; field 2, the name, may hold spaces.
    https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html
    """
    try:
        fields = Path(f"/proc/{int(session)}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return f"{session}-{fields[19]}"
    except (OSError, ValueError, IndexError):
        return ""
