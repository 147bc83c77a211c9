"""Whether a process is the guest's, on control groups of both versions and in the namespaces of both sides."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from sandbox.capabilities import processes_probe
from sandbox.engine import guest_process
from sandbox.engine.endpoint import Endpoint
from sandbox.engine.guest_process import _find_patience, is_guest_process, prove_guest_pid, sees_processes_of
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import ProbeLevel

ID = "db5a82c7a963f1a1923e1c9244035418d0a9d85905834980005d27a5eb9c5a6d"
PID = 412


@pytest.mark.parametrize(
    "groups",
    [
        f"9:name=systemd:/docker/{ID}\n8:pids:/docker/{ID}\n0::/\n",
        f"0::/system.slice/docker-{ID}.scope\n",
        f"0::/../docker-{ID}.scope\n",
        f"0::/../../space.slice/docker-{ID}.scope\n",
        f"0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope/container\n",
        f"11:memory:/space-guests/{ID}\n",
        f"4:memory:/machine.slice/libpod-{ID}.scope\n",
    ],
    ids=["v1", "v2", "namespace", "group-of-guests", "rootless-podman", "cgroupfs", "podman-v1"],
)
def test_a_process_in_the_group_of_the_container_is_the_guests(groups: str) -> None:
    assert is_guest_process(groups, ID)


@pytest.mark.parametrize(
    "groups",
    ["", "0::/\n", "0::/system.slice/ssh.service\n", f"0::/docker/{ID[:12]}\n", f"0::/docker/{ID[::-1]}\n"],
)
def test_any_other_process_is_not_the_guests(groups: str) -> None:
    assert not is_guest_process(groups, ID)
    assert not is_guest_process(groups, "")


def make_inspected(*, running: bool = True, pid: int = PID) -> dict[str, Any]:
    return {"Id": ID, "State": {"Pid": pid, "Running": running}}


def make_process(proc: Path, groups: str) -> None:
    (proc / str(PID)).mkdir()
    (proc / str(PID) / "cgroup").write_text(groups)


@pytest.fixture(autouse=True)
def no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guest_process, "_ENDING_S", 0.0)


def test_the_process_of_a_guest_is_found(tmp_path: Path) -> None:
    make_process(tmp_path, f"0::/docker/{ID}\n")
    assert prove_guest_pid(make_inspected(), lambda: None, tmp_path) == PID


@pytest.mark.parametrize("groups", [None, "0::/system.slice/ssh.service\n"], ids=["none", "another"])
def test_s221_a_guest_that_this_controller_cannot_see_is_refused(tmp_path: Path, groups: str | None) -> None:
    if groups is not None:
        make_process(tmp_path, groups)
    with pytest.raises(SandboxError) as caught:
        prove_guest_pid(make_inspected(), make_inspected, tmp_path)
    assert caught.value.code is ErrorCode.ENGINE_UNAVAILABLE
    assert "pid: host" in caught.value.hint
    assert "hostPID" in caught.value.hint


@pytest.mark.parametrize("later", [None, make_inspected(running=False, pid=0)], ids=["removed", "ended"])
def test_a_guest_that_has_ended_has_no_process(tmp_path: Path, later: dict[str, Any] | None) -> None:
    make_process(tmp_path, "0::/system.slice/ssh.service\n")  # the number is another's now
    assert prove_guest_pid(make_inspected(), lambda: later, tmp_path) == 0


@pytest.mark.parametrize("is_foreign", [False, True], ids=["gone", "foreign"])
def test_an_engine_that_learns_late_of_a_guests_end_is_waited_for(tmp_path: Path, is_foreign: bool) -> None:
    """Control: while another process has the number, the guest is refused as before."""
    states = iter([make_inspected(), make_inspected(), make_inspected(running=False, pid=0)])
    if is_foreign:
        make_process(tmp_path, "0::/system.slice/ssh.service\n")
    with pytest.raises(SandboxError) if is_foreign else nullcontext():
        assert prove_guest_pid(make_inspected(), lambda: next(states), tmp_path, find_patience=lambda: 60.0) == 0


@pytest.mark.parametrize(
    ("url", "path"),
    [("unix:///run/docker.sock", "/run/docker.sock"), ("unix://run/docker.sock", "/run/docker.sock"),
     ("tcp://build:2376", ""), ("memory://", "")],
)  # fmt: skip
def test_only_a_unix_socket_has_a_path(url: str, path: str) -> None:
    assert Endpoint(url, "test").socket_path == path


@pytest.mark.parametrize(
    ("seen", "unknown", "level"),
    [(True, "", ProbeLevel.OK), (False, "", ProbeLevel.FAIL), (False, "Connection refused", ProbeLevel.WARN)],
)
def test_doctor_says_whether_guests_can_be_seen(seen: bool, unknown: str, level: ProbeLevel) -> None:
    probe = processes_probe(seen=seen, unknown=unknown)
    assert (probe.level, bool(probe.hint)) == (level, level is not ProbeLevel.OK)


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "engine.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        yield path


def test_the_listener_of_a_socket_is_seen_in_its_namespace_only(listener: Path, tmp_path: Path) -> None:
    assert sees_processes_of(str(listener))
    assert not sees_processes_of(str(listener), tmp_path)  # as with `hidepid`
    assert (_find_patience(str(listener), 60.0), _find_patience(str(tmp_path / "none"), 60.0)) == (60.0, 0.0)


@pytest.mark.skipif(os.geteuid() != 0, reason="a PID namespace needs root")
def test_s221_the_listener_is_not_seen_from_another_namespace(listener: Path) -> None:
    code = f"from sandbox.engine.guest_process import sees_processes_of as s; print(s({str(listener)!r}))"
    argv = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", code]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout == "False\n", done.stderr
