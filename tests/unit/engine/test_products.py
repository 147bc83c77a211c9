"""Which product answers, and what Podman 4.3.1 says of itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sandbox.engine.dialects import find_dialect
from sandbox.engine.docker_api import DockerApi
from sandbox.engine.endpoint import Endpoint
from sandbox.engine.guest_group import read_group_host
from sandbox.engine.products import (
    Product,
    complete_podman_info,
    find_product,
    find_unsupported_product,
    is_podman,
    list_bindable_cpus,
)
from sandbox.engine.user_maps import find_first_ids
from sandbox.errors import ErrorCode, SandboxError
from sandbox.policy.container import UserIds

DATA = Path(__file__).parents[2] / "data" / "podman-4.3.1"
VERSION: dict[str, Any] = json.loads((DATA / "version.json").read_text())
INFO: dict[str, Any] = json.loads((DATA / "info.json").read_text())
DOCKER: dict[str, Any] = {"Version": "26.1.5", "Components": [{"Name": "Engine", "Version": "26.1.5"}]}


def of_podman(version: str) -> dict[str, Any]:
    return {"Version": version, "Components": [{"Name": "Podman Engine", "Version": version}]}


def test_podman_names_itself() -> None:
    assert (find_product(VERSION), find_product(DOCKER), find_product({})) == (
        Product.PODMAN,
        Product.DOCKER,
        Product.DOCKER,
    )
    assert (is_podman(INFO), is_podman({"ServerVersion": "26.1.5"})) == (True, False)


@pytest.mark.parametrize("version", ["3.4.4", "4.2.1", "4", "", "unknown"])
def test_a_podman_that_is_too_old_or_says_no_version_is_refused(version: str) -> None:
    assert find_unsupported_product(of_podman(version), is_local=True).startswith("Podman")


@pytest.mark.parametrize("version", ["4.3.1", "4.10.0", "5.4.2", "10.0"])
def test_a_newer_one_is_supported_on_this_host_alone(version: str) -> None:
    assert find_unsupported_product(of_podman(version), is_local=True) == ""
    assert find_unsupported_product(of_podman(version), is_local=False) == f"Podman {version}"


def test_docker_is_never_refused_by_name() -> None:
    assert find_unsupported_product(DOCKER, is_local=False) == ""


def test_only_runtimes_that_are_there_are_listed_and_runc_has_its_packages_version() -> None:
    raw = {**INFO, "Runtimes": {"runc": {"path": "/usr/bin/runc"}, "kata": {"path": "/usr/bin/kata-runtime"}}}
    info = complete_podman_info(raw, VERSION, {"/usr/bin/runc"}.__contains__)
    assert (list(info["Runtimes"]), info["RuncCommit"]["ID"]) == (["runc"], "1.1.5+ds1-1+deb12u1")
    plain = {
        "Name": "OCI Runtime (runc)",
        "Version": "runc version 1.3.3\ncommit: x",
        "Details": {"Package": "runc-1.3"},
    }
    assert complete_podman_info(raw, {"Components": [plain]}, bool)["RuncCommit"]["ID"] == "1.3.3"
    crun = {"Name": "OCI Runtime (crun)", "Version": "crun version 1.8"}
    assert complete_podman_info(raw, {"Components": [crun]}, bool)["RuncCommit"]["ID"] == ""


@pytest.mark.parametrize(
    ("said", "controllers", "limits"),
    [
        ({"CgroupVersion": "2"}, ["cpuset", "cpu", "io", "memory", "pids"], (True, True, True)),
        ({"CgroupVersion": "2"}, ["cpu", "memory", "pids"], (True, True, False)),
        ({"CgroupVersion": "2"}, [], (False, False, False)),
        ({"CgroupVersion": "1"}, [], (False, False, False)),  # as it says
        ({"CgroupVersion": "2", "Rootless": True}, ["cpu", "memory", "pids"], (True, True, False)),
    ],
)
def test_limits_of_podman_on_control_groups_of_version_2_are_those_of_the_kernel(
    said: dict[str, Any], controllers: list[str], limits: tuple[bool, ...]
) -> None:
    """5.4.2 on Debian 13 said that it had none of these, and enforced all."""
    none = dict.fromkeys(("SwapLimit", "CpuCfsQuota", "CPUShares", "CPUSet"), False)
    info = complete_podman_info({**INFO, **none, **said}, VERSION, bool, controllers)
    assert tuple(info[name] for name in ("SwapLimit", "CpuCfsQuota", "CPUSet")) == limits


@pytest.mark.parametrize(
    ("said", "effective", "cpus"),
    [
        ({"CPUSet": True, "NCPU": 4}, "0-3\n", (0, 1, 2, 3)),
        ({"NCPU": 4}, "4-7", (4, 5, 6, 7)),
        ({"NCPU": 3}, "0,2-3", (0, 2, 3)),
        ({"CPUSet": False, "NCPU": 4}, "0-3", ()),
        ({"NCPU": 4}, "0-7", ()),
        ({"NCPU": 4}, "", ()),
        ({}, "0-3", ()),
    ],
    ids=["all", "a-range", "one-offline", "engine-cannot", "engine-has-fewer", "unknown", "not-said"],
)
def test_guests_are_bound_to_cpus_that_their_engine_has(
    said: dict[str, Any], effective: str, cpus: tuple[int, ...]
) -> None:
    """A rootless Docker 26.1 without `cpuset` creates a container without the CPUs that were asked for. One in 4 to 7
    of 8 refuses others: "Requested CPUs are not available".
    """
    assert list_bindable_cpus(said, effective) == cpus


@pytest.mark.parametrize("default", ["crun", "runc"])
def test_podman_has_one_runtime_that_its_api_can_give_guests(default: str) -> None:
    info = complete_podman_info({**INFO, "DefaultRuntime": default}, VERSION, bool)
    assert list(info["Runtimes"]) == [default]
    absent = complete_podman_info({**INFO, "DefaultRuntime": default}, VERSION, {"/usr/bin/kata-runtime"}.__contains__)
    assert list(absent["Runtimes"]) == []


ROOTLESS = {
    "5.4.2": {"SecurityOptions": ["name=seccomp", "name=rootless"], "Rootless": True},
    "4.3.1": {"Rootless": True},
}


@pytest.mark.parametrize("said", ROOTLESS.values(), ids=ROOTLESS)
@pytest.mark.parametrize(
    ("version", "delegated"), [("1", ("memory", "cpu", "pids")), ("2", ("memory", "pids")), ("2", ())]
)
def test_s15_a_rootless_podman_without_limits_is_refused_by_name(
    said: dict[str, Any], version: str, delegated: tuple[str, ...]
) -> None:
    """With groups of version 1 it says that it has all limits, and runs guests without any (seen: 4.3.1). Control: with
    what systemd delegates to a user's engine its guests are that user.
    """
    asked = {**INFO, **said, "CgroupVersion": version, "MemoryLimit": True, "CpuCfsQuota": True, "PidsLimit": True}
    info = complete_podman_info(asked, VERSION, bool, delegated if version == "2" else ())
    with pytest.raises(SandboxError, match="rootless and cannot limit guests") as caught:
        find_first_ids(info, UserIds(), (1000, 1000))
    assert caught.value.code is ErrorCode.ENGINE_UNAVAILABLE

    info = complete_podman_info({**asked, "CgroupVersion": "2"}, VERSION, bool, ("memory", "cpu", "pids"))
    assert find_first_ids(info, UserIds(), (1000, 1000)) == (1000, 1000)
    assert not info["CPUSet"]


def test_guests_outside_of_our_group_are_looked_for_where_podman_puts_them() -> None:
    host = read_group_host({**INFO, "CgroupDriver": "systemd", "CgroupVersion": "2"})
    assert host is not None
    assert host.default_parent == "machine.slice"


def test_names_and_variables_that_podman_adds_are_taken_away() -> None:
    podman = find_dialect(DockerApi(None, Endpoint("unix:///x", "test"), "Podman 4.3.1", product=Product.PODMAN))  # type: ignore[arg-type]
    docker = find_dialect(DockerApi(None, Endpoint("unix:///x", "test"), "26.1.5"))  # type: ignore[arg-type]
    tags = ("localhost/space-sandbox/base:latest", "docker.io/library/debian:bookworm", "ghcr.io/owner/name:1")
    assert [podman.plain_tag(tag) for tag in tags] == ["space-sandbox/base:latest", "debian:bookworm", tags[2]]
    assert [docker.plain_tag(tag) for tag in tags] == list(tags)
    env = ["PATH=/bin", "container=podman", "HOSTNAME=sandbox"]
    assert (podman.remove_own_variables(env), docker.remove_own_variables(env)) == (["PATH=/bin"], env)
