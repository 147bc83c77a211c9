"""Programs that speak to the user's session bus (D-Bus). They come from a fixed path and have a deadline; of the user's
environment they get only the way to the bus.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence

DEADLINE_S = 10.0
"""A program may ask the user on the screen, and the user may be absent."""

_PATH = "/usr/local/bin:/usr/bin:/bin"
_VARIABLES = ("DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR")


def find_program(name: str) -> str | None:
    """Its path; None if it is not installed."""
    return shutil.which(name, path=_PATH)


def find_bus(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that lead to the bus; none without a session."""
    return {name: environ[name] for name in _VARIABLES if environ.get(name)}


def run_on_bus(argv: Sequence[str], bus: Mapping[str, str], stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run a program of `find_program` to its end. Raises: OSError, `subprocess.TimeoutExpired`."""
    return subprocess.run(  # noqa: S603 - the callers' words
        argv,
        input=stdin,
        capture_output=True,
        text=True,
        errors="replace",
        env={"PATH": _PATH, "LC_ALL": "C.UTF-8", **bus},
        cwd="/",
        timeout=DEADLINE_S,
        check=False,
    )
