"""Repositories to measure on: the same content for both sides, made once per run in a temporary directory."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

SIZES = {"small": (100, 2_000), "medium": (7_000, 8_500), "large": (57_000, 4_400)}
"""Files and mean bytes a file."""


def make(folder: Path, size: str) -> Path:
    """A bare git repository of that size with one commit on `main`."""
    files, mean = SIZES[size]
    pick = random.Random(size)  # noqa: S311 - content, not a secret
    stream = [b"commit refs/heads/main\ncommitter b <b@localhost> 0 +0000\ndata 0\n\n"]
    for number in range(files):
        content = pick.randbytes(mean // 2).hex().encode() + b"\n"
        path = f"d{number % 97}/e{number % 13}/f{number}.txt"
        stream.append(f"M 100644 inline {path}\ndata {len(content)}\n".encode() + content + b"\n")
    subprocess.run(["git", "init", "-q", "--bare", "-b", "main", str(folder)], check=True)
    subprocess.run(["git", f"--git-dir={folder}", "fast-import", "--quiet"], input=b"".join(stream), check=True)
    return folder
