"""Doctor's lines from facts; `INFO` holds what Docker 20.10.24 on Debian 12 answers."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import docker
import pytest

from sandbox import capabilities as c
from sandbox.config import ContainerSettings, DiskSettings, ProfileSettings, Settings, WorkspaceSettings
from sandbox.engine.connection import DockerEngine
from sandbox.engine.endpoint import Endpoint
from sandbox.engine.guest_group import GuestGroup
from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.disk_usage import FreeSpace
from sandbox.models import ImageInfo, Limits, Probe, ProbeLevel
from sandbox.policy.container import ContainerPolicy, UserIds
from sandbox.store.home import Home
from sandbox.store.quarantine import QuarantineNotes

OK, WARN, FAIL = ProbeLevel.OK, ProbeLevel.WARN, ProbeLevel.FAIL
POLICY = ContainerPolicy()
DOWN = SandboxError(ErrorCode.ENGINE_UNAVAILABLE, "No engine", details="unix:///x: refused", hint="Start it.")
INFO: dict[str, Any] = {
    "CgroupVersion": "1",
    "MemoryLimit": True,
    "SwapLimit": True,
    "CpuCfsQuota": True,
    "CPUShares": True,
    "CPUSet": True,
    "PidsLimit": True,
    "Driver": "overlay2",
    "Runtimes": {"io.containerd.runc.v2": {"path": "runc"}, "runc": {"path": "runc"}},
    "RuncCommit": {"ID": "1.1.5+ds1-1+deb12u1", "Expected": "1.1.5+ds1-1+deb12u1"},
    "InitBinary": "docker-init",
    "SecurityOptions": ["name=seccomp,profile=default"],
    "NCPU": 2,
    "MemTotal": 25276502016,
    "DockerRootDir": "/var/lib/docker",
}


class FakeApi(docker.APIClient):
    """Answers `info` only."""

    def __init__(self, answer: dict[str, Any] | Exception) -> None:
        self._answer = answer

    def info(self) -> dict[str, Any]:
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


def engine(answer: dict[str, Any] | Exception = INFO, url: str = "unix:///run/docker.sock") -> DockerEngine:
    return DockerEngine(FakeApi(answer), Endpoint(url, "DOCKER_HOST"), "20.10.24")


def by_name(probes: tuple[Probe, ...]) -> dict[str, Probe]:
    return {probe.name: probe for probe in probes}


def run(answer: DockerEngine | SandboxError, home: Path, settings: Settings | None = None) -> dict[str, Probe]:
    return by_name(c.probe_host(answer, settings or Settings(), home, policy=POLICY, git_version="git version 2.50.1"))


def test_lines_of_a_working_host(tmp_path: Path) -> None:
    probes = run(engine(), tmp_path / "not" / "yet")
    expected = "engine cgroup limits storage runtime runc seccomp lsm userns init memory cpus"
    rest = ["disk: home", "disk: engine", "guest uid", "git", "openat2", "worktrees", "guest disk"]
    rest += ["open files", "python"]
    assert list(probes) == [*expected.split(), *rest]
    assert probes["engine"].value == "20.10.24 at unix:///run/docker.sock (DOCKER_HOST)"
    assert {name for name, probe in probes.items() if probe.level is FAIL} <= {"disk: home", "disk: engine"}


def test_without_an_engine_its_line_fails_and_the_others_are_unknown(tmp_path: Path) -> None:
    probes = run(DOWN, tmp_path)
    assert probes["engine"] == Probe(name="engine", level=FAIL, value="unix:///x: refused", hint="Start it.")
    unknown = [probe for probe in probes.values() if probe.value == "unknown"]
    assert len(unknown) == 12
    assert {probe.level for probe in unknown} == {WARN}


def test_engine_that_stops_answering_is_one_that_does_not_answer(tmp_path: Path) -> None:
    probes = run(engine(OSError("gone")), tmp_path)
    assert probes["engine"].level is FAIL
    assert probes["cgroup"].value == "unknown"


def test_empty_answer_raises_nothing(tmp_path: Path) -> None:
    assert run(engine({}), tmp_path)["runtime"].level is FAIL


def test_whatever_is_not_ok_says_what_to_do(tmp_path: Path) -> None:
    for answer in (engine({}), engine(), DOWN):
        probes = run(answer, tmp_path).values()
        assert all(probe.hint for probe in probes if probe.level is not OK)


def test_the_disk_of_the_engine_is_where_its_images_are(tmp_path: Path) -> None:
    classic = {"DockerRootDir": "/srv/docker", "DriverStatus": [["Backing Filesystem", "extfs"]]}
    containerd = {"DockerRootDir": "/srv/docker", "DriverStatus": [["driver-type", "io.containerd.snapshotter.v1"]]}
    rootless = {**containerd, "SecurityOptions": ["name=rootless"]}
    assert c.choose_engine_root(containerd, tmp_path) == tmp_path
    others: list[tuple[dict[str, Any], Path]] = [
        (classic, tmp_path),
        (rootless, tmp_path),
        (containerd, tmp_path / "none"),
        ({"DriverStatus": None}, tmp_path),
    ]
    roots = [str(c.choose_engine_root(info, folder)) for info, folder in others]
    assert roots == ["/srv/docker", "/srv/docker", "/srv/docker", "/var/lib/docker"]


def test_remote_engine_is_a_warning() -> None:
    assert c.engine_probe(engine(url="tcp://build:2376"), INFO).level is WARN


@pytest.mark.parametrize(("version", "level"), [("1", WARN), ("2", OK), ("", WARN)])
def test_cgroup(version: str, level: ProbeLevel) -> None:
    assert c.cgroup_probe({"CgroupVersion": version}).level is level


@pytest.mark.parametrize(
    ("most", "cpus", "level"),
    [(None, 2, WARN), (2_466_170, 1, WARN), (4_194_304, 2, OK), (4_194_304, 3, WARN), (2**63 - 1, 256, OK)],
)
def test_open_files_of_the_host_are_enough_for_some_checks(most: int | None, cpus: int, level: ProbeLevel) -> None:
    """A check that names no limits may open 512 x 4,096."""
    assert c.open_files_probe(most, Limits(), cpus).level is level


@pytest.mark.parametrize(("may", "said"), [(True, "limits of their own"), (False, "only watched")])
def test_version_1_of_control_groups_does_not_count_network_buffers(may: bool, said: str) -> None:
    assert said in c.cgroup_probe({"CgroupVersion": "1"}, limits_sockets=may).hint
    assert "buffers" not in c.cgroup_probe({"CgroupVersion": "2"}, limits_sockets=may).hint


@pytest.mark.parametrize("name", ["MemoryLimit", "SwapLimit", "CpuCfsQuota", "CPUShares", "PidsLimit"])
def test_missing_limit_fails_by_name(name: str) -> None:
    probe = c.limits_probe({**INFO, name: False})
    assert probe.level is FAIL
    assert name in probe.value


def test_an_engine_without_cpusets_can_be_used() -> None:
    assert c.limits_probe({**INFO, "CPUSet": False}).level is WARN


@pytest.mark.parametrize(
    ("delegated", "level", "said"),
    [
        ("cpu cpuset io memory pids", OK, ""),
        ("cpu memory pids", WARN, "guests see all CPUs and reports lack the bytes written"),
        ("cpu cpuset memory pids", WARN, "Works, but reports lack the bytes written."),
    ],
)
def test_what_root_did_not_delegate_to_a_rootless_engine(delegated: str, level: ProbeLevel, said: str) -> None:
    probe = c.cgroup_probe({"CgroupVersion": "2"}, frozenset(delegated.split()))
    assert (probe.level, said in probe.hint) == (level, True)
    assert ("delegate.conf" in probe.hint) == bool(said)


@pytest.mark.parametrize(("driver", "level"), [("overlay2", OK), ("btrfs", OK), ("vfs", WARN), ("", WARN)])
def test_storage(driver: str, level: ProbeLevel) -> None:
    assert c.storage_probe({"Driver": driver}).level is level


@pytest.mark.parametrize(("configured", "level"), [("runc", OK), ("runsc", FAIL), ("kata", FAIL)])
def test_configured_runtime_must_be_allowed_and_present(configured: str, level: ProbeLevel) -> None:
    settings = Settings(container=ContainerSettings(runtime=configured))
    assert c.runtime_probe(INFO, settings, POLICY).level is level


def test_podman_is_said_how_it_gets_another_runtime() -> None:
    podman = {"BuildahVersion": "1.43.1", "Runtimes": {"crun": {"path": "/usr/bin/crun"}}}
    probe = c.runtime_probe(podman, Settings(), POLICY)
    assert (probe.level, probe.value) == (FAIL, "runc (of crun)")
    assert "containers.conf" in probe.hint
    assert "containers.conf" not in c.runtime_probe({"Runtimes": {"crun": {}}}, Settings(), POLICY).hint


@pytest.mark.parametrize(("runtime", "level"), [("", OK), ("runc", OK), ("runsc", WARN), ("kata", WARN)])
def test_a_profiles_runtime_must_be_there_as_well(runtime: str, level: ProbeLevel) -> None:
    settings = Settings(profiles={"make": ProfileSettings(runtime=runtime)})
    probe = c.runtime_probe(INFO, settings, POLICY)
    assert probe.level is level
    assert (f"profiles.make.runtime = {runtime}" in probe.hint) is (level is WARN)


def test_a_container_that_was_given_up_is_named(tmp_path: Path) -> None:
    assert "quarantine" not in run(engine(), tmp_path)
    QuarantineNotes(tmp_path / "quarantine").add("sandbox-x", "", "silence")
    probe = run(engine(), tmp_path)["quarantine"]
    assert (probe.level, probe.value) == (WARN, "sandbox-x")


def test_settings_choose_the_runtime(tmp_path: Path) -> None:
    settings = Settings(container=ContainerSettings(runtime="runsc"))
    assert by_name(c.engine_probes(INFO, settings, POLICY, tmp_path))["runtime"].level is FAIL


RUNC = [
    ("1.1.5+ds1-1+deb12u1", WARN),
    ("1.1.12-0ubuntu2", WARN),
    ("v1.2.5-0-g59923ef", FAIL),
    ("v1.2.7", FAIL),
    ("v1.2.8-0-geeb7e602", OK),
    ("v1.2.10", OK),
    ("v1.3.2", FAIL),
    ("v1.3.3-0-gd842d771", OK),
    ("v1.4.0", OK),
    ("v1.4.0-rc.1-0-gb2ec7f92", FAIL),
    ("v1.4.0-rc.2-0-gd7e30c9a", FAIL),
    ("v1.4.0-rc.3-0-gd7e30c9a", OK),
    ("v1.4.1", OK),
    ("v1.5.0-rc.1", OK),
    ("v1.10.0", OK),
    ("v2.0.0", OK),
    ("e6534b4", WARN),
    ("", WARN),
]


@pytest.mark.parametrize(("commit", "level"), RUNC, ids=[commit or "empty" for commit, _ in RUNC])
def test_runc_gate(commit: str, level: ProbeLevel) -> None:
    assert c.runc_probe({"RuncCommit": {"ID": commit}}, "runc").level is level


def test_runc_does_not_matter_under_another_runtime() -> None:
    assert c.runc_probe({"RuncCommit": {"ID": "v1.0.0"}}, "runsc").level is OK


def test_seccomp_missing_fails() -> None:
    assert c.seccomp_probe({"SecurityOptions": ["name=apparmor"]}).level is FAIL
    assert c.seccomp_probe(INFO).level is OK


@pytest.mark.parametrize(("option", "level"), [("name=apparmor", OK), ("name=selinux", OK), ("name=cgroupns", WARN)])
def test_lsm(option: str, level: ProbeLevel) -> None:
    assert c.lsm_probe({"SecurityOptions": [option]}).level is level


@pytest.mark.parametrize("options", [["name=rootless"], ["name=apparmor", "name=rootless"]])
def test_apparmor_of_a_rootless_engine_confines_nothing(options: list[str]) -> None:
    """Podman names what the kernel has."""
    probe = c.lsm_probe({"SecurityOptions": options})
    assert (probe.level, probe.value) == (WARN, "none")
    assert "rootless engine cannot" in probe.hint
    assert c.lsm_probe({"SecurityOptions": [*options, "name=selinux"]}).value.startswith("selinux;")


def test_selinux_that_only_records_is_a_warning_also_without_labels() -> None:
    probe = c.lsm_probe({"SecurityOptions": ["name=selinux"]}, [Path("/home/x")], records_only=True)
    assert (probe.level, probe.value) == (
        WARN,
        "selinux; in permissive mode, which denies no access; 1 paths of the home have no label for guests",
    )
    assert probe.hint.index("SELINUX=enforcing") < probe.hint.index("chcon -R -t container_file_t /home/x")
    assert "chcon" not in c.lsm_probe({"SecurityOptions": ["name=selinux"]}, records_only=True).hint
    assert c.lsm_probe({"SecurityOptions": ["name=apparmor"]}, records_only=True).level is OK


def test_a_home_without_labels_fails_where_the_engine_confines_by_selinux(tmp_path: Path) -> None:
    Home(tmp_path).prepare()  # by a kernel without SELinux
    confining, settings = {**INFO, "SecurityOptions": ["name=seccomp", "name=selinux"]}, Settings()
    probe = by_name(c.engine_probes(confining, settings, POLICY, tmp_path))["lsm"]
    assert probe.level is FAIL
    assert f"chcon -R -t container_file_t {tmp_path}/repositories/pristine" in probe.hint
    apparmor = {**INFO, "SecurityOptions": ["name=apparmor"]}
    assert by_name(c.engine_probes(apparmor, settings, POLICY, tmp_path))["lsm"].level is OK


@pytest.mark.parametrize(
    ("option", "users", "level", "said"),
    [
        ("name=userns", UserIds(), FAIL, "maps the users of guests to ids from 100000"),
        ("name=userns", UserIds(first=133_000, count=100, mapped=True), OK, "their 0 is 100000 of this host"),
        ("name=rootless", UserIds(), OK, "guests are you (uid 1000)"),
        ("name=rootless", UserIds(mapped=True), FAIL, "The engine is rootless"),
        ("name=seccomp", UserIds(), OK, "guests have the uids of this host"),
    ],
)
def test_an_engine_that_maps_users_needs_a_policy_that_knows_it(
    option: str, users: UserIds, level: ProbeLevel, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    info = {"SecurityOptions": [option], "DockerRootDir": "/var/lib/docker/100000.100000"}
    probe = c.userns_probe(info, users)
    assert (probe.level, said in probe.value, bool(probe.hint)) == (level, True, level is FAIL)


def test_init_memory_and_cpus() -> None:
    assert c.init_probe({}).level is FAIL
    assert c.memory_probe({"MemTotal": 2 * 1024**3}).level is WARN
    assert c.memory_probe(INFO).value == "23.5 GiB"
    assert c.cpus_probe({"NCPU": 1}).level is WARN
    assert c.cpus_probe(INFO).level is OK


@pytest.mark.parametrize(
    ("present", "stale", "level"), [(True, False, OK), (True, True, WARN), (False, False, WARN)], ids=str
)
def test_images(present: bool, stale: bool, level: ProbeLevel) -> None:
    image = ImageInfo(name="base", tag="space-sandbox/base:latest", present=present, stale=stale)
    (probe,) = c.image_probes((image,))
    assert (probe.name, probe.level) == ("image: base", level)
    assert level is OK or "sandbox images build base" in probe.hint


def test_image_whose_folder_is_broken_names_the_folder_and_no_build() -> None:
    image = ImageInfo(name="acme", tag="", present=False, stale=False, problem="it starts from 'gone'")
    (probe,) = c.image_probes((image,))
    assert (probe.level, probe.value) == (WARN, "it starts from 'gone'")
    assert "images/acme/" in probe.hint
    assert "images build" not in probe.hint


def test_stale_variant_names_the_command_that_makes_variants() -> None:
    image = ImageInfo(name="python-acme", tag="x", present=True, stale=True, variant_of="python")
    (probe,) = c.image_probes((image,))
    assert "sandbox images build python --wheelhouse FILE --as python-acme" in probe.hint


@pytest.mark.parametrize(
    ("free_gib", "floor_gib", "level"), [(1, 2, FAIL), (3, 2, WARN), (3, 4, FAIL), (1, 0, WARN), (100, 2, OK)]
)
def test_the_disk_fails_below_the_configured_floor(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, free_gib: int, floor_gib: int, level: ProbeLevel
) -> None:
    leave_free(monkeypatch, free_gib, None)
    settings = Settings(disk=DiskSettings(min_free_bytes=floor_gib * 1024**3))
    for name in ("disk: home", "disk: engine"):
        probe = run(engine(INFO | {"DockerRootDir": str(tmp_path)}), tmp_path / "home", settings)[name]
        assert probe.level is level, name
        assert level is not FAIL or f"{floor_gib} GiB" in probe.hint


@pytest.mark.parametrize(("free", "level"), [(9_999, FAIL), (10_000, OK), (None, OK)])
def test_the_home_also_needs_room_for_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, free: int | None, level: ProbeLevel
) -> None:
    """Control: of the engine's disk no setting speaks."""
    leave_free(monkeypatch, 100, free)
    probes = run(engine(INFO | {"DockerRootDir": str(tmp_path)}), tmp_path / "home")
    assert (probes["disk: home"].level, probes["disk: engine"].level) == (level, OK)
    assert level is OK or "disk.min_free_files" in probes["disk: home"].hint
    assert level is OK or "and 9,999 files free" in probes["disk: home"].value


def leave_free(monkeypatch: pytest.MonkeyPatch, free_gib: int, free_files: int | None) -> None:
    monkeypatch.setattr(FreeSpace, "of", lambda _: FreeSpace(0, 0, free_gib * 1024**3, free_files))


def test_disk_that_cannot_be_asked_is_unknown(tmp_path: Path) -> None:
    assert c.disk_probe("disk", tmp_path / "missing", 0).value == "unknown: No such file or directory"
    assert c.disk_probe("disk", None, 0).level is WARN
    assert c.disk_probe("disk: home", tmp_path, 0, 0, 64 * 2**20).value.endswith(
        "; 64 MiB of it are reserved for closing and gc"
    )


@pytest.mark.parametrize(("kind", "level"), [("ext4", OK), ("tmpfs", WARN), ("ramfs", WARN), ("", OK)])
def test_a_home_in_memory_is_a_warning(kind: str, level: ProbeLevel) -> None:
    space = Probe(name="disk: home", level=OK, value="30 GiB free at /tmp")
    found = c.home_disk_probe(space, kind)
    assert found.level is level
    assert (found == space) is (level is OK)


def test_a_full_home_in_memory_still_fails() -> None:
    space = Probe(name="disk: home", level=FAIL, value="1 GiB free at /tmp", hint="Free at least 5 GiB.")
    assert c.home_disk_probe(space, "tmpfs") == space


def test_guest_uid() -> None:
    value = "66000 to 97999, one for each task and clean room"
    assert c.uid_probe(0, POLICY, [range(0, 1000), range(100_000, 165_536)]) == Probe(
        name="guest uid", level=OK, value=value
    )
    for rootless, said in ((False, "run the controller as root"), (True, "an engine and a controller that are root")):
        found = c.uid_probe(1000, POLICY, [], rootless=rootless)
        assert (found.level, said in found.hint) == (WARN, True)


def test_a_range_of_uids_that_the_host_has_given_away_fails() -> None:
    subordinate = range(65_536, 97_900)
    found = c.uid_probe(0, POLICY, [subordinate])
    assert (found.level, "100 of them may be used" in found.value) == (FAIL, True)
    assert c.uid_probe(0, POLICY, [range(65_536, 90_000)]).level is OK


def test_ids_that_cannot_be_recorded_fail() -> None:
    found = c.uid_probe(0, POLICY, [], "/var cannot be written")
    assert (found.level, "container.users_folder" in found.hint) == (FAIL, True)


GIT = [
    ("git version 2.39.5", "1:2.39.5-0+deb12u3", OK),
    ("git version 2.39.5", "1:2.39.5-0+deb12u2", WARN),
    ("git version 2.39.5", "", WARN),
    ("git version 2.39.4", "1:2.39.5-0+deb12u3", WARN),  # another git comes first on PATH
    ("git version 2.43.0", "1:2.43.0-1ubuntu7.1", WARN),
    ("git version 2.43.7", "", OK),
    ("git version 2.44.3", "", WARN),
    ("git version 2.50.0", "", WARN),
    ("git version 2.50.1 (Apple Git-155)", "", OK),
    ("git version 2.55.GIT", "", OK),
    ("git version 3.0.0", "", OK),
    ("", "", FAIL),
]


@pytest.mark.parametrize(("line", "package", "level"), GIT, ids=[f"{line} {package}" for line, package, _ in GIT])
def test_git_gate(line: str, package: str, level: ProbeLevel) -> None:
    assert c.git_probe(line, package).level is level


def test_a_configured_git_is_named_and_is_not_debians() -> None:
    patched, path = "1:2.39.5-0+deb12u3", "/opt/git"
    assert c.git_probe("git version 2.55.0", patched, path) == Probe(name="git", level=OK, value="2.55.0 at /opt/git")
    assert c.git_probe("git version 2.39.5", patched, path).level is WARN
    assert c.git_probe("git version 2.39.5", patched, "/usr/bin/git").level is OK
    assert c.git_probe("", patched, path).level is FAIL
    assert "git.executable" in c.git_probe("", patched, path).hint


def test_a12_trust_in_every_directory_is_a_warning() -> None:
    assert (c.safe_directory_probe(True).level, c.safe_directory_probe(False).level) == (WARN, OK)


def test_debian_package_version_is_read_from_its_own_stanza(tmp_path: Path) -> None:
    status = tmp_path / "status"
    status.write_text("Package: git-man\nVersion: 1:1\n\nPackage: git\nStatus: ok\nVersion: 1:2.39.5-0+deb12u3\n\n")
    assert c._read_debian_version("git", status) == "1:2.39.5-0+deb12u3"
    assert c._read_debian_version("vim", status) == ""
    assert c._read_debian_version("git", tmp_path / "missing") == ""


def test_openat2() -> None:
    assert c.openat2_works()
    assert c.openat2_probe(False, "5.4.0").level is FAIL
    assert c.openat2_probe(True, "6.1.0").level is OK


@pytest.mark.parametrize(("minor", "level"), [("10", FAIL), ("11", OK), ("15", OK)])
def test_python(minor: str, level: ProbeLevel) -> None:
    assert c.python_probe(("3", minor, "1")).level is level


@pytest.mark.parametrize(
    ("wanted", "reason", "level", "value"),
    [
        ("auto", "", ProbeLevel.OK, "a file system for each task, clean room and room of a layer"),
        ("watch", "x", ProbeLevel.WARN, "watched, as configured"),
        ("auto", "mke2fs is missing", ProbeLevel.WARN, "watched (mke2fs is missing)"),
        ("image", "mke2fs is missing", ProbeLevel.FAIL, "no file systems: mke2fs is missing"),
    ],
)
def test_guest_disk(wanted: Literal["auto", "image", "watch"], reason: str, level: ProbeLevel, value: str) -> None:
    found = c.guest_disk_probe(WorkspaceSettings(disk=wanted), reason)
    assert (found.level, found.value) == (level, value)


@pytest.mark.parametrize("obstacle", ["find_disk_obstacle", "_find_overlay_obstacle"])
def test_guest_disks_need_loop_devices_and_overlays(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, obstacle: str
) -> None:
    """Control: without an obstacle each task has a file system. Only an overlay can have one."""

    def value() -> str:
        engine = SandboxError(ErrorCode.ENGINE_UNAVAILABLE, "none")
        probes = c.probe_host(engine, Settings(), tmp_path, policy=ContainerPolicy())
        return next(probe.value for probe in probes if probe.name == "guest disk")

    for name in ("find_disk_obstacle", "_find_overlay_obstacle"):
        monkeypatch.setattr(c, name, lambda *_: "")
    assert value() == "a file system for each task, clean room and room of a layer"
    monkeypatch.setattr(c, obstacle, lambda *_: "for a reason")
    assert value() == "watched (for a reason)"


@pytest.mark.parametrize(
    ("wanted", "reason", "level", "value"),
    [
        ("auto", "", ProbeLevel.OK, "overlay"),
        ("overlay", "", ProbeLevel.OK, "overlay"),
        ("plain", "Operation not permitted", ProbeLevel.OK, "plain, as configured"),
        ("auto", "Operation not permitted", ProbeLevel.WARN, "plain (Operation not permitted)"),
        ("overlay", "Operation not permitted", ProbeLevel.FAIL, "no overlays: Operation not permitted"),
    ],
)
def test_worktrees(wanted: str, reason: str, level: ProbeLevel, value: str) -> None:
    found = c.worktrees_probe(wanted, reason)
    assert (found.level, found.value) == (level, value)


GROUP = GuestGroup("/space-sandbox", 20 * 1024**3)


@pytest.mark.parametrize(
    ("group", "level", "said"),
    [
        (GROUP, OK, "20 GiB for all guests together (control group /space-sandbox)"),
        (replace(GROUP, obstacle="guests hold more"), WARN, "it could not be changed: guests hold more"),
        (GuestGroup(obstacle="/sys: Permission denied"), WARN, "all together have none: /sys: Permission denied"),
        (DOWN, WARN, "unknown"),
    ],
    ids=["in force", "another limit", "none", "no engine"],
)
def test_the_line_about_guest_memory(group: GuestGroup | SandboxError, level: ProbeLevel, said: str) -> None:
    probe = c.guest_memory_probe(group)
    assert (probe.name, probe.level) == ("guest memory", level)
    assert said in probe.value
