"""GitPython's process layer, imported without its start-up probe.

Importing GitPython (3.2.1, `git.refresh`) runs `git version`: the git of PATH or of GIT_PYTHON_GIT_EXECUTABLE, with the
whole inherited environment. In this way a hostile PATH runs a program, and GIT_TRACE writes a file (THREATS Q01, Q03).
During the import GIT_PYTHON_GIT_EXECUTABLE is a path that does not exist and GIT_PYTHON_REFRESH is `quiet`: this skips
the probe. The path is never used.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

_UNUSED = {"GIT_PYTHON_GIT_EXECUTABLE": "/nonexistent/git", "GIT_PYTHON_REFRESH": "quiet"}


@contextmanager
def _without_probe() -> Iterator[None]:
    before = {name: os.environ.get(name) for name in _UNUSED}
    os.environ.update(_UNUSED)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


with _without_probe():
    from git.cmd import Git as GitPython

__all__ = ["GitPython"]
