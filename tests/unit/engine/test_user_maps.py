"""The host's ids of the guests' 0, by what an engine says of itself and what the container policy gives guests."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from sandbox.engine.user_maps import find_first_ids, require_known_users, require_no_host_root
from sandbox.errors import ErrorCode, SandboxError
from sandbox.policy.container import UserIds, read_operator_container_policy
from tests.unit.test_capabilities import INFO, engine

ORDINARY = UserIds()
MAPPED = UserIds(first=133_000, count=32_000, mapped=True)
ROOT = "/var/lib/docker/100000.100000"


def of(*security: str, root: str = ROOT) -> dict[str, Any]:
    return {**INFO, "SecurityOptions": [*INFO["SecurityOptions"], *security], "DockerRootDir": root}


@pytest.mark.parametrize(
    ("info", "users", "first"),
    [
        (INFO, ORDINARY, 0),
        ({}, ORDINARY, 0),
        ({"SecurityOptions": None}, ORDINARY, 0),
        (of("name=apparmor", "name=cgroupns"), ORDINARY, 0),
        (of("profile=name=userns"), ORDINARY, 0),
        (of("name=userns"), MAPPED, 100_000),
        (of("name=userns", root=ROOT + "/"), MAPPED, 100_000),
        (of("name=userns"), UserIds(first=100_001, count=65_535, mapped=True), 100_000),
    ],
)
def test_the_first_id(info: dict[str, Any], users: UserIds, first: int) -> None:
    assert find_first_ids(info, users, (1000, 1001)) == (first, first)


def test_the_root_of_a_rootless_engine_is_the_controllers_user() -> None:
    assert find_first_ids(of("name=rootless", root="/home/me"), ORDINARY, (1000, 1001)) == (1000, 1001)


ME, ROOT_USER = (1000, 1000), (0, 0)


@pytest.mark.parametrize(
    ("info", "users", "own", "said"),
    [
        (of("name=rootless"), ORDINARY, ROOT_USER, "this controller is root"),
        (of("name=rootless", "name=userns"), MAPPED, ME, "the container policy says that it has userns-remap"),
        ({**of("name=rootless"), "MemoryLimit": False, "PidsLimit": False}, ORDINARY, ME, "for memory, pids"),
    ],
)
def test_a_rootless_engine_that_cannot_be_used_is_refused(
    info: dict[str, Any], users: UserIds, own: tuple[int, int], said: str
) -> None:
    with pytest.raises(SandboxError) as caught:
        find_first_ids(info, users, own)
    assert (caught.value.code, bool(caught.value.hint)) == (ErrorCode.ENGINE_UNAVAILABLE, True)
    assert said in caught.value.brief


@pytest.mark.parametrize(
    ("info", "users", "hint"),
    [
        (of("name=userns"), ORDINARY, "`users = { mapped = true, first = 133000, count = 32000 }`"),
        (of("name=userns"), UserIds(first=133_000, count=100), "mapped = true"),
        (of("name=userns"), UserIds(first=100_000, count=100, mapped=True), "first = 133000"),  # the guests' root
        (of("name=userns"), UserIds(first=100_001, count=65_536, mapped=True), "first = 133000"),  # beyond the range
        (of("name=userns"), UserIds(first=66_000, count=100, mapped=True), "first = 133000"),
        (of("name=userns", root="/var/lib/docker/231072.100000"), MAPPED, "/etc/subuid and /etc/subgid"),
        (of("name=userns", root="/var/lib/docker"), MAPPED, "/etc/subuid and /etc/subgid"),
        (INFO, MAPPED, "Remove `mapped`"),
    ],
)
def test_what_cannot_be_used_is_refused_with_the_remedy(info: dict[str, Any], users: UserIds, hint: str) -> None:
    with pytest.raises(SandboxError) as caught:
        require_known_users(engine(info), users)
    assert (caught.value.code, hint in caught.value.hint) == (ErrorCode.ENGINE_UNAVAILABLE, True), caught.value.hint


def test_the_line_of_the_remedy_can_be_pasted_above_the_tables_of_a_policy(tmp_path: Path) -> None:
    with pytest.raises(SandboxError) as caught:
        find_first_ids(of("name=userns"), ORDINARY, (0, 0))
    path = tmp_path / "container.toml"
    path.write_text(caught.value.hint.split("`")[1] + "\n[ceiling]\ncpus = 2.0\n")
    own = read_operator_container_policy(path)
    assert (UserIds.model_validate(own["users"]), own["ceiling"]) == (MAPPED, {"cpus": 2.0})


def test_the_facts_of_an_engine_that_can_be_used_are_returned() -> None:
    assert require_known_users(engine(of("name=userns")), MAPPED)["DockerRootDir"] == ROOT


IDS = "Name:\tsandbox-init\nUid:\t{0}\t{0}\t{0}\t{0}\nGid:\t{1}\t{1}\t{1}\t{1}\nGroups:\t0\n"


@pytest.mark.parametrize(
    ("user", "status", "stopped"),
    [
        ("0:0", IDS.format(1000, 1000), False),
        ("0:0", IDS.format(0, 1000), True),
        ("0:0", IDS.format(1000, 0), True),
        ("0:0", "Name:\tx\n", True),  # an answer that says nothing
        ("0:0", None, False),  # it has ended
        ("66000:66000", IDS.format(0, 0), False),  # PID 1 itself says that it is 66000
    ],
)
def test_a_guest_that_is_root_of_the_host_is_stopped(
    user: str, status: str | None, stopped: bool, tmp_path: Path
) -> None:
    if status is not None:
        (tmp_path / "7").mkdir()
        (tmp_path / "7" / "status").write_text(status)
    with pytest.raises(SandboxError, match="root of this host") if stopped else nullcontext():
        require_no_host_root(7, {"User": user}, tmp_path)
