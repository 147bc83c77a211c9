"""Plain git, as typed in a shell. Only for the positive controls of `sandbox.attack`.

It obeys any configuration, hooks and attributes that it finds: that is its purpose. It runs only in scratch
directories, with its own environment, and is killed with its children at the deadline.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from sandbox.git.process import SAFE_PATH

_IDENTITY = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "a"), ("EMAIL", "a@b"), ("DATE", "1700000000 +0000"))
}


@dataclass(frozen=True)
class UnhardenedResult:
    """How a command ended. `code` is -9 if it was killed at the deadline."""

    code: int
    stdout: bytes
    stderr: bytes

    @property
    def text(self) -> str:
        """stdout without surrounding white space."""
        return self.stdout.decode(errors="replace").strip()


def run_unhardened(
    argv: Sequence[str], *, cwd: Path, home: Path, env: Mapping[str, str] | None = None, stdin: bytes = b"",
    seconds: float = 150.0,
) -> UnhardenedResult:  # fmt: skip
    """Run a command with `home` as its HOME, for at most `seconds`."""
    environ = {"PATH": SAFE_PATH, "HOME": str(home), "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C", **_IDENTITY}
    with subprocess.Popen(  # noqa: S603 - a control is meant to run what it finds, in its scratch directory
        list(argv),
        cwd=cwd,
        env={**environ, **(env or {})},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        try:
            out, err = process.communicate(stdin, timeout=seconds)
            code = process.returncode
        except subprocess.TimeoutExpired:
            out, err, code = b"", b"", -signal.SIGKILL
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return UnhardenedResult(code, out, err)
