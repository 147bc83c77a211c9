"""`python -m sandbox`, and the `sandbox` command itself."""

from __future__ import annotations

import signal
import sys


def main() -> int:
    """Run the command line of this process; returns the exit code."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # Loading takes a moment, and Ctrl-C in it would be a traceback: until the command listens, it just ends (130).
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from sandbox.cli import main as command  # noqa: PLC0415 - not before the line above

    return command()


if __name__ == "__main__":
    sys.exit(main())
