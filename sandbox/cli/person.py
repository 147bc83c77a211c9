"""Who sits at this command line, for records of decisions."""

from __future__ import annotations

import os


def person() -> str:
    """The user of this process by the system's accounts, not by the environment; and who they were before sudo."""
    from sandbox.workbench.controller.callers import system_user  # noqa: PLC0415 - lazy: `--help` and usage errors stay fast

    found = system_user(os.environ)
    return f"{found.user}{f' (sudo by {found.sudo_user})' if found.sudo_user else ''} at the command line"
