"""A mount that is not where it was asked for is noticed in the guest's own mount table."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandbox.engine import mounts
from sandbox.engine.mounts import parse_mount_devices, require_mounts
from sandbox.errors import ErrorCode, SandboxError

LINE = "{n} 1 254:0 /x {point} ro,relatime - ext4 /dev/root rw\n"
OPTIONS = {
    "HostConfig": {
        "Mounts": [
            {"Source": "/home/work tree", "Target": "/workspace"},
            {"Source": "/home/mask", "Target": "/workspace/.git"},
        ]
    }
}
HOST = "9 1 {device} / {point} rw - overlay overlay rw\n"


def table(tmp_path: Path, *points: str) -> Path:
    (tmp_path / "7").mkdir(parents=True)
    text = "".join(LINE.format(n=n, point=point) for n, point in enumerate(("/", *points)))
    (tmp_path / "7" / "mountinfo").write_text(text)
    return tmp_path


def test_mounts_at_their_places_are_accepted(tmp_path: Path) -> None:
    require_mounts(7, OPTIONS, table(tmp_path, "/workspace", "/workspace/.git"))


@pytest.mark.parametrize("where", ["/workspace/decoy", "/workspace/.git2", "/workspace/sub/.git"])
def test_a_mask_that_landed_elsewhere_is_refused(tmp_path: Path, where: str) -> None:
    with pytest.raises(SandboxError, match=r"lacks /workspace/\.git") as caught:
        require_mounts(7, OPTIONS, table(tmp_path, "/workspace", where))

    assert caught.value.code is ErrorCode.POLICY_VIOLATION


def test_a_guest_that_has_ended_is_not_judged(tmp_path: Path) -> None:
    require_mounts(8, OPTIONS, tmp_path)


@pytest.mark.parametrize("point", ["/home/work\\040tree", "/home/mask"])
def test_a_file_system_that_the_engine_does_not_see_is_noticed(point: str, tmp_path: Path) -> None:
    proc = table(tmp_path, "/workspace", "/workspace/.git")
    (proc / "self").mkdir()
    (proc / "self" / "mountinfo").write_text(HOST.format(device="0:39", point=point))
    with pytest.raises(SandboxError, match="does not see") as caught:
        require_mounts(7, OPTIONS, proc)
    assert caught.value.code is ErrorCode.POLICY_VIOLATION

    (proc / "self" / "mountinfo").write_text(HOST.format(device="254:0", point=point))
    require_mounts(7, OPTIONS, proc)


def test_a_source_on_the_device_that_the_guest_shows_needs_no_table_of_the_host(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (tmp_path / "link").symlink_to(source)
    device = f"{os.major(source.stat().st_dev)}:{os.minor(source.stat().st_dev)}"
    options = {"HostConfig": {"Mounts": [{"Source": str(tmp_path / "link"), "Target": "/workspace"}]}}
    proc = table(tmp_path / "same", "/workspace")
    guest = proc / "7" / "mountinfo"
    (proc / "self").mkdir()
    (proc / "self" / "mountinfo").write_text(HOST.format(device="0:39", point=source))  # not to be read
    guest.write_text(guest.read_text().replace("254:0", device))
    require_mounts(7, options, proc)

    guest.write_text(guest.read_text().replace(device, "254:99"))
    with pytest.raises(SandboxError, match="does not see what the controller mounted for /workspace"):
        require_mounts(7, options, proc)


@pytest.mark.parametrize("name", ["work\u3000tree", "a\u00a0b", "a\u2028b", "a\x0cb", "a\rb", "a\x85b"], ids=ascii)
def test_names_with_white_space_that_the_kernel_does_not_escape_are_read_whole(name: str) -> None:
    assert parse_mount_devices(HOST.format(device="0:39", point=f"/home/{name}")) == {f"/home/{name}": "0:39"}


def test_the_comparison_follows_a_home_behind_a_link(tmp_path: Path) -> None:
    """The table names the real place. Control: the device of the guest's own table is accepted."""
    (tmp_path / "real").mkdir()
    (tmp_path / "home").symlink_to("real")
    mounts = [{"Source": str(tmp_path / "home" / "tree"), "Target": "/workspace"}]
    options = {"HostConfig": {"Mounts": mounts}}
    proc = table(tmp_path, "/workspace")
    (proc / "self").mkdir()
    (proc / "self" / "mountinfo").write_text(HOST.format(device="0:39", point=tmp_path / "real" / "tree"))
    with pytest.raises(SandboxError, match="does not see"):
        require_mounts(7, options, proc)
    (proc / "self" / "mountinfo").write_text(HOST.format(device="254:0", point=tmp_path / "real" / "tree"))
    require_mounts(7, options, proc)


GVISOR = "53 77 0:45 / / ro,relatime - tmpfs runsc-root rw,uid=65534,gid=65534\n"


def gvisor(tmp_path: Path, *points: str) -> tuple[Path, Path]:
    """A container of gVisor: its kernel (7), its gofer (8) with these mounts, and a process of the guest (9)."""
    proc = table(tmp_path, *points)
    (proc / "7").rename(proc / "8")
    for pid in ("7", "9"):
        (proc / pid).mkdir()
        (proc / pid / "mountinfo").write_text(GVISOR)
    (proc / "7" / "cgroup").write_text("8:pids:/docker/abc\n")
    group = tmp_path / "groups" / "pids" / "docker" / "abc"
    group.mkdir(parents=True)
    (group / "cgroup.procs").write_text("7\n8\n9\n")
    return proc, tmp_path / "groups"


def test_under_gvisor_the_gofers_table_counts(tmp_path: Path) -> None:
    require_mounts(7, OPTIONS, *gvisor(tmp_path, "/workspace", "/workspace/.git"))


def test_under_gvisor_a_mask_that_landed_elsewhere_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match=r"lacks /workspace/\.git"):
        require_mounts(7, OPTIONS, *gvisor(tmp_path, "/workspace", "/workspace/decoy"))


def test_a_gvisor_guest_without_a_gofer_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proc, groups = gvisor(tmp_path, "/workspace", "/workspace/.git")
    (proc / "8" / "mountinfo").unlink()
    monkeypatch.setattr(mounts, "ENDING_S", 0.1)
    with pytest.raises(SandboxError, match="lacks /workspace"):
        require_mounts(7, OPTIONS, proc, groups)


def test_a_gvisor_guest_that_is_ending_is_not_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its gofer ends first: a short guest was refused for want of mounts."""
    proc, groups = gvisor(tmp_path, "/workspace", "/workspace/.git")
    (proc / "8" / "mountinfo").unlink()
    monkeypatch.setattr("time.sleep", lambda _: (proc / "7" / "mountinfo").unlink())
    require_mounts(7, OPTIONS, proc, groups)
