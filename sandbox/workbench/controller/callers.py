"""Who asks: the user of this process, and what speaks for them."""

from __future__ import annotations

import os
import pwd
import sys
from collections.abc import Mapping

from sandbox.models import Actor, Caller

_LENGTH = 200


def system_user(environ: Mapping[str, str]) -> Caller:
    """The user of this process by the system's accounts, not by the environment; and who they were before sudo."""
    uid = os.getuid()
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:  # as in a container
        name = f"uid {uid}"
    return Caller(uid=uid, user=name, sudo_user=clipped(environ.get("SUDO_USER", "")))


def default_caller(actor: Actor, environ: Mapping[str, str]) -> Caller:
    """For whom a controller works before a client says more. `program`: of Python's actor only."""
    user = system_user(environ)
    program = clipped(sys.argv[0]) if actor is Actor.PYTHON and sys.argv else ""
    return user.model_copy(update={"program": program})


def clipped(text: str) -> str:
    """Foreign text as a record may hold it: short, and such that a file can."""
    return text[:_LENGTH].encode("utf-8", "backslashreplace").decode()
