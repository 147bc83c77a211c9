"""Run `sandbox` commands that end themselves with SIGKILL at their n-th step, as a crash would end them.

A step is an event of Python's audit hooks (PEP 578) that changes something outside of the process: a name made, moved
or removed, a file opened for writing, a program started, a request sent to the engine. The kill comes before the step.
Nothing of the product is patched and nothing in its environment differs.

`set_up` makes the home and the repository that they work on.

Commands are forked off one small process that has imported everything: a hundred of them take seconds.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import pkgutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import sandbox
from sandbox.cli.app import main

_STEPS = {
    "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate", "subprocess.Popen",
    "http.client.send", "fcntl.flock",
}  # fmt: skip
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
DEADLINE_S = 240
_PROFILE = """\
label = "kill"
image = "base"
priority = 99
[[detect.any]]
file = "f"
[[check]]
id = "go"
label = "go"
argv = ["sh", "-c", "echo built > built.log; sleep 0.2"]
timeout_s = 120
limits = { memory_bytes = 134217728, cpus = 1.0, pids = 64 }
"""
_FILES = {"f": "one\ntwo\nthree\n", "g": "one\ntwo\nthree\n", ".gitignore": "*.log\n"}


@dataclass(frozen=True)
class Run:
    """How a command ended: `code` is negative for a signal. `steps`: how many it took."""

    code: int
    steps: int
    stdout: str
    stderr: str

    @property
    def was_killed(self) -> bool:
        return self.code == -signal.SIGKILL


def plain_git(*arguments: object, cwd: Path) -> str:
    """Git as somebody would type it; what it printed."""
    identity = {f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    argv = ["git", "-c", "safe.directory=*", *map(str, arguments)]
    done = subprocess.run(  # noqa: S603 - fixed argv
        argv, cwd=cwd, check=True, capture_output=True, text=True, env={**os.environ, **identity}
    )
    return done.stdout.strip()


def set_up(home: Path, source: Path) -> None:
    """A repository, and a home whose profile has one short check `go` for it."""
    source.mkdir()
    for name, content in _FILES.items():
        (source / name).write_text(content)
    plain_git("init", "-q", "-b", "main", cwd=source)
    plain_git("add", "-A", cwd=source)
    plain_git("commit", "-q", "-m", "x", cwd=source)
    (home / "profiles").mkdir(parents=True)
    (home / "profiles" / "kill.toml").write_text(_PROFILE)


class Kills:
    """Runs commands on request. `with Kills() as kills: kills.run(home, "gc", at=3)`; `at` 0: to the end."""

    def __init__(self, folder: Path) -> None:
        """`folder`: for notes, not the home."""
        self._folder = folder
        argv = [sys.executable, "-m", "devtools.kills", str(folder)]
        environ = {k: v for k, v in os.environ.items() if not k.startswith("SANDBOX_")}
        environ["PYTHONPATH"] = str(Path(__file__).parents[1])
        self._server = subprocess.Popen(  # noqa: S603 - fixed argv
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ, cwd="/"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self._server.communicate(timeout=DEADLINE_S)
        self._server.kill()
        self._server.wait()

    def run(self, home: Path, *words: str, at: int = 0) -> Run:
        """One command on a home, with its answer as JSON, killed before its step `at`."""
        arguments = ["--home", str(home), "--json", *words]
        requests, answers = self._server.stdin, self._server.stdout
        if requests is None or answers is None:
            raise RuntimeError("started without pipes")
        requests.write(json.dumps({"arguments": arguments, "at": at}) + "\n")
        requests.flush()
        return Run(**json.loads(answers.readline()))


def _serve(folder: Path) -> None:
    """Answer one line for each line, until the input ends."""
    for module in pkgutil.walk_packages(sandbox.__path__, "sandbox."):  # before any fork
        importlib.import_module(module.name)
    for line in sys.stdin:
        wanted = json.loads(line)
        notes = [folder / name for name in ("steps", "stdout", "stderr")]
        child = os.fork()
        if child == 0:
            _become(wanted["arguments"], wanted["at"], notes)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        steps, stdout, stderr = (path.read_text(errors="replace") for path in notes)
        answer = {"code": code, "steps": len(steps), "stdout": stdout, "stderr": stderr}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _become(arguments: list[str], at: int, notes: list[Path]) -> None:
    """This forked process is the command from here on; it does not return."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    note, stdout, stderr = (os.open(path, flags, 0o600) for path in notes)
    for source, target in ((os.open(os.devnull, os.O_RDONLY), 0), (stdout, 1), (stderr, 2)):
        os.dup2(source, target)
    sys.addaudithook(_Killer(at, note).look)
    code = 70
    try:
        code = main(arguments)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


class _Killer:
    def __init__(self, at: int, note: int) -> None:
        self._at, self._note, self._count = at, note, 0

    def look(self, event: str, args: tuple[Any, ...]) -> None:
        if event not in _STEPS and not (event == "open" and _writes(args)):
            return
        self._count += 1
        if self._count == self._at:
            os.kill(os.getpid(), signal.SIGKILL)
        os.write(self._note, b".")


def _writes(args: tuple[Any, ...]) -> bool:
    flags = args[2]
    return isinstance(flags, int) and bool(flags & _WRITING) and not str(args[0]).endswith(".pyc")


if __name__ == "__main__":
    _serve(Path(sys.argv[1]))
