"""THREATS S: a client starts this sandbox in the attacker's directory; modules there must not be imported."""

from __future__ import annotations

import json
import os
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sandbox.attack.harness.entry import AttackEntry
from sandbox.attack.harness.outcomes import GotThrough
from sandbox.attack.harness.scene import Scene
from sandbox.attack.harness.start_program import build_program
from sandbox.git.unhardened import UnhardenedResult, run_unhardened

CLIENTS = ("claude", "cursor", "vscode", "codex")
PYTHON_PATHS = ("", ".")
"""Values in the client's environment. `.` is the working directory; plain Python treats an empty value as unset."""
MODULES = ("click.py", "json.py", "sitecustomize.py", "usercustomize.py", "sandbox/__init__.py", "sandbox/__main__.py")
_MESSAGES = (
    {"id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "attack", "version": "1"}}},
    {"method": "notifications/initialized"},
    {"id": 2, "method": "tools/list"},
)  # fmt: skip


@dataclass(frozen=True)
class Start:
    """How a client starts the server of a snippet."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)


def plant(scene: Scene) -> None:
    """Plant a repository that is open in the client; each of its modules leaves its own mark."""
    for name in MODULES:
        path = opened_directory(scene) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        more = "import click, json\n" if name.endswith("__main__.py") else ""
        path.write_text(f"open({str(scene.mark(mark_of(name)))!r}, 'w').close()\n{more}")


def opened_directory(scene: Scene) -> Path:
    """The directory that is open in the client."""
    return scene.root / "opened"


def mark_of(module: str) -> str:
    """The name of the mark that a module leaves."""
    return module.replace("/", ".")


def control(scene: Scene) -> str:
    """`python -m sandbox` in that directory must run its module."""
    careless = [sys.executable, "-m", "sandbox", "--version"]
    scene.require_mark(
        mark_of("sandbox/__main__.py"), lambda: run_unhardened(careless, cwd=opened_directory(scene), home=scene.root)
    )
    return "`python -m sandbox` ran a module of the directory"


def snippet(scene: Scene, client: str) -> Start:
    """Parse the output of `sandbox mcp config` as that client does. Raises: `GotThrough` when the command fails."""
    words = ["--home", str(scene.home), "--json", "mcp", "config", client]
    done = run_unhardened([sys.executable, "-I", "-c", build_program(), *words], cwd=Path("/"), home=_users_home(scene))
    if done.code != 0:
        raise GotThrough(f"no snippet for {client}: {(done.stderr or done.stdout).decode(errors='replace')[-500:]}")
    return _read(json.loads(done.stdout)["snippet"], client)


def _users_home(scene: Scene) -> Path:
    """The user's home, because this sandbox may be installed below it. No other file there is read."""
    return Path(os.environ.get("HOME") or scene.operator)


def _read(text: str, client: str) -> Start:
    document = tomllib.loads(text) if client == "codex" else json.loads(text)
    (servers,) = document.values()
    server = servers["space-sandbox"]
    return Start((server["command"], *server["args"]), server.get("env", {}))


def serve(scene: Scene, start: Start, python_path: str) -> UnhardenedResult:
    """Start the server as a client does in that directory, and ask for its tools."""
    stdin = "".join(json.dumps({"jsonrpc": "2.0", **message}) + "\n" for message in _MESSAGES).encode()
    env = {"PYTHONPATH": python_path, **start.env}
    return run_unhardened(start.argv, cwd=opened_directory(scene), home=_users_home(scene), env=env, stdin=stdin)


def require_tools(done: UnhardenedResult, start: Start) -> None:
    """Raises: `GotThrough` when it did not answer: then the absence of marks proves no protection."""
    if b"space_repo_clone" not in done.stdout:
        raise GotThrough(f"`{' '.join(start.argv)}` lists no tools: {done.stderr.decode(errors='replace')[-500:]}")


def attack(scene: Scene) -> str:
    """Try every distinct start of the snippets with each import path."""
    tried = [*_different(snippet(scene, client) for client in CLIENTS)]
    for start in tried:
        for python_path in PYTHON_PATHS:
            require_tools(serve(scene, start, python_path), start)
    return f"the server listed its tools {len(tried) * len(PYTHON_PATHS)} times and imported no module of the directory"


def _different(starts: Iterator[Start]) -> Sequence[Start]:
    found: list[Start] = []
    for start in starts:
        if start not in found:
            found.append(start)
    return found


ENTRIES = (
    AttackEntry(
        "S01", "modules in a client's working directory", "mcp config, mcp", control, attack, plant, scene="bare"
    ),
)
