"""Who sits at this command line, for records of decisions."""

from __future__ import annotations

import os
import pwd


def person() -> str:
    """The user of this process by the system's accounts, not by the environment; and who they were before sudo."""
    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # as in a container
        name = f"uid {os.getuid()}"
    before = os.environ.get("SUDO_USER", "")
    return f"{name}{f' (sudo by {before})' if before else ''} at the command line"
