"""Ask the user's own git credential helper, apart from every other git command.

Only here and in `sandbox.git.userconfig` is the user's git configuration read, in a process that sees nothing of any
repository and gets nothing but a host name. Protocol: git-credential(1).
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping

from pydantic import SecretStr

from sandbox.credentials import Credential
from sandbox.git.process import SAFE_PATH, git_executable

DEADLINE_S = 10.0
_PASSED_ON = ("HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS")
_VALUE = re.compile(r"^(username|password)=(.*)$", re.MULTILINE)


def ask_helper(authority: str, environ: Mapping[str, str], executable: str = "") -> Credential | None:
    """The credential the user's helper has for `https://authority`, or None. Never prompts."""
    environment = {name: environ[name] for name in _PASSED_ON if environ.get(name)}
    environment |= {"PATH": environ.get("PATH", SAFE_PATH), "GIT_TERMINAL_PROMPT": "0", "GIT_ASKPASS": "/bin/false"}
    try:
        answer = subprocess.run(  # noqa: S603 - fixed argv; the host name is our own grammar's
            [
                git_executable(executable),
                "-c",
                "core.askPass=/bin/false",
                "-c",
                "credential.interactive=false",
                "credential",
                "fill",
            ],
            input=f"protocol=https\nhost={authority}\n\n",
            capture_output=True,
            text=True,
            errors="replace",
            env=environment,
            cwd="/",
            timeout=DEADLINE_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None
    found = dict(_VALUE.findall(answer.stdout)) if answer.returncode == 0 else {}
    if not found.get("password"):
        return None
    return Credential(host=authority, username=found.get("username", ""), secret=SecretStr(found["password"]))
