"""Podman behind the same adapter: a task's checks, clean rooms, limits with their verdicts, the walls as the guest's
kernel shows them, and what happens when Podman makes another container than the one that was asked for.
"""

from __future__ import annotations

import os
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from devtools.privateengine import PrivateEngine
from devtools.privatepodman import PrivatePodman
from devtools.requirement import unavailable
from sandbox import Workbench
from sandbox.attack.suites.hostile_archives import make_compressed_tar
from sandbox.engine import podman_containers
from sandbox.engine.container_types import ProbeContainer
from sandbox.engine.image_types import ImageBuild
from sandbox.engine.podman_request import build_request
from sandbox.engine.socket_api import SocketApi
from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.mount_points import unmount_below
from sandbox.images import archive_reader
from sandbox.images.archive_format import format_file
from sandbox.images.catalogue import read_lineage, recipe_digests, tag_of
from sandbox.models import Guest, ProbeLevel, Verdict
from sandbox.policy.container import ContainerPolicy
from sandbox.store.home import Home
from tests.attack.image_archive import write_archive

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("podman"), pytest.mark.usefixtures("engine")]

ABOUT_AN_IMAGE = "org.opencontainers.image"
IMAGES = ("init", "base")
WALLS = """
grep -E "^(Cap|NoNewPrivs|Seccomp:|Uid|Gid|Groups)" /proc/self/status
grep -c . /proc/net/dev
for path in /etc/no /run/no /var/tmp/no /proc/sys/kernel/hostname /dev/no; do
  ! (echo no > $path) 2> /dev/null || echo "wrote $path"
done
cat /proc/interrupts /proc/keys /proc/timer_list | wc -c
cat /proc/sys/net/ipv4/ip_unprivileged_port_start
env | grep -E "^(container|TERM|HOSTNAME)=" || echo no more variables
stat -c %U $HOME
"""
SEEN = """Uid:\t{uid}\t{uid}\t{uid}\t{uid}
Gid:\t{uid}\t{uid}\t{uid}\t{uid}
Groups:\t{uid}
CapInh:\t0000000000000000
CapPrm:\t0000000000000000
CapEff:\t0000000000000000
CapBnd:\t0000000000000000
CapAmb:\t0000000000000000
NoNewPrivs:\t1
Seccomp:\t2
3
0
1024
no more variables
sandbox
"""
CHECKS = {
    "work": "echo more >> README; touch new /report/x ~/x /tmp/x; id -u",
    "memory": "head -c 200000000 /dev/zero | tail; exit 0",
    "processes": "i=0; while [ $i -lt 100 ]; do sleep 600 & i=$((i+1)); done",
    "endless": "sleep 600",
    "time": "trap '' TERM; echo begun; sleep 600",
    "walls": WALLS.replace("\n", "\\n").replace('"', '\\"'),
    "refused": "perl -e 'exit(syscall(272, 0x10000000) == 0)'",  # unshare(CLONE_NEWUSER)
}
PROFILE = 'label = "T"\nimage = "base"\n' + "".join(
    f'[[check]]\nid = "{name}"\nlabel = "{name}"\nargv = ["sh", "-c", "{script}"]\n'
    f"timeout_s = {2 if name == 'time' else 60}\n"
    "limits = { memory_bytes = 67108864, cpus = 1.0, pids = 32 }\n"
    for name, script in CHECKS.items()
)


@pytest.fixture(scope="module")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivatePodman]:
    home = Home(tmp_path_factory.mktemp("recipes"))
    if reason := PrivatePodman.why_not():
        unavailable(reason)
    with PrivatePodman() as engine:
        engine.load(*(tag_of(name, recipe_digests(read_lineage(home, name), "")[-1]) for name in IMAGES))
        yield engine


@pytest.fixture(scope="module")
def workbench(podman: PrivatePodman, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workbench]:
    home = tmp_path_factory.mktemp("podman") / "home"
    (home / "profiles").mkdir(parents=True)
    (home / "profiles" / "generic.toml").write_text(PROFILE)
    settings = {"engine": {"host": podman.url}}
    with Workbench(home, environ={"PATH": os.environ["PATH"]}, settings=settings, allow_file=True) as found:
        yield found
    unmount_below(home)


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("remote")
    (folder / "README").write_text("text\n")
    identity = ["-c", "user.name=t", "-c", "user.email=t@localhost"]
    for argv in (["init", "-q", "-b", "main"], ["add", "-A"], [*identity, "commit", "-q", "-m", "x"]):
        subprocess.run(["git", *argv], cwd=folder, check=True, timeout=60)
    return str(folder)


@pytest.fixture(scope="module")
def task(workbench: Workbench, remote: str) -> Iterator[str]:
    made = workbench.create_task(workbench.clone(remote).repository.id)
    yield made.id
    workbench.close_task(made.id, discard=True)


def test_doctor_names_podman_and_finds_nothing_that_fails(workbench: Workbench) -> None:
    probes = {probe.name: probe for probe in workbench.doctor()}
    assert probes["engine"].value.startswith("Podman ")
    engine = ("engine", "limits", "storage", "runtime", "runc", "seccomp", "userns", "init", "files", "guest memory")
    assert [name for name in engine if probes[name].level is ProbeLevel.FAIL] == []


def test_a_directory_that_it_cannot_look_at_is_one_that_it_does_not_see(podman: PrivatePodman, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with closing(podman.connect()) as engine:
        probe = ProbeContainer("sandbox-test-sight", engine.find_any_image_digest(), {})
        assert engine.can_mount(tmp_path, probe), "the control"
        assert not engine.can_mount(tmp_path / "file" / "home", probe)


def test_a_runtime_that_is_not_podmans_default_is_refused_before_anything_is_created(
    podman: PrivatePodman, workbench: Workbench, task: str
) -> None:
    """Its API takes the name of a runtime and gives its default (seen: 4.3.1, 5.8.6)."""
    (line,) = (probe for probe in workbench.doctor() if probe.name == "runtime")
    assert (line.level, line.value) == (ProbeLevel.OK, "runc (of runc)")
    with (
        Workbench(
            workbench.home,
            environ={"PATH": os.environ["PATH"]},
            settings={"engine": {"host": podman.url}, "container": {"runtime": "runsc"}},
        ) as other,
        pytest.raises(SandboxError, match="has no runtime 'runsc'") as caught,
    ):
        other.run_checks(task, ["work"])
    assert (caught.value.code, "containers.conf" in caught.value.hint) == (ErrorCode.ENGINE_UNAVAILABLE, True)


def test_a_check_works_in_a_task_and_in_a_clean_room(
    workbench: Workbench, task: str, remote: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (first,) = workbench.run_checks(task, ["work"])
    asked: list[SocketApi] = []
    info = SocketApi.info

    def count(api: SocketApi) -> dict[str, Any]:
        asked.append(api)
        return info(api)

    with monkeypatch.context() as counting:
        counting.setattr(SocketApi, "info", count)
        workbench.run_checks(task, ["work"])
    assert len(asked) == 2, "for its runtimes, and for whether it is rootless: each takes a quarter of a second"
    (second,) = workbench.run_checks(task, ["work"])
    assert (first.verdict, second.verdict) == (Verdict.PASSED, Verdict.PASSED)
    assert first.stdout_tail == second.stdout_tail  # the task's own uid
    assert {change.path for change in workbench.status(task).changes} == {"README", "new"}
    assert workbench.guests().guests == ()  # none can be kept
    assert [run.verdict for run in workbench.run(remote, check_ids=["work"]).runs] == [Verdict.PASSED]


def test_annotations_that_describe_an_image_of_your_own_are_no_options_of_its_guest(
    podman: PrivatePodman, remote: str, tmp_path: Path
) -> None:
    """`podman build` makes images in the format of OCI, and Podman copies their annotations to config.json."""
    base = tag_of("base", recipe_digests(read_lineage(Home(tmp_path), "base"), "")[-1])
    (tmp_path / "Dockerfile").write_text(f"FROM {base}\n")
    argv = [
        "podman",
        "--remote",
        "--url",
        podman.url,
        "build",
        "--annotation",
        f"{ABOUT_AN_IMAGE}.source=https://a.invalid",
    ]
    subprocess.run([*argv, "-t", "localhost/mine:1", tmp_path], check=True, timeout=120, capture_output=True)
    home = tmp_path / "home"
    (home / "profiles").mkdir(parents=True)
    (home / "profiles" / "generic.toml").write_text(
        'label = "T"\nimage = "localhost/mine:1"\n[[check]]\nid = "go"\nlabel = "go"\nargv = ["true"]\n'
    )
    settings = {"engine": {"host": podman.url}}
    with Workbench(home, environ={"PATH": os.environ["PATH"]}, settings=settings, allow_file=True) as own:
        task = own.create_task(own.clone(remote).repository.id)
        (run,) = own.run_checks(task.id, ["go"])
        own.close_task(task.id, discard=True)
    unmount_below(home)
    assert run.verdict is Verdict.PASSED


@pytest.mark.parametrize(
    ("check", "verdict"),
    [("memory", Verdict.OOM_KILLED), ("processes", Verdict.FAILED), ("time", Verdict.TIMED_OUT)],
)
def test_a_limit_has_its_verdict(workbench: Workbench, task: str, check: str, verdict: Verdict) -> None:
    (run,) = workbench.run_checks(task, [check])
    assert run.verdict is verdict, run
    assert (run.usage.pids_peak or 0) <= 32
    assert (run.usage.memory_peak_bytes or 0) <= 64 * 1024**2


def test_s130_the_walls_are_those_of_docker(workbench: Workbench, task: str) -> None:
    (run,) = workbench.run_checks(task, ["walls"])
    uid = run.stdout_tail.split()[1]
    assert int(uid) >= 66_000
    assert "".join(line.rstrip() + "\n" for line in run.stdout_tail.splitlines()) == SEEN.format(uid=uid)
    (run,) = workbench.run_checks(task, ["refused"])
    assert run.verdict is Verdict.PASSED


def test_the_steps_of_a_build_run_below_the_group_of_all_guests_which_stays(
    workbench: Workbench, podman: PrivatePodman, tmp_path: Path
) -> None:
    """Podman takes the name of the group as that of the step itself: two builds would share it, and remove it."""
    (line,) = (probe for probe in workbench.doctor() if probe.name == "guest memory")
    assert line.level is ProbeLevel.OK, line
    (tmp_path / "Dockerfile").write_text("ARG BASE\nFROM ${BASE}\nRUN grep :memory: /proc/self/cgroup\n")
    group, tag = ContainerPolicy().group, "space-sandbox/test-build:group"
    with closing(podman.connect()) as engine:
        parent = engine.inspect_image(tag_of("base", recipe_digests(read_lineage(Home(tmp_path), "base"), "")[-1]))
        assert parent is not None
        request = ImageBuild(tmp_path, tag, {"BASE": parent.digest}, {}, no_cache=True, cgroup_parent=f"/{group}")
        seen: list[str] = []
        for _ in range(2):
            engine.build_image(request, seen.append)
        engine.untag_image(tag)
    places = [line.rpartition(":")[2] for line in seen if ":memory:/" in line]
    assert (len(set(places)), {place.rpartition("/")[0] for place in places}) == (2, {f"/{group}"}), seen
    (line,) = (probe for probe in workbench.doctor() if probe.name == "guest memory")
    assert line.level is ProbeLevel.OK, line


SMALL = "test-small"
"""An image of two small layers: that of a base of 235 MB takes a minute to go there and back."""


def write_recipe(home: Path) -> None:
    folder = home / "images" / SMALL
    folder.mkdir(parents=True)
    (folder / "Dockerfile").write_text("FROM scratch\n")
    (folder / "recipe.toml").write_text('parent = ""\n')


def import_two_layers(workbench: Workbench, path: Path) -> None:
    write_recipe(workbench.home)
    (recipe,) = recipe_digests(read_lineage(Home(workbench.home), SMALL), "")
    labels = {"space.sandbox.image": SMALL, "space.sandbox.folder": SMALL, "space.sandbox.recipe": recipe}
    layers = [b"".join(format_file(name, name.encode())) + bytes(1024) for name in ("one", "two")]
    workbench.import_images(write_archive(path, tag_of(SMALL, recipe), labels, layers=layers))


def test_an_archive_of_images_goes_to_docker_and_back_with_the_same_digests(
    workbench: Workbench, tmp_path: Path
) -> None:
    """Podman names images otherwise in what it saves. The way back is into a Podman that has none of them."""
    if reason := PrivateEngine.why_not():
        unavailable(reason)
    import_two_layers(workbench, tmp_path / "small.tar")
    path, exported = tmp_path / "podman.tar", {}
    first = workbench.export_images(path, [SMALL], print)
    tags = {image.tag.rpartition(":")[0] for image in first.images}
    assert {f"space-sandbox/{SMALL}", "space-sandbox/init"} <= tags
    with PrivateEngine() as docker, PrivatePodman() as other:
        for name, engine in (("docker", docker), ("other", other)):
            settings = {"engine": {"host": engine.url}}
            write_recipe(tmp_path / name)
            with Workbench(tmp_path / name, environ={"PATH": os.environ["PATH"]}, settings=settings) as there:
                done = there.import_images(path, print, expected=first.digest)
                assert all(image.loaded and image.usable for image in done.images)
                path = tmp_path / f"{name}.tar"
                exported[name] = there.export_images(path, [SMALL], print)
    assert [(each.digest, each.images) for each in exported.values()] == [(first.digest, first.images)] * 2


def test_s187_a_layer_that_is_compressed_data_for_podman_does_not_reach_it(
    podman: PrivatePodman, workbench: Workbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control: without the refusal, Podman unpacks other files, a hundred times as large; the type says 'tar'."""
    large = 32 * 1024**2
    layer = make_compressed_tar(b"".join(format_file("hidden", bytes(large))) + bytes(1024))
    name, recipe = f"test-scratch-{uuid.uuid4().hex[:8]}", uuid.uuid4().hex * 2
    labels = {"space.sandbox.image": name, "space.sandbox.folder": name, "space.sandbox.recipe": recipe}
    tag = f"space-sandbox/{name}:{recipe[:12]}"
    path = write_archive(tmp_path / "bomb.tar", tag, labels, layers=[layer])
    assert path.stat().st_size < large / 100
    with pytest.raises(SandboxError, match="not an archive of images") as caught:
        workbench.import_images(path)
    assert "compressed" in caught.value.details
    with closing(podman.connect()) as engine:
        assert engine.inspect_image(tag) is None
        monkeypatch.setattr(archive_reader, "require_uncompressed", lambda *_: None)
        workbench.import_images(path)
        try:
            assert engine.api.inspect_image(tag)["Size"] >= large, "void"
        finally:
            engine.api.remove_image(tag, force=True)


Change = Callable[[dict[str, Any]], object]
CHANGES: dict[str, Change] = {
    "linux.seccomp": lambda request: request.pop("seccomp_profile_path"),  # Podman's own is weaker
    "process.capabilities": lambda request: request.update(cap_drop=[]),
    "process.noNewPrivileges": lambda request: request.update(no_new_privileges=False),
    "linux.maskedPaths": lambda request: request.update(mask=[]),
    "root.readonly": lambda request: request.update(read_only_filesystem=False),
    "linux.resources.pids.limit": lambda request: request["resource_limits"]["pids"].update(limit=0),
    "mounts: /mnt": lambda request: request["mounts"].append(
        {"destination": "/mnt", "type": "bind", "source": "/etc", "options": ["bind", "ro"]}
    ),
    "linux.namespaces": lambda request: request.update(pidns={"nsmode": "host"}),
}


ENOUGH = {"linux.seccomp", "process.noNewPrivileges", "mounts: /mnt", "linux.namespaces"}
"""That each difference is found is shown in `tests/unit/engine/test_runtime_spec.py`, without an engine."""


@pytest.mark.parametrize(
    "field", [pytest.param(one, marks=() if one in ENOUGH else pytest.mark.thorough) for one in CHANGES]
)
def test_s131_another_container_than_the_requested_one_is_not_started(
    workbench: Workbench, task: str, monkeypatch: pytest.MonkeyPatch, field: str
) -> None:
    def ask_for_another(*given: Any, rootless: bool) -> dict[str, Any]:
        request = build_request(*given, rootless=rootless)
        CHANGES[field](request)
        return request

    monkeypatch.setattr(podman_containers, "build_request", ask_for_another)
    with pytest.raises(SandboxError) as caught:
        workbench.run_checks(task, ["work"])
    assert (caught.value.code, field in caught.value.brief) == (ErrorCode.POLICY_VIOLATION, True), caught.value


def test_s131_control_without_the_comparison_it_runs_and_the_filter_is_another(
    workbench: Workbench, task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask_for_another(*given: Any, rootless: bool) -> dict[str, Any]:
        request = build_request(*given, rootless=rootless)
        request.pop("seccomp_profile_path")
        request["seccomp_policy"] = "default"
        return request

    monkeypatch.setattr(podman_containers, "build_request", ask_for_another)
    monkeypatch.setattr(podman_containers, "compare", lambda *_: ())
    (run,) = workbench.run_checks(task, ["work"])
    assert run.verdict is Verdict.PASSED


def test_a_running_guest_is_listed_with_its_limits_and_stopped_from_outside(
    workbench: Workbench, task: str, podman: PrivatePodman
) -> None:
    with closing(podman.connect()) as engine, ThreadPoolExecutor(1) as pool:
        running = pool.submit(workbench.run_checks, task, ["endless"])
        guest = _wait_for_guest(workbench)
        assert (guest.memory_limit_bytes, guest.pids_limit) == (64 * 1024**2, 32)
        engine.api.kill(engine.list_containers({})[0].id, signal="SIGKILL")
        (run,) = running.result(timeout=60)
        assert run.verdict is Verdict.KILLED
        assert engine.list_containers({}) == []


def _wait_for_guest(workbench: Workbench) -> Guest:
    ends_at = time.monotonic() + 60
    while time.monotonic() < ends_at:
        for guest in workbench.guests().guests:
            if guest.pids_limit and (guest.pids or 0) > 1:
                return guest
        time.sleep(0.1)
    raise AssertionError("no guest was seen")
