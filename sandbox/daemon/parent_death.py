"""Tell a fork that the process that forked it was killed: prctl(2), PR_SET_PDEATHSIG."""

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1


def end_with_parent(parent: int, number: int = signal.SIGTERM) -> None:
    """Receive this signal when this process's parent dies. Ends at once if `parent` has died already."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os._exit(1)


def outlive_parent() -> None:
    """Do not end with the parent any more."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, 0)
