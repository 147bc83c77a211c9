"""The caller of an operation: the user of this process, and the program that acts for this user."""

from __future__ import annotations

import os
import pwd
import sys
from collections.abc import Mapping

from sandbox.models import Actor, Caller

_MAX_LENGTH = 200


def system_user(environ: Mapping[str, str]) -> Caller:
    """The user of this process from the system's accounts, not from the environment; and `SUDO_USER`."""
    uid = os.getuid()
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:  # as in a container
        name = f"uid {uid}"
    return Caller(uid=uid, user=name, sudo_user=clip_text(environ.get("SUDO_USER", "")))


def default_caller(actor: Actor, environ: Mapping[str, str]) -> Caller:
    """The caller until a client gives more. `program` is set for the Python actor only."""
    user = system_user(environ)
    program = clip_text(sys.argv[0]) if actor is Actor.PYTHON and sys.argv else ""
    return user.model_copy(update={"program": program})


def clip_text(text: str) -> str:
    """Foreign text as a record may hold it: at most 200 characters, and encodable as UTF-8."""
    return text[:_MAX_LENGTH].encode("utf-8", "backslashreplace").decode()
