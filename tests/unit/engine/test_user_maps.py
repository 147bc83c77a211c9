"""The host's id of the guests' 0, by what an engine says of itself and what the container policy gives guests."""

from __future__ import annotations

from typing import Any

import pytest

from sandbox.engine.user_maps import find_first_id, require_known_users
from sandbox.errors import ErrorCode, SandboxError
from sandbox.policy.container import UserIds
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
    assert find_first_id(info, users) == first


@pytest.mark.parametrize(
    ("info", "users", "hint"),
    [
        (of("name=rootless", "name=cgroupns"), ORDINARY, "Rootless engines are not supported yet"),
        (of("name=rootless", "name=userns"), MAPPED, "Rootless engines are not supported yet"),
        (of("name=userns"), ORDINARY, "[users] mapped = true, first = 133000, count = 32000"),
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


def test_the_facts_of_an_engine_that_can_be_used_are_returned() -> None:
    assert require_known_users(engine(of("name=userns")), MAPPED)["DockerRootDir"] == ROOT
