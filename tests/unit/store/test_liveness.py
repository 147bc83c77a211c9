"""Who is at work in a home is told by locks, which die with their process, and never by a process id."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox.store.home import write_atomically
from sandbox.store.liveness import DeadController, LiveController, list_dead_controllers, list_live_nonces, owner_of
from sandbox.store.lockfile import create_locked, is_abandoned, remove_abandoned

DIE = "import os, signal, sys\nfrom pathlib import Path\n{0}\nos.kill(os.getpid(), signal.SIGKILL)\n"


def killed(code: str, *arguments: object) -> None:
    """Run Python code in a process that ends itself with SIGKILL."""
    argv = [sys.executable, "-c", DIE.format(code), *map(str, arguments)]
    done = subprocess.run(argv, check=False, timeout=120, env={**os.environ, "PYTHONPATH": str(Path.cwd())})
    assert done.returncode == -signal.SIGKILL


@pytest.mark.slow
def test_a_killed_controller_is_absent_and_a_living_one_is_not(tmp_path: Path) -> None:
    ours = LiveController(tmp_path)
    code = "from sandbox.store.liveness import LiveController\np = LiveController(Path(sys.argv[1]))\np.note_engine()"
    killed(code, tmp_path)

    assert list_live_nonces(tmp_path) == {ours.nonce}
    (dead,) = list_dead_controllers(tmp_path)
    assert dead.nonce != ours.nonce
    assert dead.used_engine
    assert dead.remove()
    assert not dead.remove()
    assert list_dead_controllers(tmp_path) == []
    ours.end()
    assert list(tmp_path.iterdir()) == []


def test_a_living_controller_cannot_be_forgotten(tmp_path: Path) -> None:
    ours = LiveController(tmp_path)
    (path,) = tmp_path.iterdir()
    assert not DeadController(path, ours.nonce).remove()
    assert path.exists()
    ours.end()


def test_a_forked_child_does_not_end_its_parent(tmp_path: Path) -> None:
    ours = LiveController(tmp_path)
    if (child := os.fork()) == 0:
        ours.end()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert list_live_nonces(tmp_path) == {ours.nonce}
    ours.end()
    ours.end()
    assert list(tmp_path.iterdir()) == []


def test_a_controller_that_was_dropped_leaves_no_file_and_no_descriptor(tmp_path: Path) -> None:
    descriptors = Path("/proc/self/fd")
    before = len(list(descriptors.iterdir()))
    LiveController(tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert len(list(descriptors.iterdir())) == before


def test_names_carry_their_owner(tmp_path: Path) -> None:
    ours = LiveController(tmp_path)
    for name in (f"room-{ours.new_id()}", f"run-{ours.new_id()}", f"sandbox-map-{ours.new_id()}"):
        assert owner_of(name) == ours.nonce
        assert owner_of(f"{name}.layers") == ours.nonce
    assert owner_of("task-12345678-1234-4123-8123-123456789abc") is None
    assert owner_of("room-x") is None
    ours.end()


def test_other_files_in_the_folder_are_nobody(tmp_path: Path) -> None:
    for name in ("README", "12-abc", ".12-0123456789ab.0123456789ab.tmp"):
        (tmp_path / name).touch()
    assert list_live_nonces(tmp_path) == set()
    assert list_dead_controllers(tmp_path) == []
    assert list_live_nonces(tmp_path / "missing") == set()


def test_a_claimed_file_is_not_swept_and_an_abandoned_one_is(tmp_path: Path) -> None:
    fd, beside = create_locked(tmp_path / "name")
    assert not is_abandoned(beside)
    assert not remove_abandoned(beside)
    os.close(fd)
    assert is_abandoned(beside)
    assert remove_abandoned(beside)
    assert not remove_abandoned(beside)


def test_a_file_swept_before_it_was_claimed_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between its making and its lock a file looks abandoned: whoever sweeps it there does no harm."""
    real = fcntl.flock
    swept: list[Path] = []

    def late(fd: int, how: int) -> None:
        if not swept:
            swept.append(Path(f"/proc/self/fd/{fd}").readlink())
            swept[0].unlink()
        real(fd, how)

    monkeypatch.setattr("sandbox.store.lockfile.fcntl.flock", late)
    write_atomically(tmp_path / "file", b"content")
    assert swept
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("file", b"content")]


@pytest.mark.slow
def test_a_temporary_file_of_a_killed_writer_is_abandoned(tmp_path: Path) -> None:
    code = "from sandbox.store.lockfile import create_locked\ncreate_locked(Path(sys.argv[1]))"
    killed(code, tmp_path / "record.json")
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(".record.json.")
    assert remove_abandoned(left)
