"""THREATS S114: a guest leaves artifacts that are links, devices, huge, or have names that lead elsewhere.

Control: a careless collector, who globs and copies, gives out the host's file.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from devtools.mounts import small_file_system
from sandbox.errors import ErrorCode
from sandbox.files.disk_usage import FreeSpace
from sandbox.files.tree import WorktreeFiles
from sandbox.models import ArtifactList, ArtifactRule, Check
from sandbox.store.home import Home
from sandbox.workbench import Workbench
from sandbox.workbench.checks import collected_artifacts, run
from sandbox.workbench.checks.collected_artifacts import Admission
from sandbox.workbench.controller.disk_admission import RECORD_DEMAND, Writer
from tests.unit.conftest import refused

pytestmark = [pytest.mark.must, pytest.mark.one_git]

OWNER, RUN = "local-victim", "run-" + "0" * 32
SECRET = b"a secret of the host"
MIB = 1024**2
DISK, FLOOR = 32 * MIB, 12 * MIB


class Room:
    """What a guest left, and the home of its controller."""

    def __init__(self, root: Path, home: Path | None = None) -> None:
        self.home = Home(home or root / "home")
        self.home.prepare()
        self.home.logs(OWNER).mkdir()
        (self.home.logs(OWNER) / f"{RUN}.stdout").touch()
        self.workspace = root / "workspace"
        (self.workspace / "dist").mkdir(parents=True)
        self.secret = root / "secret"
        self.secret.write_bytes(SECRET)

    def collect(self, *patterns: str, cwd: str = ".", admit: Admission = lambda _size: nullcontext()) -> ArtifactList:
        with WorktreeFiles(self.workspace) as files:
            check = self.check(*patterns, cwd=cwd)
            return collected_artifacts.collect_artifacts(self.home, OWNER, RUN, check, files, admit)

    def check(self, *patterns: str, cwd: str = ".") -> Check:
        rules = tuple(ArtifactRule(path=pattern) for pattern in patterns or ("dist/*",))
        return Check(id="build", label="build", argv=("true",), cwd=cwd, artifacts=rules)

    def get(self, path: str) -> bytes:
        return b"".join(collected_artifacts.read_artifact(self.home, RUN, path))

    def stored(self) -> list[bytes]:
        return [path.read_bytes() for path in self.home.artifacts.glob("*")] if self.home.artifacts.exists() else []


@pytest.fixture
def room(tmp_path: Path) -> Room:
    return Room(tmp_path)


def reasons(found: ArtifactList) -> dict[str, str]:
    return {each.path: each.reason for each in found.refused}


@pytest.fixture
def small_home(tmp_path: Path) -> Iterator[Path]:
    """A home on a file system of its own, of `DISK` bytes."""
    with small_file_system(tmp_path / "disk", DISK) as disk:
        yield disk / "home"


def test_s114_links_and_special_files_are_not_followed(room: Room, tmp_path: Path) -> None:
    dist = room.workspace / "dist"
    (dist / "app").write_bytes(b"fine")
    (dist / "link").symlink_to(room.secret)
    (dist / "folder").symlink_to(tmp_path)
    os.mkfifo(dist / "fifo")
    os.mknod(dist / "device", 0o600 | 0o020000, os.makedev(1, 5))  # /dev/zero: it never ends
    shutil.copy(dist / "link", tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == SECRET, "void"

    found = room.collect("dist/**")

    assert [each.path for each in found.artifacts] == ["dist/app"]
    assert reasons(found) == dict.fromkeys(("dist/link", "dist/folder", "dist/fifo", "dist/device"), "special")
    assert room.stored() == [b"fine"]


def test_s114_a_hard_link_of_another_users_file_is_not_read(room: Room) -> None:
    os.chown(room.workspace, 64000, 64000)
    os.chown(room.workspace / "dist", 64000, 64000)
    os.link(room.secret, room.workspace / "dist" / "app")
    found = room.collect()
    assert (found.artifacts, reasons(found), room.stored()) == ((), {"dist/app": "special"}, [])


def test_s114_a_directory_that_is_a_link_leads_nowhere(room: Room, tmp_path: Path) -> None:
    (room.workspace / "dist").rmdir()
    (room.workspace / "dist").symlink_to(tmp_path)
    assert (room.workspace / "dist" / "secret").read_bytes() == SECRET, "void"
    assert room.collect("dist/secret").artifacts == ()


def test_s114_huge_and_many_files_are_bounded_and_named(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collected_artifacts, "MOST_FILES", 5)
    with (room.workspace / "dist" / "huge").open("wb") as file:
        file.truncate(1024**4)  # sparse: it costs the guest nothing
    for number in range(10):
        (room.workspace / "dist" / f"{number}").write_bytes(b"%d" % number)
    found = room.collect()
    assert [each.path for each in found.artifacts] == [f"dist/{number}" for number in range(5)]
    assert set(reasons(found).values()) == {"too-many"}
    (room.workspace / "dist" / "huge").rename(room.workspace / "dist" / "0huge")
    assert reasons(room.collect("dist/0*")) == {"dist/0huge": "too-large"}


def test_s114_a_file_that_grows_while_it_is_read_is_cut_off(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collected_artifacts, "MOST_BYTES_OF_RUN", 10)
    (room.workspace / "dist" / "app").write_bytes(b"0123456789")
    assert [each.size for each in room.collect().artifacts] == [10]
    (room.workspace / "dist" / "app").write_bytes(b"0123456789a")
    assert reasons(room.collect()) == {"dist/app": "too-large"}


@pytest.mark.parametrize("name", [b"\x1b[2J", b"a\nb", b".git", b"\xff"])
def test_s114_a_name_is_data(room: Room, name: bytes) -> None:
    """It names no file on the host, and one that is unsafe to show is not kept."""
    (room.workspace / "dist" / os.fsdecode(name)).write_bytes(b"x")
    found = room.collect()
    assert all(each.path.isprintable() for each in found.artifacts)
    assert {path.name for path in room.home.artifacts.glob("*")} <= {each.sha256[7:] for each in found.artifacts}


def test_s114_a_path_that_a_caller_names_is_one_of_the_list(room: Room) -> None:
    (room.workspace / "dist" / "app").write_bytes(b"fine")
    room.collect()
    assert room.get("dist/app") == b"fine"
    for path in ("../secret", "/etc/passwd", "dist/../dist/app", str(room.secret)):
        with refused(ErrorCode.NOT_FOUND):
            room.get(path)


def test_s114_a_stored_content_that_was_changed_is_not_given_out(room: Room) -> None:
    """As is one that took the name of another."""
    (room.workspace / "dist" / "app").write_bytes(b"fine" * 1_000_000)
    (room.workspace / "dist" / "other").write_bytes(b"other")
    found = {each.path: room.home.artifacts / each.sha256[7:] for each in room.collect().artifacts}
    found["dist/app"].write_bytes(b"evil" * 1_000_000)
    found["dist/other"].unlink()
    with refused(ErrorCode.INTERNAL):
        room.get("dist/app")
    with refused(ErrorCode.NOT_FOUND):
        room.get("dist/other")


@pytest.mark.parametrize("floor", [FLOOR, 0])
def test_s114_artifacts_leave_the_floor_of_the_disk_free(small_home: Path, tmp_path: Path, floor: int) -> None:
    """Control: without a floor they take all of it. Either way there is a list that says what was not kept."""
    room = Room(tmp_path, small_home)
    for number in range(20):
        (room.workspace / "dist" / f"{number:02}").write_bytes(os.urandom(2 * MIB))
    (room.workspace / "dist" / "last").write_bytes(b"small")
    settings = {"disk": {"min_free_bytes": floor, "min_free_files": 0, "reserve_bytes": 0, "reserve_files": 0}}
    with Workbench(small_home, environ={"PATH": os.environ["PATH"]}, settings=settings) as bench:
        with bench._services.disk.admit(Writer.CHECK, RECORD_DEMAND):  # as `run_one`
            run._collect_artifacts(bench._services, OWNER, RUN, room.check(), room.workspace)
        found = collected_artifacts.list_artifacts(room.home, RUN)
    assert {each.reason for each in found.refused} == {"disk"}
    assert len(found.artifacts) + len(found.refused) == 21
    assert sum(path.stat().st_size for path in room.home.artifacts.glob("*")) == sum(a.size for a in found.artifacts)
    free = FreeSpace.of(small_home).free_bytes
    assert (free > floor - MIB) if floor else (free < 2 * MIB)
    assert found.artifacts[-1].path == "dist/last"


def test_s114_rules_are_relative_to_the_directory_of_the_check(room: Room) -> None:
    (room.workspace / "api" / "dist").mkdir(parents=True)
    (room.workspace / "api" / "dist" / "app").write_bytes(b"api")
    (room.workspace / "dist" / "app").write_bytes(b"top")
    found = room.collect("dist/app", cwd="api")
    assert [each.path for each in found.artifacts] == ["api/dist/app"]
    assert room.get("api/dist/app") == b"api"
