"""What a task requires of a worker, and how workers say what they have."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from sandbox.cluster.announcement import MAX_BYTES, decode, encode, make_class_key
from sandbox.cluster.requirements import check_requirements, find_profile_requirements, list_unmet, require_worker
from sandbox.cluster.temporal_worker import TaskOffers
from sandbox.cluster.worker_slots import WorkerSlots
from sandbox.config import Settings
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models.operations import WorkerInfo
from sandbox.models.workers import HostCapabilities
from sandbox.profiles import Profile
from tests.unit.conftest import refused

GIB = 1024**3
ABLE = HostCapabilities(
    arch="amd64", cgroup="2", cpus=8, memory_bytes=16 * GIB, runtimes=("runc", "runsc"), labels={"zone": "a"}
)
WORKER = WorkerInfo(id=f"worker-{'1' * 16}", version="1.0", slots=4, capabilities=ABLE)
OLD = WorkerInfo(id=f"worker-{'2' * 16}")


@pytest.mark.parametrize(
    ("required", "is_met"),
    [
        ("arch=amd64", True),
        ("arch=arm64", False),
        ("cgroup=2", True),
        ("cgroup=1", False),
        ("cpus=8", True),
        ("cpus=8.5", False),
        ("memory=16g", True),
        ("memory=16385MiB", False),
        ("runtime=runsc", True),
        ("runtime=kata", False),
        ("zone=a", True),
        ("zone=b", False),
        ("gpu=yes", False),
    ],
)
def test_a_worker_meets_what_it_announced(required: str, is_met: bool) -> None:
    key, value = required.split("=")
    assert list_unmet(WORKER, {key: value}) == (() if is_met else (required,))
    assert list_unmet(OLD, {key: value}) == (required,), "what an earlier version can do is unknown"


def test_the_error_says_what_no_worker_has_and_who_there_is() -> None:
    other = WORKER.model_copy(
        update={"id": f"worker-{'3' * 16}", "capabilities": ABLE.model_copy(update={"arch": "arm64", "labels": {}})}
    )
    with pytest.raises(SandboxError, match=r"(?m)No worker has gpu=yes$") as caught:
        require_worker((WORKER, OLD), {"gpu": "yes", "arch": "amd64"})
    assert f"{WORKER.id} lacks gpu=yes. It has arch=amd64" in caught.value.details
    assert f"{OLD.id} lacks arch=amd64, gpu=yes. It has not announced it" in caught.value.details
    with pytest.raises(SandboxError, match="No worker has all of arch=arm64, zone=a"):
        require_worker((WORKER, other), {"zone": "a", "arch": "arm64"})
    with pytest.raises(SandboxError, match="No worker has zone=a") as caught:
        require_worker((), {"zone": "a"})
    assert (caught.value.reason, caught.value.details) == ("requirements_unmet", "The cluster has no workers.")
    require_worker((other, WORKER), {"zone": "a"})
    require_worker((), {})


@pytest.mark.parametrize("wrong", [{"memory": "much"}, {"cgroup": "3"}, {"cpus": "-1"}, {"Zone": "a"}, {"zone": ""}])
def test_what_can_be_no_requirement_is_refused(wrong: dict[str, str]) -> None:
    with refused(ErrorCode.INVALID_INPUT):
        check_requirements(wrong)


def test_an_announcement_is_read_back_also_from_a_newer_version() -> None:
    assert decode(encode(WORKER)) == WORKER
    assert decode(encode(OLD)) == OLD
    newer = encode(WORKER).replace('{"', '{"later":1,"', 1).replace('"arch"', '"more":2,"arch"')
    assert decode(newer) == WORKER
    assert [decode(text) for text in ("", "1234@host", f"{WORKER.id} [", f"{WORKER.id} []", f"{WORKER.id} 1")] == [
        None
    ] * 5
    assert make_class_key(ABLE) != make_class_key(ABLE.model_copy(update={"labels": {}}))
    wide = WORKER.model_copy(
        update={"capabilities": ABLE.model_copy(update={"labels": {f"n{i}": "v" * 63 for i in range(16)}})}
    )
    with pytest.raises(SandboxError, match="too long") as caught:
        encode(wide)
    assert str(MAX_BYTES) in caught.value.details


def test_a_profile_requires_its_runtime_and_more_memory_than_usual() -> None:
    settings = Settings.model_validate(
        {
            "profiles": {"big": {"runtime": "runsc", "require": {"gpu": "yes", "zone": "a"}}},
            "repositories": {"github.com-a-b": {"require": {"zone": "b"}}},
        }
    )
    check = {"id": "test", "label": "Test", "argv": ["true"]}
    limited = {**check, "limits": {"memory_bytes": 8 * GIB}}
    big, small = (
        Profile.model_validate({"name": name, "label": name, "image": "base", "check": [one]})
        for name, one in (("big", limited), ("small", check))
    )
    assert find_profile_requirements(settings, big, "github.com-a-b") == {
        "memory": str(8 * GIB), "runtime": "runsc", "gpu": "yes", "zone": "b",
    }  # fmt: skip
    assert find_profile_requirements(settings, small, "other") == {}
    assert find_profile_requirements(settings, None, "") == {}


def test_labels_come_from_a_variable_too_and_have_no_name_of_a_capability() -> None:
    assert Settings.model_validate({"cluster": {"labels": "zone=a, gpu=yes"}}).cluster.labels == {
        "zone": "a",
        "gpu": "yes",
    }
    for wrong in ("arch=arm64", "zone", "zone=a,zone=b"):
        with pytest.raises(ValueError, match=r"label|NAME=VALUE|twice"):
            Settings.model_validate({"cluster": {"labels": wrong}})


def test_a_worker_refuses_an_offer_that_it_cannot_meet_whatever_queue_it_came_from() -> None:
    """An offer over the queue of a repository is not of the worker's class."""

    async def offer() -> None:
        worker: Any = None
        offers = TaskOffers(worker, WorkerSlots(1), WORKER, "repository", lambda _: None)
        await offers.offer([], {"zone": "a", "gpu": "yes"})

    with pytest.raises(ApplicationError, match="This worker lacks gpu=yes"):
        asyncio.run(offer())


@pytest.mark.parametrize(
    "said",
    [
        "[" * 970,
        '{"slots":1' + "0" * 900 + "}",
        '{"version":"1\\u001b[2J"}',
        '{"version":"' + "9" * 200 + '"}',
        '{"capabilities":{"arch":"\\u202earm64","cpus":1,"memory_bytes":1}}',
        '{"capabilities":{"arch":"amd64","cpus":1' + "0" * 400 + ',"memory_bytes":1}}',
        '{"capabilities":{"arch":"amd64","cpus":1,"memory_bytes":1' + "0" * 400 + "}}",
        '{"capabilities":{"arch":"amd64","cpus":1,"memory_bytes":1,"runtimes":["runc\\nrunsc"]}}',
        '{"capabilities":{"arch":"amd64","cpus":1,"memory_bytes":1,"labels":{"zone":"a\\u200b"}}}',
        '{"capabilities":{"arch":"amd64","cpus":1,"memory_bytes":1,"labels":{"arch":"arm64"}}}',
    ],
    ids=[
        "nested", "slots", "escape", "long version", "hidden letter", "cpus", "memory", "two lines", "label", "name",
    ],
)  # fmt: skip
def test_s140_what_no_worker_says_is_no_announcement(said: str) -> None:
    """Any process that reaches the server can read the queue under an identity of its choice."""
    assert decode(f"{WORKER.id} {said}") is None
