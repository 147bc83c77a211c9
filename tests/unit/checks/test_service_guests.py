"""Services of a run: the script that starts one, in a real shell; what is recorded, without a real engine."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from sandbox.checks.execute import GuestSettings
from sandbox.checks.executors import with_surroundings
from sandbox.checks.service_guests import RunServices, ServiceRunner, find_services, service_log, write_script
from sandbox.engine.cgroups import Counters
from sandbox.engine.container_types import (
    ContainerExit,
    Neighbours,
    NetworkMember,
    Streams,
    SupervisedCheck,
    never_stop,
)
from sandbox.engine.create_options import AccountFiles, GuestAccount, Supervisor
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import Check, ServiceRule, ServiceSetup, Verdict
from sandbox.store.quarantine import QuarantineNotes
from tests.unit.conftest import refused
from tests.unit.engine.test_create_options import POLICY
from tests.unit.memory_engine import MemoryEngine

RULE = ServiceRule(
    name="web", image="base", ready=("true",), port=8000, ready_s=5.0, check_env={"URL": "web", "A": "1"}
)
CHECK = NetworkMember(65000, 3 << 20)
IMAGE = "sha256:" + "1" * 64


@contextmanager
def started(folder: Path, argv: tuple[str, ...], ready: tuple[str, ...]) -> Iterator[subprocess.Popen[str]]:
    command = ["sh", "-c", write_script(argv, ready, "TOKEN")]
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True, start_new_session=True) as service:
        try:
            yield service
        finally:
            with suppress(ProcessLookupError):
                os.killpg(service.pid, signal.SIGKILL)


def test_a_service_is_ready_once_its_command_says_so(tmp_path: Path) -> None:
    with started(tmp_path, ("sleep", "60"), ("test", "-e", "it's ready")) as service:
        assert service.stderr is not None
        assert service.stderr.readline() == "sandbox: not ready: \n"
        (tmp_path / "it's ready").touch()
        assert [service.stderr.readline() for _ in range(2)] == ["\n", "sandbox: ready TOKEN\n"]
        assert service.poll() is None


def test_each_new_answer_of_the_ready_command_is_logged_once(tmp_path: Path) -> None:
    ready = ("sh", "-c", "echo x >> tries; echo not yet; test $(wc -l < tries) -ge 4")
    with started(tmp_path, ("sleep", "1"), ready) as service:
        _, errors = service.communicate(timeout=20)
    assert errors == "sandbox: not ready: not yet\n\nsandbox: ready TOKEN\n"
    assert service.returncode == 0


@pytest.mark.parametrize(
    ("argv", "ready", "code"),
    [
        (("sh", "-c", "exit 3"), ("false",), 3),
        (("sleep", "60"), ("no-such-command",), 127),
        (("nowhere",), ("false",), 127),
    ],
    ids=["it ends", "ready cannot run", "it cannot run"],
)
def test_a_service_that_cannot_get_ready_ends(
    tmp_path: Path, argv: tuple[str, ...], ready: tuple[str, ...], code: int
) -> None:
    with started(tmp_path, argv, ready) as service:
        assert service.wait(timeout=20) == code


@pytest.fixture
def services(tmp_path: Path) -> RunServices:
    engine = MemoryEngine(QuarantineNotes(tmp_path / "quarantine"))
    image = engine.add_image("base").digest
    setup = ServiceSetup(rule=RULE, image_digest=image, argv=("serve",))
    files = tmp_path / "mask", tmp_path / "hosts"
    guest = GuestSettings(image, "runc", *files, "0123456789abcdef", (0, 1), Supervisor(tmp_path / "init", 600))
    account = GuestAccount((66000, 66000), AccountFiles(tmp_path / "passwd", tmp_path / "group"))
    return RunServices(ServiceRunner(engine, POLICY, guest, tmp_path), "run-0123456789", (setup,), account, CHECK, 60.0)


TOKEN = "5" * 32
READY = f"\nsandbox: ready {TOKEN}\n".encode()
Says = Callable[[Streams], None]


def say_ready(streams: Streams) -> None:
    streams.stderr(READY)


class Guest:
    """A service that says this, ends once `ends` is set or it is stopped, and is removed while its run lasts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, says: Says = say_ready) -> None:
        self.says, self.ends, self.why = says, threading.Event(), list[Verdict]()
        monkeypatch.setattr(MemoryEngine, "run_supervised", lambda *given, keep: self.run(given[-1], keep=keep))
        monkeypatch.setattr(secrets, "token_hex", lambda _: TOKEN)

    def run(self, check: SupervisedCheck, *, keep: bool) -> ContainerExit:
        with check.surround("d" * 64):
            self.says(check.streams)
            while not self.ends.wait(0.001):
                if (why := check.stop_condition()) is not None:
                    self.why.append(why)
                    break
        while check.stop_condition() is None:
            self.ends.wait(0.001)
        return ContainerExit(
            139, keep, False, datetime.now(UTC), 0.1, Counters(), stop_verdict=self.why[0] if self.why else None
        )


def test_a_service_that_ends_before_the_check_is_named_in_its_run(
    services: RunServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    Guest(monkeypatch).ends.set()
    with services.run_beside("c" * 64, never_stop):
        pass
    [ran] = services.runs
    assert (ran.name, ran.ended_early) == ("web", True)
    assert ran.output_bytes == service_log(services.runner.logs, services.run_id, "web").stat().st_size == len(READY)
    services.forget_logs()
    assert not service_log(services.runner.logs, services.run_id, "web").exists()


@pytest.mark.parametrize("dies", [True, False])
def test_s242_a_service_that_is_being_removed_has_ended_before_the_check(
    services: RunServices, monkeypatch: pytest.MonkeyPatch, *, dies: bool
) -> None:
    """Its last request killed it, and the check ends at once. The removal may take half a minute."""
    guest = Guest(monkeypatch)
    with services.run_beside("c" * 64, never_stop):
        if dies:
            guest.ends.set()
    assert [ran.ended_early for ran in services.runs] == [dies]


def with_little_output(services: RunServices) -> None:
    [setup] = services.services
    limits = RULE.limits.model_copy(update={"output_total_bytes": len(READY) + 100})
    services.services = (setup.model_copy(update={"rule": RULE.model_copy(update={"limits": limits})}),)


def test_a_service_is_stopped_at_the_limit_on_its_output(
    services: RunServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both streams count, as a check's."""
    with_little_output(services)

    def say(streams: Streams) -> None:
        streams.stdout(b"x" * 60)
        streams.stderr(b"x" * 60 + READY)

    guest = Guest(monkeypatch, say)
    with services.run_beside("c" * 64, never_stop):
        pass
    assert services.runs[0].ended_early
    assert guest.why == [Verdict.OUTPUT_LIMIT]


def test_a_service_that_floods_before_it_is_ready_says_so(
    services: RunServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_little_output(services)
    Guest(monkeypatch, lambda streams: streams.stdout(b"x" * 1000))
    with refused(ErrorCode.SERVICE_FAILED) as caught, services.run_beside("c" * 64, never_stop):
        raise AssertionError("the check ran")
    assert "it wrote more output than its limit" in caught.value.brief


def test_a_service_is_ready_also_if_it_writes_to_stdout_at_that_moment(
    services: RunServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PID 1 cuts each stream into frames, and takes both in turn."""

    def say(streams: Streams) -> None:
        streams.stderr(b"E" * 4050 + READY[:25])
        streams.stdout(b"GET / 200\n")
        streams.stderr(READY[25:])

    Guest(monkeypatch, say)
    with services.run_beside("c" * 64, never_stop):
        pass
    assert not services.runs[0].ended_early
    assert b"GET / 200\n" in service_log(services.runner.logs, services.run_id, "web").read_bytes()


def test_s202_a_service_that_its_network_buffers_ended_says_so(
    services: RunServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control: one that ends by itself is named with its exit status."""
    endings = [Verdict.OOM_KILLED, None]

    def end(_engine: MemoryEngine, _name: str, _options: Any, _check: SupervisedCheck, *, keep: bool) -> ContainerExit:
        return ContainerExit(137, keep, False, datetime.now(UTC), 0.1, Counters(), stop_verdict=endings.pop(0))

    monkeypatch.setattr(MemoryEngine, "run_supervised", end)
    for why in ("it needs more memory than its limit", "with exit status 137"):
        with refused(ErrorCode.SERVICE_FAILED) as caught, services.run_beside("c" * 64, never_stop):
            raise AssertionError("the check ran")
        assert why in caught.value.brief
        services.forget_logs()


def test_s202_each_guest_of_a_network_knows_the_limits_of_the_others(
    services: RunServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The services of a run have one uid."""
    limit = RULE.limits.memory_bytes
    [first] = services.services
    services.services = (first, first.model_copy(update={"rule": RULE.model_copy(update={"name": "db"})}))
    seen: list[Neighbours] = []

    def note(_engine: MemoryEngine, _name: str, _options: Any, check: SupervisedCheck, *, keep: bool) -> ContainerExit:
        seen.append(check.neighbours)
        return ContainerExit(1, keep, False, datetime.now(UTC), 0.1, Counters())

    monkeypatch.setattr(MemoryEngine, "run_supervised", note)
    with refused(ErrorCode.SERVICE_FAILED), services.run_beside("c" * 64, never_stop):
        raise AssertionError("the check ran")
    assert seen == [Neighbours(limit + CHECK.memory_bytes, limit)] * 2
    assert services.neighbours == Neighbours(2 * limit, 0)


def test_a_missing_image_is_told_with_the_services_name(services: RunServices) -> None:
    services.services = (services.services[0].model_copy(update={"image_digest": IMAGE}),)
    with refused(ErrorCode.IMAGE_MISSING) as caught, services.run_beside("c" * 64, never_stop):
        raise AssertionError("the check ran")
    assert caught.value.brief.startswith("The service 'web' could not be started")
    assert services.runs == ()


def test_a_service_joins_no_other_container_than_one_by_its_id(services: RunServices) -> None:
    with pytest.raises(SandboxError, match="Not the id"), services.run_beside("host", never_stop):
        raise AssertionError("the check ran")


@pytest.mark.parametrize(("checks", "found"), [((), 1), (("test",), 1), (("build",), 0)])
def test_a_check_gets_the_services_and_variables_that_are_for_it(
    services: RunServices, checks: tuple[str, ...], found: int
) -> None:
    rule = RULE.model_copy(update={"checks": checks})
    setup = ServiceSetup(rule=rule, image_digest=IMAGE, argv=("serve",))
    guest = GuestSettings(**{**vars(services.runner.guest), "services": (setup,)})
    check = Check(id="test", label="test", argv=("true",), env={"A": "own"})
    assert len(find_services(guest, "test")) == found
    assert with_surroundings(check, guest).env == ({"URL": "web", "A": "own"} if found else {"A": "own"})
