"""The `sandbox` command as users run it: a process of its own, with a home of its own.

Most of what a start costs is imports. The first command of each kind starts as users start it, and so does each that
the test signals or talks to; the others are forks of one process that has imported everything: `devtools.forked`. Where
several processes run tests, it is the first of all of them.
Servers that live for long are forks in the same way: `find_command_line`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from devtools import extracted_programs
from devtools.forked import ForkServer

DEADLINE_S = 240
SANDBOX = (sys.executable, "-I", "-m", "sandbox")
"""The command by itself: nothing of the directory it starts in, or of variables for Python, is imported."""

READ_LATER = ("SANDBOX_", "PYTEST_", "SSH_", "HOME", "XDG_", "DOCKER_", "GH_", "GITHUB_", "GITLAB_")
"""Variables that no import reads: the command and its programs do. (fsspec reads `HOME`, for files that no test has.)

Tests of units, and all that follow them in their process, have another home, and none of most others.
"""
_READ_AT_IMPORT = {"PYDANTIC_DISABLE_PLUGINS": "__all__"}
"""What the command sets before its imports, and with it every process that has imported it."""


@dataclass
class FirstStarts:
    """The kinds of commands that were started; with a folder, by any of the processes that have it in common."""

    folder: Path | None = None
    _kinds: set[tuple[str, ...]] = field(default_factory=set)

    def claim(self, kind: tuple[str, ...]) -> bool:
        """Whether it is the first of its kind."""
        if kind in self._kinds:
            return False
        self._kinds.add(kind)
        if self.folder is None:
            return True
        try:
            (self.folder / f"started-{'-'.join(kind)}").touch(exist_ok=False)
        except FileExistsError:
            return False
        return True


first_starts = FirstStarts()
_servers: list[ForkServer] = []


@dataclass(frozen=True)
class Ended:
    """What one command left: `json` parses its one document."""

    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> dict[str, Any]:
        document = json.loads(self.stdout)
        assert isinstance(document, dict)
        return document

    @property
    def error(self) -> dict[str, str]:
        """The error document; nothing else may be on stdout, and no traceback anywhere."""
        assert "Traceback" not in self.stderr + self.stdout
        error = self.json["error"]
        assert set(error) - {"reason", "data"} == {"code", "brief", "details", "hint"}
        return dict(error)


@dataclass(frozen=True)
class Command:
    """`sandbox --home HOME ...`; `env` adds to the test's environment."""

    home: Path
    env: dict[str, str] = field(default_factory=dict)

    @property
    def _environment(self) -> dict[str, str]:
        return {k: v for k, v in os.environ.items() if not k.startswith("SANDBOX_")} | self.env

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        # A suite in the background of a shell ignores SIGINT, one under nohup SIGHUP, and so would this command.
        defaults = ["env", "--default-signal=INT,HUP,TERM"]
        extracted_programs.give_to(self.home)
        return subprocess.Popen(
            [*defaults, *SANDBOX, "--home", str(self.home), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self._environment,
        )

    def __call__(self, *arguments: str) -> Ended:
        server = _find_fork_server(tuple(word for word in arguments[:2] if word.isalpha()), self._environment)
        if server is not None:
            return Ended(*server.run(["--home", str(self.home), *arguments], self._environment, DEADLINE_S))
        process = self.start(*arguments)
        stdout, stderr = process.communicate(timeout=DEADLINE_S)
        return Ended(process.returncode, stdout, stderr)

    def ok(self, *arguments: str) -> dict[str, Any]:
        """The document of a command that must succeed."""
        ended = self(*arguments, "--json")
        assert ended.code == 0, ended.stdout + ended.stderr
        return ended.json


def find_command_line(kind: tuple[str, ...], environment: Mapping[str, str]) -> list[str]:
    """What starts a `sandbox` whose arguments follow: the first of a kind by itself, all others as forks."""
    server = _find_fork_server(kind, environment)
    return list(SANDBOX if server is None else server.stand_in)


def _find_fork_server(kind: tuple[str, ...], environment: Mapping[str, str]) -> ForkServer | None:
    """None for the first of a kind, and where a variable differs that the package, or one that it imports, may have
    read by then.
    """
    first = first_starts.claim(kind)
    plain = _READ_AT_IMPORT | {k: v for k, v in environment.items() if not k.startswith(READ_LATER)}
    if not _servers:
        _servers.append(ForkServer(plain))
    return None if first or _servers[0].environment != plain else _servers[0]
