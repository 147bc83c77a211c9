"""Who sits at this command line, for records of decisions."""

from __future__ import annotations

import getpass
import os


def person() -> str:
    """The user of this process, and who they were before sudo."""
    before = os.environ.get("SUDO_USER", "")
    return f"{getpass.getuser()}{f' (sudo by {before})' if before else ''} at the command line"
