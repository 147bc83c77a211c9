"""The `sandbox` command as a person types it, with its answer read from `--json`."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DEADLINE_S = 300.0


class DemoError(Exception):
    """Something did not go as the demo promises."""


@dataclass(frozen=True)
class Answer:
    """What one command said: its exit status, its JSON document and how long it took."""

    line: str
    status: int
    document: dict[str, Any]
    wall_time_s: float

    def expect(self, status: int) -> dict[str, Any]:
        """The document. Raises: `DemoError` when the command ended in another way than promised."""
        if self.status != status:
            said = json.dumps(self.document, indent=2)[:2000]
            raise DemoError(f"`{self.line}` ended with {self.status}, expected {status}:\n{said}")
        return self.document


@dataclass(frozen=True)
class Sandbox:
    """The installed command, bound to one home."""

    home: Path

    @property
    def program(self) -> Path:
        """The command that belongs to this interpreter."""
        return Path(sys.executable).with_name("sandbox")

    def line(self, *arguments: str) -> str:
        """The command as one may copy it."""
        return shlex.join(["sandbox", *arguments])

    def run(self, *arguments: str) -> Answer:
        """Run it to its end."""
        started = time.monotonic()
        done = subprocess.run(  # noqa: S603 -- our own program; the arguments are the demo's
            [self.program, "--home", self.home, "--json", *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
            env=_environment(),
        )
        line = self.line(*arguments)
        try:
            document = json.loads(done.stdout)
        except json.JSONDecodeError as error:
            said = (done.stdout + done.stderr).strip()[-2000:]
            raise DemoError(f"`{line}` ended with {done.returncode} and no JSON document:\n{said}") from error
        return Answer(line, done.returncode, document, time.monotonic() - started)


def _environment() -> dict[str, str]:
    """Ours, except that the loopback server is never asked for through a proxy."""
    own = {name: value for name, value in os.environ.items() if name != "SANDBOX_HOME"}
    direct = ",".join(filter(None, [own.get("no_proxy") or own.get("NO_PROXY"), "127.0.0.1"]))
    return {**own, "no_proxy": direct, "NO_PROXY": direct}
