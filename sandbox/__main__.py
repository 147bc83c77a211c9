"""`python -m sandbox`, and the `sandbox` command itself."""

from __future__ import annotations

import sys

_OBJECTS_BEFORE_COLLECTION = 200_000
"""More than a short command makes; a server still collects, less often: up to 40 MB of garbage wait."""


def main() -> int:
    """Run the command line of this process and return its exit code."""
    import _signal  # type: ignore[import-not-found]  # noqa: PLC0415 - only after the working directory left the import path, see below

    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        # Ctrl-C during the slow imports would print a traceback: until the command sets its handler, it ends with 130.
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    from sandbox.command_client import run_in_daemon  # noqa: PLC0415 - as above

    code = run_in_daemon(sys.argv[1:])
    return _run_here() if code is None else code


def _run_here() -> int:
    import gc  # noqa: PLC0415 - as above

    from sandbox.cli import main as command  # noqa: PLC0415 - as above

    # What a command imports is no garbage. Looking for some in it, again and again while it grows and twice at the end,
    # takes a fifth of a short command's time (docs/adr/0080).
    gc.set_threshold(_OBJECTS_BEFORE_COLLECTION)
    try:
        return command()
    finally:
        gc.freeze()


if __name__ == "__main__":
    if not sys.flags.safe_path:
        # `-m` puts the working directory first on the import path. A second defense: a `sandbox` there is loaded now.
        del sys.path[0]
    sys.exit(main())
