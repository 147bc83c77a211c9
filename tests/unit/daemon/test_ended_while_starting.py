"""A daemon that is told to end while it imports what it serves, which takes a second or more."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from sandbox.daemon.place import find_owner, take_lock
from tests.unit.conftest import run

PROGRAM = """
import os, sys, time
from sandbox.daemon import place, preload

def end(home, _environment):
    place.open_socket(home, place.SOCKET)
    os.kill(os.getpid(), int(sys.argv[2]))
    time.sleep(60)

preload.preload = end
from sandbox.cli import main
sys.exit(main(["--home", sys.argv[1], "serve"]))
"""


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGTERM, 0), (signal.SIGINT, 130)],
    ids=["a service manager or --stop", "Ctrl-C, the control"],
)
def test_it_ends_as_a_daemon_that_has_started(tmp_path: Path, number: int, code: int) -> None:
    home = tmp_path / "home"
    run([sys.executable, "-c", PROGRAM, str(home), str(int(number))], code=code)
    assert sorted(path.name for path in (home / "serve").iterdir()) == ["lock"], "no socket stays"
    assert find_owner(home) is None
    os.close(take_lock(home, None))
