"""Services of one run of a check: guests of their own in the network namespace of the check's guest.

The check's guest owns the namespace, which has only a loopback interface. A service joins it, so that a test finds it
at 127.0.0.1; they share no file, no process and no user id (docs/adr/0060). The guest of a service has our PID 1,
as any guest; its command is a small shell script that starts the service and asks its `ready` command until it
succeeds. Needs `sh` and `sleep` in the service's image.
"""

from __future__ import annotations

import secrets
import shlex
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import field
from functools import partial
from pathlib import Path

from sandbox.checks.cancellation import any_of
from sandbox.checks.execute import GuestSettings, output_limit_condition
from sandbox.checks.executors import choose_cpus
from sandbox.checks.output import Spool
from sandbox.engine.container_labels import RUN_LABEL, SERVICE_LABEL
from sandbox.engine.container_types import (
    ContainerExit,
    Neighbours,
    NetworkMember,
    StopCondition,
    Streams,
    SupervisedCheck,
    find_neighbours,
)
from sandbox.engine.create_options import SERVICE_DIRECTORY, ContainerSpec, GuestAccount, create_options
from sandbox.engine.guest_commands import build_service_command
from sandbox.engine.protocol import GuestRunner
from sandbox.errors import ErrorCode, SandboxError
from sandbox.lazy_dataclass import dataclass
from sandbox.models import ServiceRun, ServiceSetup, Verdict
from sandbox.policy.container import EffectiveContainerPolicy

LOOK_INTERVAL_S = 0.05
"""Longest time between two looks at the stop condition while a service is not ready."""

_LAST_REPORT_S = 0.2
"""How long the report of a service that ended with its check's last request may take."""

_ERROR_LINES = 20
_OVERTIME_S = 300.0


@dataclass(frozen=True)
class ServiceRunner:
    """What services of any run need. `guest`: the settings of the guest that they join."""

    engine: GuestRunner
    policy: EffectiveContainerPolicy
    guest: GuestSettings
    logs: Path


@dataclass
class RunServices:
    """The services of one run. `check`: its check's guest. `most_s`: how long it may take.

    Each use of `run_beside` starts them anew. `runs` is filled when the check has ended.
    """

    runner: ServiceRunner
    run_id: str
    services: tuple[ServiceSetup, ...]
    account: GuestAccount
    check: NetworkMember
    most_s: float
    runs: tuple[ServiceRun, ...] = ()

    @property
    def neighbours(self) -> Neighbours:
        """Those of the check."""
        return find_neighbours(self.check, map(self._describe_member, self.services))

    def _describe_member(self, setup: ServiceSetup) -> NetworkMember:
        return NetworkMember(self.account.user[0], setup.rule.limits.memory_bytes)

    def _find_neighbours(self, setup: ServiceSetup) -> Neighbours:
        others = (self._describe_member(other) for other in self.services if other is not setup)
        return find_neighbours(self._describe_member(setup), (self.check, *others))

    @contextmanager
    def run_beside(self, container_id: str, stop_condition: StopCondition) -> Iterator[None]:
        """Start the services in the network namespace of a guest, wait until all are ready, and remove them at the end.

        If the check is to stop, it does not wait. Raises: `service_failed`, with the last lines of the service's log,
        for one that ends or is not ready in time; the errors of the engine adapter.
        """
        with ExitStack() as stack:  # left in reverse: stop, wait for the threads, close the logs
            logs = [stack.enter_context(self._open_log(setup)) for setup in self.services]
            pool = stack.enter_context(ThreadPoolExecutor(len(self.services), "service"))
            started = []
            for setup, log in zip(self.services, logs, strict=True):
                service = _RunningService(setup, log)
                stack.callback(service.stop)
                service.start(pool, partial(self._run, service, container_id))
                started.append(service)
            for service in started:
                service.wait_until_ready(stop_condition)
            yield
            reported_by = time.monotonic() + _LAST_REPORT_S
            self.runs = tuple(service.describe(reported_by) for service in started)

    def _open_log(self, setup: ServiceSetup) -> Spool:
        return Spool(service_log(self.runner.logs, self.run_id, setup.rule.name), setup.rule.limits.output_bytes)

    def forget_logs(self) -> None:
        """Remove the logs of a run that gets no record."""
        for setup in self.services:
            service_log(self.runner.logs, self.run_id, setup.rule.name).unlink(missing_ok=True)

    def _run(self, service: _RunningService, container_id: str) -> ContainerExit:
        """Run one service until it is stopped. In a thread of its own."""
        setup, guest, run_id = service.setup, self.runner.guest, self.run_id
        name = f"sandbox-{run_id}-{setup.rule.name}"
        labels = {**guest.labels, RUN_LABEL: run_id, SERVICE_LABEL: setup.rule.name}
        spec = ContainerSpec(
            name=name,
            image=setup.image_digest,
            argv=(),
            cwd=SERVICE_DIRECTORY,
            env={},
            limits=setup.rule.limits,
            workspace=None,
            git_mask=None,
            report=None,
            user=self.account.guest_user,
            first_ids=self.account.first_ids,
            runtime=guest.runtime,
            labels=labels,
            cpuset=choose_cpus(setup.rule.limits.cpus, guest.cpus),
            hosts=guest.hosts,
            account_files=self.account.files,
            supervisor=guest.supervisor,
            cgroup_parent=guest.cgroup_parent,
            joins=container_id,
        )
        argv = ("sh", "-c", write_script(setup.argv, setup.rule.ready, service.token))
        flooded = output_limit_condition(setup.rule.limits.output_total_bytes, service.log)
        work = SupervisedCheck(
            build_command=lambda env: build_service_command(argv, setup.rule.env, env),
            streams=Streams(service.log.write, service.write_stderr),
            deadline_s=setup.rule.ready_s + self.most_s + _OVERTIME_S,
            stop_condition=any_of(service.why_stop, flooded),
            surround=service.note_end,
            neighbours=self._find_neighbours(setup),
        )
        return self.runner.engine.run_supervised(name, create_options(spec, self.runner.policy), work, keep=False)


@dataclass
class _RunningService:
    """One service while it runs. Its output goes to `log`; a line with `token` says that it is ready."""

    setup: ServiceSetup
    log: Spool
    token: str = field(default_factory=lambda: secrets.token_hex(16), repr=False)

    def __post_init__(self) -> None:
        self._ready = threading.Event()
        self._stopped = threading.Event()
        self._ended = threading.Event()
        self._recent = b""
        self._started = time.monotonic()
        self._ready_after_s = 0.0
        self._ending: Future[ContainerExit] = Future()

    def start(self, pool: ThreadPoolExecutor, run: Callable[[], ContainerExit]) -> None:
        self._started = time.monotonic()
        self._ending = pool.submit(run)

    def stop(self) -> None:
        self._stopped.set()

    def why_stop(self) -> Verdict | None:
        return Verdict.KILLED if self._stopped.is_set() else None

    @contextmanager
    def note_end(self, _container_id: str) -> Iterator[None]:
        """A `Surround` of the service: it has ended before its container is removed, which may take half a minute."""
        try:
            yield
        finally:
            self._ended.set()

    def write_stderr(self, chunk: bytes) -> None:
        """Keep output, and look for the token. PID 1's session calls it from one thread, with whole frames of both
        streams in turn: in all of the output, a frame of stdout may part the token.
        """
        self.log.write(chunk)
        if not self._ready.is_set():
            seen = self._recent + chunk
            if self.token.encode() in seen:
                self._ready.set()
            self._recent = seen[-len(self.token) :]

    def wait_until_ready(self, stop_condition: StopCondition) -> None:
        """Raises: `service_failed`; what failed in its thread."""
        while not self._ready.wait(LOOK_INTERVAL_S):
            if stop_condition() is not None:
                return
            if self._ending.done():
                raise self._explain_end()
            if time.monotonic() - self._started > self.setup.rule.ready_s:
                raise self._failure(f"was not ready within {self.setup.rule.ready_s:g} s")
        self._ready_after_s = time.monotonic() - self._started

    def describe(self, reported_by: float) -> ServiceRun:
        """`reported_by`: on the monotonic clock, until when the report of its end may come."""
        return ServiceRun(
            name=self.setup.rule.name,
            image_digest=self.setup.image_digest,
            ready_after_s=round(self._ready_after_s, 3),
            ended_early=self._ended.wait(max(0.0, reported_by - time.monotonic())) or self._ending.done(),
            output_bytes=self.log.total_bytes,
            limits=self.setup.rule.limits,
        )

    def _explain_end(self) -> SandboxError:
        try:
            ending = self._ending.result()
        except SandboxError as error:
            brief = f"The service '{self.setup.rule.name}' could not be started: {error.brief}"
            return error.with_changes(brief=brief)
        if ending.oom_killed or ending.stop_verdict is Verdict.OOM_KILLED:
            return self._failure("ended before it was ready: it needs more memory than its limit")
        if ending.stop_verdict is Verdict.OUTPUT_LIMIT:
            return self._failure("was stopped before it was ready: it wrote more output than its limit")
        return self._failure(f"ended before it was ready, with exit status {ending.exit_code}")

    def _failure(self, what: str) -> SandboxError:
        lines = self.log.tail_text.splitlines()[-_ERROR_LINES:]
        return SandboxError(
            ErrorCode.SERVICE_FAILED,
            f"The service '{self.setup.rule.name}' {what}, so the check did not run",
            details="\n".join(lines) or "It wrote no output.",
            hint=f"It ran {shlex.join(self.setup.argv)}, and was asked with {shlex.join(self.setup.rule.ready)} "
            "(docs/services.md).",
        )


def write_script(argv: tuple[str, ...], ready: tuple[str, ...], token: str) -> str:
    """The script that starts a service, asks `ready` until it succeeds, writes `token`, and ends with the service.

    A different answer of `ready` is logged once; one that cannot be run at all ends the service. Pure.
    """
    return f"""\
{shlex.join(argv)} </dev/null &
service=$!
last=none
while :; do
  answer=$({shlex.join(ready)} </dev/null 2>&1) && break
  status=$?
  [ "$answer" = "$last" ] || printf 'sandbox: not ready: %s\\n' "$answer" >&2
  last=$answer
  [ "$status" -lt 126 ] || exit "$status"
  kill -0 "$service" 2>/dev/null || {{ wait "$service"; exit; }}
  sleep 0.05
done
printf '\\nsandbox: ready %s\\n' {token} >&2
wait "$service"
"""


def service_log(logs: Path, run_id: str, name: str) -> Path:
    """Where the output of a run's service is kept: both streams, as they came."""
    return logs / f"{run_id}.service-{name}"


def find_services(guest: GuestSettings, check_id: str) -> tuple[ServiceSetup, ...]:
    """The services that a check gets. Pure."""
    return tuple(setup for setup in guest.services if setup.rule.serves(check_id))
