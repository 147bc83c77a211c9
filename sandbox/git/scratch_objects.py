"""A temporary repository for objects that are not kept."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from sandbox.git.process import Git


@contextmanager
def scratch_repository(git: Git) -> Iterator[Git]:
    """A bare repository that reads every object of `git` and stores new objects in itself. It is deleted on exit."""
    with tempfile.TemporaryDirectory(prefix="sandbox-scratch-") as name:
        root = Path(name)
        (root / "objects" / "info").mkdir(parents=True)
        (root / "refs").mkdir()
        (root / "HEAD").write_text("ref: refs/heads/none\n")
        (root / "config").write_bytes((git.git_dir / "config").read_bytes())  # ours, names the object format
        (root / "objects" / "info" / "alternates").write_text(f"{git.git_dir.absolute() / 'objects'}\n")
        yield replace(git, git_dir=root)
