"""What the kernel's table of mounts says about a directory."""

from __future__ import annotations

from pathlib import Path

from sandbox.files.mount_points import find_file_system_type, list_mounts_below

LINE = "36 35 98:0 / {point} rw,noatime shared:1 - {kind} none rw\n"


def test_the_type_is_that_of_the_last_mount_at_the_nearest_mount_point(tmp_path: Path) -> None:
    home = tmp_path / "in memory" / "home"
    home.mkdir(parents=True)
    (tmp_path / "link").symlink_to(home)
    table = tmp_path / "mountinfo"
    mounts = {
        "/": "ext4",
        str(tmp_path): "xfs",
        str(home.parent).replace(" ", r"\040"): "ext4",
        f"{tmp_path}/other": "btrfs",
    }
    lines = [LINE.format(point=point, kind=kind) for point, kind in mounts.items()]
    table.write_text("".join([*lines, lines[2].replace("ext4", "tmpfs")]))
    assert find_file_system_type(home, table) == find_file_system_type(tmp_path / "link", table) == "tmpfs"
    assert find_file_system_type(tmp_path, table) == "xfs"
    assert find_file_system_type(Path("/"), table) == "ext4"


def test_mounts_at_and_below_a_directory_are_listed_the_last_one_first(tmp_path: Path) -> None:
    home = tmp_path / "a home"
    points = [tmp_path, home, f"{home}s", home / "b", tmp_path / "other", home / "b"]
    table = tmp_path / "mountinfo"
    table.write_text("".join(LINE.format(point=str(p).replace(" ", r"\040"), kind="ext4") for p in points))
    assert list_mounts_below(home, table) == [home / "b", home / "b", home]


def test_it_is_empty_without_a_mount() -> None:
    assert find_file_system_type(Path("/"), Path("/dev/null")) == ""


def test_it_is_read_from_this_host() -> None:
    assert find_file_system_type(Path("/proc/self")) == "proc"
