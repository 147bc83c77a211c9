"""The check of leftovers finds what it is for, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from devtools.requirement import unavailable
from devtools.still_used import wait_until_unused

SLEEP = [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()"]


def sleeping(*words: str, cwd: Path | None = None) -> subprocess.Popen[bytes]:
    started = subprocess.Popen([*SLEEP, *words], cwd=cwd, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert started.stdout is not None
    started.stdout.readline()
    return started


def test_a_process_with_a_path_below_and_one_that_works_there_are_named(tmp_path: Path) -> None:
    beside = tmp_path.with_name(f"{tmp_path.name}0")
    for words, cwd in (((str(tmp_path / "home"),), None), ((), tmp_path)):
        with sleeping(*words, cwd=cwd) as started:
            (found,) = wait_until_unused(tmp_path, 0)
            assert found.startswith(f"process {started.pid} ")
            assert wait_until_unused(beside, 0) == []
            started.kill()
    assert wait_until_unused(tmp_path, 5) == []


def test_a_loop_device_is_named(tmp_path: Path) -> None:
    image = tmp_path / "image"
    image.write_bytes(bytes(1 << 20))
    made = subprocess.run(["losetup", "--find", "--show", image], check=False, capture_output=True, text=True)
    if made.returncode:
        unavailable(f"no loop device can be made: {made.stderr}")
    try:
        (found,) = wait_until_unused(tmp_path, 0)
        assert found == f"loop device {Path(made.stdout.strip()).name} of {image}"
    finally:
        subprocess.run(["losetup", "--detach", made.stdout.strip()], check=True)
    assert wait_until_unused(tmp_path, 5) == []
