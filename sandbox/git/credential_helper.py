"""Ask the user's own git credential helper, separately from every other git command.

Only this module and `sandbox.git.user_config` read the user's git configuration. They do so in a process that sees no
repository; here it gets only a host name. Protocol: git-credential(1).
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Mapping

from pydantic import SecretStr

from sandbox.credentials import Credential
from sandbox.git.process import SAFE_PATH, git_executable

DEADLINE_S = 10.0
_INHERITED_VARIABLES = ("HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS")
_QUIET = ("-c", "core.askPass=/bin/false", "-c", "credential.interactive=false")
_VALUE = re.compile(r"^(username|password)=(.*)$", re.MULTILINE)


def ask_helper(authority: str, environ: Mapping[str, str], executable: str = "") -> Credential | None:
    """The credential that the user's helper has for `https://authority`, or None. Never prompts."""
    environment = {name: environ[name] for name in _INHERITED_VARIABLES if environ.get(name)}
    environment |= {"PATH": environ.get("PATH", SAFE_PATH), "GIT_TERMINAL_PROMPT": "0", "GIT_ASKPASS": "/bin/false"}
    argv = [git_executable(executable), *_QUIET, "credential", "fill"]
    with subprocess.Popen(  # noqa: S603 - fixed argv; the host name is our own grammar's
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        errors="replace",
        env=environment,
        cwd="/",
        start_new_session=True,
    ) as process:
        try:
            answer, _ = process.communicate(f"protocol=https\nhost={authority}\n\n", timeout=DEADLINE_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # the helper too; a helper that answered may leave its cache daemon
            return None
    found = dict(_VALUE.findall(answer)) if process.returncode == 0 else {}
    if not found.get("password"):
        return None
    return Credential(host=authority, username=found.get("username", ""), secret=SecretStr(found["password"]))
