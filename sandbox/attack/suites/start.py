"""THREATS S: a client starts this sandbox in a directory of the attacker's, whose modules must not be imported."""

from __future__ import annotations

import json
import os
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sandbox.attack.harness.entry import Entry
from sandbox.attack.harness.outcomes import GotThrough
from sandbox.attack.harness.scene import Scene
from sandbox.git.unhardened import Done, run_plain

CLIENTS = ("claude", "cursor", "vscode", "codex")
PYTHON_PATHS = ("", ".")
"""Of the client's environment. The working directory is meant by `.`; plain Python takes an empty one for none."""
MODULES = ("click.py", "json.py", "sitecustomize.py", "usercustomize.py", "sandbox/__init__.py", "sandbox/__main__.py")
_SANDBOX = "sys.path[:] = {path!r}; sys.argv[0] = {script!r}; from sandbox.__main__ import main; sys.exit(main())"
_MESSAGES = (
    {"id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "attack", "version": "1"}}},
    {"method": "notifications/initialized"},
    {"id": 2, "method": "tools/list"},
)  # fmt: skip


@dataclass(frozen=True)
class Start:
    """What a client does with a snippet."""

    argv: tuple[str, ...]
    env: Mapping[str, str]


def plant(scene: Scene) -> None:
    """A repository that is open in the client, each module of which leaves a mark of its own."""
    for name in MODULES:
        path = opened(scene) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        more = "import click, json\n" if name.endswith("__main__.py") else ""
        path.write_text(f"open({str(scene.mark(mark_of(name)))!r}, 'w').close()\n{more}")


def opened(scene: Scene) -> Path:
    """The directory that is open in the client."""
    return scene.root / "opened"


def mark_of(module: str) -> str:
    """The mark that a module leaves."""
    return module.replace("/", ".")


def control(scene: Scene) -> str:
    """`python -m sandbox` in that directory runs what lies there."""
    careless = [sys.executable, "-m", "sandbox", "--version"]
    scene.fires(mark_of("sandbox/__main__.py"), lambda: run_plain(careless, cwd=opened(scene), home=scene.root))
    return "`python -m sandbox` ran a module of the directory"


def snippet(scene: Scene, client: str) -> Start:
    """What `sandbox mcp config` prints for a client, read as that client reads it. Raises: `GotThrough`: it fails."""
    program = "import sys; " + _SANDBOX.format(path=[p for p in sys.path if p], script=sys.argv[0])
    words = ["--home", str(scene.home), "--json", "mcp", "config", client]
    done = run_plain([sys.executable, "-I", "-c", program, *words], cwd=Path("/"), home=_users_home(scene))
    if done.code != 0:
        raise GotThrough(f"no snippet for {client}: {(done.stderr or done.stdout).decode(errors='replace')[-500:]}")
    return _read(json.loads(done.stdout)["snippet"], client)


def _users_home(scene: Scene) -> Path:
    """The user's own: this sandbox may be installed below it. Nothing else is read there."""
    return Path(os.environ.get("HOME") or scene.operator)


def _read(text: str, client: str) -> Start:
    document = tomllib.loads(text) if client == "codex" else json.loads(text)
    (servers,) = document.values()
    server = servers["space-sandbox"]
    return Start((server["command"], *server["args"]), server.get("env", {}))


def serve(scene: Scene, start: Start, python_path: str) -> Done:
    """The server as a client starts it in that directory, asked for its tools."""
    stdin = "".join(json.dumps({"jsonrpc": "2.0", **message}) + "\n" for message in _MESSAGES).encode()
    env = {"PYTHONPATH": python_path, **start.env}
    return run_plain(start.argv, cwd=opened(scene), home=_users_home(scene), env=env, stdin=stdin)


def require_tools(done: Done, start: Start) -> None:
    """Raises: `GotThrough` when it did not answer: then nothing is shown by the absence of marks."""
    if b"space_repo_clone" not in done.stdout:
        raise GotThrough(f"`{' '.join(start.argv)}` lists no tools: {done.stderr.decode(errors='replace')[-500:]}")


def attack(scene: Scene) -> str:
    """Every different start that the snippets ask for, with each import path."""
    tried = [*_different(snippet(scene, client) for client in CLIENTS)]
    for start in tried:
        for python_path in PYTHON_PATHS:
            require_tools(serve(scene, start, python_path), start)
    return f"the server listed its tools {len(tried) * len(PYTHON_PATHS)} times and imported nothing of the directory"


def _different(starts: Iterator[Start]) -> Sequence[Start]:
    found: list[Start] = []
    for start in starts:
        if start not in found:
            found.append(start)
    return found


ENTRIES = (
    Entry("S01", "modules in the directory a client is in", "mcp config, mcp", control, attack, plant, scene="bare"),
)
