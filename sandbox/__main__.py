"""`python -m sandbox`, and the `sandbox` command itself."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command line of this process and return its exit code."""
    import signal  # noqa: PLC0415 - only after the working directory left the import path, see below

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # Ctrl-C during the slow imports would print a traceback: until the command sets its handler, it ends with 130.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from sandbox.cli import main as command  # noqa: PLC0415 - after the line above

    return command()


if __name__ == "__main__":
    if not sys.flags.safe_path:
        # `-m` puts the working directory first on the import path. A second defense: a `sandbox` there is loaded now.
        del sys.path[0]
    sys.exit(main())
