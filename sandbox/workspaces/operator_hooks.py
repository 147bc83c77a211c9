"""Commands of the operator around the creation of a workspace (docs/adr/0095).

The argv is the operator's, from config.toml; no text of a repository is in it. It runs as the controller, outside of
the workspace, and gets names of the workspace in its environment. It must not run what the workspace holds.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence

from sandbox.environment_names import HOOK_FACTS
from sandbox.errors import ErrorCode, SandboxError
from sandbox.text import decode_for_display

DEADLINE_S = 300.0
_SHOWN_BYTES = 2_000
_PASSED = ("PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ")


def run_hook(name: str, argv: Sequence[str], facts: Mapping[str, str], environ: Mapping[str, str]) -> None:
    """Run a hook to its end; an empty `argv` is no hook. `facts`: by their names in `HOOK_FACTS`.

    Raises: `policy_violation` when it exits with another code than 0, or does not start; `timeout`.
    """
    if not argv:
        return
    env = {key: environ[key] for key in _PASSED if key in environ}
    env |= {HOOK_FACTS[name]: value for name, value in facts.items()}
    with tempfile.TemporaryFile() as output:
        try:
            hook = subprocess.Popen(  # noqa: S603 - the operator's own command, from their file
                argv, cwd="/", env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        except (OSError, ValueError) as error:
            raise _hook_error(name, ErrorCode.POLICY_VIOLATION, "cannot be started", str(error)) from error
        try:
            code = hook.wait(DEADLINE_S)
        except BaseException as error:
            os.killpg(hook.pid, signal.SIGKILL)
            hook.wait()
            if isinstance(error, subprocess.TimeoutExpired):
                raise _hook_error(name, ErrorCode.TIMEOUT, f"took longer than {DEADLINE_S:.0f} s") from error
            raise
        if code != 0:
            output.seek(max(0, os.fstat(output.fileno()).st_size - _SHOWN_BYTES))
            said = decode_for_display(output.read(_SHOWN_BYTES))
            raise _hook_error(name, ErrorCode.POLICY_VIOLATION, f"refused the workspace (exit code {code})", said)


def _hook_error(name: str, code: ErrorCode, what: str, details: str = "") -> SandboxError:
    return SandboxError(
        code,
        f"The operator's hook workspaces.{name} {what}",
        details=details,
        hint=f"No workspace was created. The command is workspaces.{name} in config.toml.",
    )
