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
_COUNTS = re.compile(r"^[✓✗] ([\w-]+): (\d+) passed, (\d+) failed$", re.MULTILINE)
DEADLINE_S = 240


def installed() -> bool:
    """Whether exactly what is pinned is there."""
    return npminstall.installed(HERE / "package-lock.json", FOLDER)


def install() -> None:
    """Install what is pinned."""
    npminstall.install(HERE, FOLDER)


def run_scenarios(line: str, url: str) -> tuple[dict[str, tuple[int, int]], str]:
    """Run one line of the suite against a server: checks passed and failed by scenario, and the output.

    All scenarios, also those that our server has no fixture tool for, in one process: most of what each takes by itself
    is to start Node.
    """
    program = FOLDER / "node_modules" / f"conformance-{line}" / "dist" / "index.js"
    output = _node(str(program), "server", "--url", url, "--suite", "all")
    _, _, summary = output.partition("\n=== SUMMARY ===\n")
    return {name: (int(passed), int(failed)) for name, passed, failed in _COUNTS.findall(summary)}, output


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
        timeout=DEADLINE_S,
        check=False,
    )
    return ended.stdout + ended.stderr
