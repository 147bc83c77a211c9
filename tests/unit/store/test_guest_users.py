"""A uid for each task and room: never two of one, never one that somebody has."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sandbox.errors import ErrorCode, SandboxError
from sandbox.store import guest_users
from sandbox.store.guest_users import GuestUsers, subtract_ranges
from tests.unit.conftest import refused

IDS = range(66_000, 66_008)
Make = Callable[..., GuestUsers]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def users(
        home: str = "home",
        reserved: Sequence[range] = (),
        owners: frozenset[int] = frozenset(),
        running: frozenset[int] = frozenset(),
        ids: range = IDS,
    ) -> GuestUsers:
        (tmp_path / home).mkdir(exist_ok=True)
        looks = (lambda: tuple(reserved), lambda: owners, lambda: running)
        return GuestUsers(tmp_path / "users", ids, tmp_path / home, *looks)

    return users


def test_each_has_its_own_also_in_another_home(make: Make) -> None:
    one, two = make("one"), make("two")
    assert [one.lease("a", synced=False), two.lease("b", synced=True), one.lease("c", synced=False)] == [*IDS][:3]
    assert [(lease.uid, lease.owner) for lease in one.list_leases()] == [(66_000, "a"), (66_002, "c")]


def test_a_controller_that_was_stopped_with_the_lock_stops_no_other_for_good(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make().lease("a", synced=False)
    monkeypatch.setattr(guest_users, "_WAIT_S", 0.1)
    with (tmp_path / "users" / ".lock").open("r+") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with refused(ErrorCode.TIMEOUT) as caught:
            make().lease("b", synced=False)
    assert "lslocks" in caught.value.hint
    assert make().lease("c", synced=False) == 66_001  # control: the lock is free


def test_one_that_was_returned_comes_back_last(make: Make) -> None:
    users = make()
    users.release(users.lease("a", synced=False))
    assert [users.lease(str(i), synced=False) for i in range(8)] == [*range(66_001, 66_008), 66_000]


def test_none_that_the_host_has_given_away_or_a_process_has(make: Make) -> None:
    """Control: without accounts and processes these are the first."""
    users = make(reserved=[range(0, 66_002), range(66_003, 66_004)], owners=frozenset({66_002}))
    assert [users.lease(str(i), synced=False) for i in range(4)] == [66_004, 66_005, 66_006, 66_007]
    assert make(ids=range(66_100, 66_101)).lease("a", synced=False) == 66_100


def test_one_that_was_given_out_before_is_looked_for_in_every_process(make: Make) -> None:
    """A PID 1 of ours is shown as root's. Control: before that, the quick look is enough."""
    users = make(running=frozenset({66_000, 66_003, 66_006}))
    for uid in IDS:
        assert users.lease("a", synced=False) == uid
        users.release(uid)
    assert [users.lease("b", synced=False) for _ in range(5)] == [66_001, 66_002, 66_004, 66_005, 66_007]
    with pytest.raises(SandboxError):
        users.lease("c", synced=False)


def test_ids_that_one_look_found_without_a_process_need_no_other(tmp_path: Path) -> None:
    """The slow look takes 70 us for each process. Control: the first round needs none."""
    looks: list[str] = []

    def look() -> frozenset[int]:
        looks.append("slow")
        return frozenset()

    users = GuestUsers(tmp_path / "users", IDS, tmp_path, lambda: (), frozenset, look)
    for number in range(3):
        for uid in IDS:
            assert users.lease("a", synced=False) == uid
            users.release(uid)
        assert len(looks) == number


@pytest.mark.parametrize("content", [None, b"", b"65999 66007", b"x y"], ids=["lost", "empty", "of another", "damaged"])
@pytest.mark.parametrize("is_last_lost", [False, True])
def test_without_knowing_which_were_given_out_each_is_looked_for(
    make: Make, tmp_path: Path, content: bytes | None, is_last_lost: bool
) -> None:
    """Control: as long as it is known the quick look is enough."""
    users = make(running=frozenset({66_001, 66_004, 66_006}))
    assert [users.lease("a", synced=False) for _ in range(3)] == [66_000, 66_001, 66_002]
    known = tmp_path / "users" / ".known"
    known.unlink() if content is None else known.write_bytes(content)
    if is_last_lost:
        (tmp_path / "users" / ".last").unlink()
    assert [users.lease("b", synced=False) for _ in range(3)] == [66_003, 66_005, 66_007]


def test_one_that_a_moved_home_brought_is_looked_for(make: Make) -> None:
    """Control: without it the next one is found by the quick look."""
    users = make(running=frozenset({66_001, 66_003}))
    users.adopt(66_003, "task")
    users.release(66_003)
    assert [users.lease("a", synced=False) for _ in range(4)] == [66_000, 66_001, 66_002, 66_004]


def test_without_a_free_one_it_says_what_to_do(make: Make) -> None:
    users = make(ids=range(66_000, 66_001))
    users.lease("a", synced=False)
    with pytest.raises(SandboxError) as caught:
        users.lease("b", synced=False)
    assert caught.value.code is ErrorCode.QUOTA_EXCEEDED
    assert "66000 to 66000" in caught.value.brief
    assert "sandbox gc" in caught.value.hint


def test_only_the_home_that_leased_it_returns_it(make: Make) -> None:
    uid = make("one").lease("a", synced=False)
    make("two").release(uid)
    assert [lease.uid for lease in make("one").list_leases()] == [uid]
    make("one").release(uid)
    assert make("one").list_leases() == []


def test_one_that_two_homes_have_is_free_when_both_have_returned_it(make: Make) -> None:
    """A home was copied with its tasks. Control: of one home alone it is free at once."""
    one, two = make("one"), make("two")
    uid = one.lease("task", synced=False)
    two.adopt(uid, "task")
    two.adopt(uid, "task")
    assert [lease.home for lease in one.list_all()] == [str(two.home), str(one.home)]
    two.release(uid)
    for number in range(7):
        assert two.lease(f"new-{number}", synced=False) != uid
    with pytest.raises(SandboxError):
        two.lease("void: there is another one", synced=False)
    one.release(uid)
    assert two.lease("new", synced=False) == uid


@pytest.mark.parametrize("use", ["adopt", "release", "list_leases"])
def test_a_lease_that_cannot_be_read_is_not_none(make: Make, use: str) -> None:
    """Another home's would be replaced: two homes with one uid. Control: when it can be read again, both have it."""
    one, two = make("one"), make("two")
    uid = one.lease("task", synced=False)
    read = Path.read_bytes

    def fail(path: Path) -> bytes:
        if path.name == str(uid):
            raise OSError(errno.EIO, "I/O error")
        return read(path)

    uses = {
        "adopt": lambda: two.adopt(uid, "task"),
        "release": lambda: one.release(uid),
        "list_leases": lambda: two.list_leases(),
    }
    with pytest.MonkeyPatch.context() as disk:
        disk.setattr(Path, "read_bytes", fail)
        with refused(ErrorCode.INTERNAL) as caught:
            uses[use]()
    assert str(uid) in caught.value.details
    assert [lease.home for lease in one.list_all()] == [str(one.home)]
    two.adopt(uid, "task")
    assert [lease.home for lease in one.list_all()] == [str(two.home), str(one.home)]


def test_ids_of_a_home_that_cannot_be_seen_are_not_free(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a server of files that does not answer."""
    one, two = make("one"), make("two")
    uid = one.lease("task", synced=False)
    stat = Path.stat

    def fail(path: Path, **options: bool) -> os.stat_result:
        if path == one.home:
            raise OSError(errno.EIO, "I/O error")
        return stat(path, **options)

    with monkeypatch.context() as disk:
        disk.setattr(Path, "stat", fail)
        with pytest.raises(OSError, match="I/O error"):
            two.release_of_missing_homes()
    assert [lease.uid for lease in one.list_leases()] == [uid]


def test_ids_of_a_home_that_is_gone_are_free_again(make: Make, tmp_path: Path) -> None:
    make("one").lease("a", synced=False)
    kept = make("two").lease("b", synced=False)
    (tmp_path / "one").rmdir()
    assert make("two").release_of_missing_homes() == [66_000]
    assert [lease.uid for lease in make("two").list_all()] == [kept]


def test_a_home_that_was_moved_records_its_users(make: Make, tmp_path: Path) -> None:
    uid = make("one").lease("task-x", synced=True)
    (tmp_path / "one").rename(tmp_path / "moved")
    make("moved").adopt(uid, "task-x")
    make("moved").adopt(64_000, "task-old")  # outside of the range: no lease
    assert [(lease.uid, lease.owner) for lease in make("moved").list_leases()] == [(uid, "task-x")]
    assert make("two").lease("b", synced=False) != uid


def test_many_at_once_never_get_the_same(make: Make) -> None:
    users = make(ids=range(66_000, 66_064))
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda i: make(ids=users.ids).lease(str(i), synced=False), range(40)))
    assert len(set(found)) == 40


def test_a_folder_that_cannot_be_made_is_an_error_that_names_the_setting(make: Make, tmp_path: Path) -> None:
    (tmp_path / "users").write_text("a file")
    with pytest.raises(SandboxError) as caught:
        make().lease("a", synced=False)
    assert caught.value.code is ErrorCode.INTERNAL
    assert "container.users_folder" in caught.value.hint


AS_ANOTHER_USER = """
import os, sys
from pathlib import Path
from sandbox.store import guest_users
from sandbox.store.guest_users import GuestUsers
users = GuestUsers(Path(sys.argv[1]), range(10, 20), Path("/"))
if os.geteuid() == 0:
    os.setresuid(1, 1, 1)
print(users.release_of_missing_homes(), users.list_leases())
"""


def test_another_user_has_no_ids_in_a_folder_of_root(make: Make, tmp_path: Path) -> None:
    """It may not read them (seen: the attacks of `doctor` ended with a traceback for each user but root)."""
    folder = make("one").folder
    make("one").lease("task", synced=False)
    folder.chmod(0)
    argv = [sys.executable, "-c", AS_ANOTHER_USER, str(folder)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[] []\n", "")


@pytest.mark.parametrize(
    ("taken", "left"),
    [
        ([], [range(10, 20)]),
        ([range(0, 100)], []),
        ([range(12, 14), range(13, 15)], [range(10, 12), range(15, 20)]),
        ([range(5, 11), range(19, 30)], [range(11, 19)]),
        ([range(20, 30), range(0, 10)], [range(10, 20)]),
    ],
)
def test_parts_of_a_range(taken: list[range], left: list[range]) -> None:
    assert list(subtract_ranges(range(10, 20), taken)) == left
