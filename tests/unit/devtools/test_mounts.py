from __future__ import annotations

from pathlib import Path

from devtools.mounts import MountEvents, small_file_system
from devtools.waiting import wait_until


def test_a_mount_and_its_end_are_events(tmp_path: Path) -> None:
    events = MountEvents()
    wait_until(lambda: not events.since_last_look())  # other processes of this host mount, too
    with small_file_system(tmp_path / "disk", 2**20):
        assert events.since_last_look()
    assert events.since_last_look()
