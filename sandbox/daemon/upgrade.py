"""Notice that a newer program was installed, and have the daemon start it."""

from __future__ import annotations

import os
import signal

from sandbox.daemon.command_requests import ModuleOrigin
from sandbox.lazy_dataclass import dataclass


@dataclass(frozen=True)
class Upgrade:
    """What this process was read from, and the daemon that forked it.

    A process that imports more of itself later asks first: modules of two versions are not made for each other.
    """

    origin: ModuleOrigin
    daemon: int

    def has_begun(self) -> bool:
        """Whether this process is older than what is installed. If so, it asks the daemon to start that."""
        if not self.origin.has_changed():
            return False
        if os.getppid() == self.daemon:  # else it has ended, and our parent is another process
            os.kill(self.daemon, signal.SIGHUP)
        return True
