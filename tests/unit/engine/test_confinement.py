"""What kernels with AppArmor and with SELinux show of a guest (Debian 13 with Docker 26.1; Fedora's documentation)."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.engine.confinement import find_confinement_faults, require_confinement
from sandbox.errors import ErrorCode, SandboxError

DOCKER = {"AppArmorProfile": "docker-default", "ProcessLabel": ""}
CONTEXT = "system_u:system_r:container_t:s0:c12,c345"
FEDORA = {"AppArmorProfile": "", "ProcessLabel": CONTEXT}


@pytest.mark.parametrize(
    ("inspected", "apparmor", "selinux"),
    [
        (DOCKER, "docker-default (enforce)\n", ""),
        ({"AppArmorProfile": "containers-default-0.62.2"}, "containers-default-0.62.2 (enforce)\n", ""),
        (FEDORA, "", f"{CONTEXT}\0"),
        ({}, "unconfined\n", ""),  # an engine that promises nothing: doctor warns
        ({"AppArmorProfile": "", "ProcessLabel": ""}, "", ""),
    ],
)
def test_what_the_engine_says_and_the_kernel_confirms_is_no_fault(
    inspected: dict[str, str], apparmor: str, selinux: str
) -> None:
    assert find_confinement_faults(inspected, apparmor, selinux) == []


@pytest.mark.parametrize(
    ("inspected", "apparmor", "selinux"),
    [
        (DOCKER, "unconfined\n", ""),
        (DOCKER, "docker-default (complain)\n", ""),
        (DOCKER, "another (enforce)\n", ""),
        (DOCKER, "", ""),  # a kernel without AppArmor
        (FEDORA, "", "unconfined_u:unconfined_r:unconfined_t:s0"),
        (FEDORA, "", CONTEXT.replace("c345", "c346")),
        (FEDORA, "", ""),
    ],
)
def test_s132_a_confinement_that_is_only_said_is_a_fault(
    inspected: dict[str, str], apparmor: str, selinux: str
) -> None:
    assert len(find_confinement_faults(inspected, apparmor, selinux)) == 1


def make_process(proc: Path, current: str, apparmor: str = "") -> None:
    folder = proc / "7" / "attr"
    (folder / "apparmor").mkdir(parents=True)
    (folder / "current").write_text(current)
    if apparmor:
        (folder / "apparmor" / "current").write_text(apparmor)


def test_s132_a_guest_whose_profile_is_not_in_force_is_stopped(tmp_path: Path) -> None:
    make_process(tmp_path, "docker-default (complain)\n")
    with pytest.raises(SandboxError, match="complain") as caught:
        require_confinement(7, DOCKER, tmp_path)
    assert caught.value.code is ErrorCode.POLICY_VIOLATION


def test_where_two_modules_are_stacked_each_has_its_own_file(tmp_path: Path) -> None:
    make_process(tmp_path, f"{CONTEXT}\0", "docker-default (enforce)\n")
    require_confinement(7, {**FEDORA, "AppArmorProfile": "docker-default"}, tmp_path)


def test_a_guest_that_has_ended_is_not_looked_at(tmp_path: Path) -> None:
    require_confinement(7, DOCKER, tmp_path)
