"""What the user's own git configuration means for the safety of this host; nothing of any repository is read.

Beside `sandbox.git.helper` the only place that looks at it. Source: git-config(1), safe.directory.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping

from sandbox.errors import SandboxError
from sandbox.git.process import SAFE_PATH, git_executable

DEADLINE_S = 10.0
_PASSED_ON = ("HOME", "XDG_CONFIG_HOME")


def trusts_every_directory(environ: Mapping[str, str], executable: str = "") -> bool:
    """Whether the system's or the user's configuration says `safe.directory = *`. False when git does not answer."""
    environment = {name: environ[name] for name in _PASSED_ON if environ.get(name)} | {"PATH": SAFE_PATH}
    try:
        answer = subprocess.run(  # noqa: S603 - fixed argv; the git directory is none, so that no repository is found
            [git_executable(executable), "--git-dir=/nonexistent", "config", "--null", "--get-all", "safe.directory"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=environment,
            cwd="/",
            timeout=DEADLINE_S,
            check=False,
        )
    except (SandboxError, subprocess.TimeoutExpired):
        return False
    trusted = False
    for value in answer.stdout.split(b"\0")[:-1]:
        trusted = value == b"*" or (trusted and value != b"")  # an empty value takes back all before it
    return trusted
