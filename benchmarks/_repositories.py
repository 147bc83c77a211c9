"""Repositories to measure on: equal content for both sides, created once per run in a temporary directory."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable
from pathlib import Path

SIZES = {"small": (100, 2_000), "medium": (7_000, 8_500), "big": (25_000, 4_000), "large": (57_000, 4_400)}
"""Number of files, and mean bytes per file."""

Content = Callable[[random.Random, int, int], tuple[str, bytes]]
"""From (random generator, number of the file, mean bytes) to the file's extension and content."""

_WORDS = ("buffer", "cache", "engine", "frame", "handle", "index", "journal", "lease", "mount", "parser", "queue")


def text(pick: random.Random, number: int, mean: int) -> tuple[str, bytes]:
    """Content in no known language."""
    del number
    return ".txt", pick.randbytes(mean // 2).hex().encode() + b"\n"


def source(pick: random.Random, number: int, mean: int) -> tuple[str, bytes]:
    """Python and C, with a definition that ctags finds about every 300 bytes; some call each other."""
    definition = _python if number % 2 else _c
    parts = [definition(pick, number, part) for part in range(max(1, mean // 300))]
    return (".py" if number % 2 else ".c"), "\n".join(parts).encode()


def place(number: int) -> str:
    """Folders of the project's own."""
    return f"d{number % 97}/e{number % 13}"


def place_bundled(number: int) -> str:
    """Six of seven files are code of others."""
    return f"src/e{number % 13}" if number % 7 == 0 else f"external/lib{number % 9}/{number % 5}"


def make(folder: Path, size: str, content: Content = text, place: Callable[[int], str] = place) -> Path:
    """Create a bare git repository with one commit on `main`: a README and the files."""
    files, mean = SIZES[size]
    pick = random.Random(size)  # noqa: S311 - content, not a secret
    stream = [b"commit refs/heads/main\ncommitter b <b@localhost> 0 +0000\ndata 0\n\n", _file("README.md", b"# B\n")]
    for number in range(files - 1):
        ending, body = content(pick, number, mean)
        stream.append(_file(f"{place(number)}/f{number}{ending}", body))
    subprocess.run(["git", "init", "-q", "--bare", "-b", "main", str(folder)], check=True)
    subprocess.run(["git", f"--git-dir={folder}", "fast-import", "--quiet"], input=b"".join(stream), check=True)
    return folder


def _file(path: str, body: bytes) -> bytes:
    return f"M 100644 inline {path}\ndata {len(body)}\n".encode() + body + b"\n"


def _name(pick: random.Random, number: int) -> str:
    return f"{pick.choice(_WORDS)}_{pick.choice(_WORDS)}_{number}"


def _python(pick: random.Random, number: int, part: int) -> str:
    called = _name(pick, pick.randrange(number + 1))
    return (
        f"def {_name(pick, number)}_{part}(first, second):\n"
        f'    """Add what {called} makes of the first to the second, which may be nothing at all."""\n'
        f"    total = {called}(first) + {pick.randrange(10**9)}\n"
        "    for item in second:\n        total += item.weight\n    return total\n"
    )


def _c(pick: random.Random, number: int, part: int) -> str:
    called = _name(pick, pick.randrange(number + 1))
    return (
        f"/* What {called} makes of the first, and of the second, which may be nothing at all. */\n"
        f"int {_name(pick, number)}_{part}(struct frame *first, int second)\n"
        f"{{\n    int total = {called}(first) + {pick.randrange(10**9)};\n"
        "    while (second-- > 0)\n        total += first->weight;\n    return total;\n}\n"
    )
