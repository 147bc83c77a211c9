"""The Model Context Protocol's own conformance suite and Inspector, from npm, on the Node of a Python wheel.

`python -m devtools.conformance` installs what `package-lock.json` pins, once.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from devtools import npminstall

HERE = Path(__file__).parent
FOLDER = npminstall.CACHE / "conformance"
LINES = ("0.1", "0.2")
_COUNTS = re.compile(r"^Passed: (\d+)/\d+, (\d+) failed, \d+ warnings$", re.MULTILINE)


def installed() -> bool:
    """Whether exactly what is pinned is there."""
    return npminstall.installed(HERE / "package-lock.json", FOLDER)


def install() -> None:
    """Install what is pinned."""
    npminstall.install(HERE, FOLDER)


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
        [npminstall.NODE / "bin" / "node", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
        check=False,
    )
    return ended.stdout + ended.stderr
