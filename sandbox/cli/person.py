"""The user of this command line, for records of decisions."""

from __future__ import annotations

import os


def describe_user() -> str:
    """Name the user of this process, from the system's accounts and not the environment, and the user before sudo."""
    from sandbox.workbench.controller.callers import system_user  # noqa: PLC0415 - lazy: `--help` stays fast

    found = system_user(os.environ)
    return f"{found.user}{f' (sudo by {found.sudo_user})' if found.sudo_user else ''} at the command line"
