"""Ids that this host has given to somebody."""

from __future__ import annotations

import os
from pathlib import Path

from sandbox.store.host_ids import (
    parse_accounts,
    parse_subordinate_ids,
    read_ids_of_processes,
    read_owners_of_processes,
    read_reserved_ids,
)


def test_ids_of_accounts_and_subordinate_ranges(tmp_path: Path) -> None:
    (tmp_path / "passwd").write_text("root:x:0:0::/root:/bin/sh\nann:x:66001:66002:A:/home/ann:/bin/sh\n")
    (tmp_path / "group").write_text("root:x:0:\nstaff:x:66005:ann\n")
    (tmp_path / "subuid").write_text("ann:100000:65536\n")
    found = read_reserved_ids(tmp_path)
    assert set(found) == {range(0, 1), range(66001, 66002), range(66005, 66006), range(100_000, 165_536)}
    assert set(found) - set(read_reserved_ids(tmp_path, subordinate=False)) == {range(100_000, 165_536)}


def test_other_lines_are_skipped() -> None:
    assert list(parse_accounts(["", "# x", "a:x", "b:x:not a number:1", "+::::::"])) == []
    assert list(parse_subordinate_ids(["", "ann:x:1", "ann:5"])) == []


def test_processes_have_the_ids_of_their_status(tmp_path: Path) -> None:
    (tmp_path / "12").mkdir()
    (tmp_path / "12" / "status").write_text("Name:\tx\nUid:\t5\t6\t7\t8\nGid:\t9\t9\t9\t9\n")
    (tmp_path / "13").mkdir()  # it has just ended
    (tmp_path / "self").mkdir()
    assert read_ids_of_processes(tmp_path) == {5, 6, 7, 8, 9}
    assert os.geteuid() in read_ids_of_processes()
    assert read_owners_of_processes(tmp_path) == {os.geteuid()}
    assert os.geteuid() in read_owners_of_processes()
