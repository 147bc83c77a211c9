"""`python -m sandbox`, and the `sandbox` command itself."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command line of this process; returns the exit code."""
    import signal  # noqa: PLC0415 - not before the working directory is off the import path, see below

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # Loading takes a moment, and Ctrl-C in it would be a traceback: until the command listens, it just ends (130).
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from sandbox.cli import main as command  # noqa: PLC0415 - not before the line above

    return command()


if __name__ == "__main__":
    if not sys.flags.safe_path:
        # `-m` put the working directory first on the import path. A belt: a `sandbox` in there has won already.
        del sys.path[0]
    sys.exit(main())
