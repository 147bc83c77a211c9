"""How an attack starts this sandbox as a process of its own, however it is installed."""

from __future__ import annotations

import sys

_SANDBOX = "sys.path[:] = {path!r}; sys.argv[0] = {script!r}; from sandbox.__main__ import main; sys.exit(main())"


def build_program() -> str:
    """A program for `python -I -c`, with the import path of this process."""
    return "import sys; " + _SANDBOX.format(path=[p for p in sys.path if p], script=sys.argv[0])
