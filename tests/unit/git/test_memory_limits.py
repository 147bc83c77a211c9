"""The limit on the memory of a process that was just started."""

from __future__ import annotations

import subprocess
import sys

import pytest

_PROGRAM = """
import os, sys, time
from sandbox.git import memory_limits
memory_limits._EXEC_S = float(sys.argv[1])
large = bytearray(100 << 20)
reads, writes = os.pipe()
child = os.fork()
if not child:
    os.read(reads, 1)
    os.execv("/bin/sleep", ["sleep", "60"])
late = os.fork()
if not late:
    time.sleep(0.3)
    os.write(writes, b"x")
    os._exit(0)
print(memory_limits.limit_memory(child, 32 << 20))
os.kill(child, 9)
"""


@pytest.mark.parametrize(("patience_s", "within"), [(60, True), (0, False)], ids=["waits", "the control"])
def test_a_process_on_its_way_to_git_does_not_count_with_our_memory(patience_s: int, *, within: bool) -> None:
    """Seen on a slow machine: a command of git was refused, as it had the memory of a daemon of 158 MiB."""
    argv = [sys.executable, "-c", _PROGRAM, str(patience_s)]
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=True)
    assert ended.stdout.split() == [str(within)]
