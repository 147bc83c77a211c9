"""Notice that a newer program was installed, and have the daemon start it."""

from __future__ import annotations

import os
import signal
import time

from sandbox.daemon.command_requests import ModuleOrigin
from sandbox.lazy_dataclass import dataclass

PATIENCE_S = 10.0
"""How long a client waits for the newer program; reached: it cannot be started, and this one serves as it can."""


@dataclass
class Upgrade:
    """What this process was read from, and the daemon that forked it.

    A process that imports more of itself later asks first: modules of two versions are not made for each other.
    `noticed_s`: when it first was older than what is installed, by the monotonic clock.
    """

    origin: ModuleOrigin
    daemon: int
    noticed_s: float | None = None

    def has_begun(self) -> bool:
        """Whether this process is older than what is installed. If so, it asks the daemon to start that."""
        if not self.origin.has_changed():
            return False
        if os.getppid() == self.daemon:  # else it has ended, and our parent is another process
            os.kill(self.daemon, signal.SIGHUP)
        return True

    def is_awaited(self) -> bool:
        """Whether to leave a client to the newer program, which is expected to be started soon. As `has_begun`."""
        if not self.has_begun():
            return False
        now = time.monotonic()
        self.noticed_s = now if self.noticed_s is None else self.noticed_s
        return now - self.noticed_s < PATIENCE_S
