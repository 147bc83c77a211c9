"""Run one check, in a task or in a clean room: order of checks, guest, report directory, stored record."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sandbox.checks.cancellation import any_of, defer_interrupts, latch, stop_when_cancelled
from sandbox.checks.execute import CheckDirectories, GuestSettings, Recorder, with_heartbeat
from sandbox.checks.executors import FreshContainer, TaskContainer
from sandbox.checks.reader_faults import ReaderFaults
from sandbox.checks.service_guests import RunServices, ServiceRunner, find_services
from sandbox.engine.container_types import NetworkMember
from sandbox.engine.create_options import Supervisor
from sandbox.engine.guest_group import find_bindable_cpus
from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.checkout import empty_tree, remove_tree
from sandbox.files.tree import WorktreeFiles
from sandbox.images.supervisor import SupervisorExtractor, ensure_supervisor, is_usable_binary
from sandbox.lazy_module import LazyModule
from sandbox.models import Check, CheckRun, ServiceSetup, Verdict
from sandbox.store.home import Home
from sandbox.store.records import save_run
from sandbox.workbench.checks.callbacks import Watch, hold_errors
from sandbox.workbench.checks.guest_setup import GuestSetup
from sandbox.workbench.checks.memory_admission import demand_memory
from sandbox.workbench.controller.disk_admission import RECORD_DEMAND, Demand, Writer
from sandbox.workbench.controller.disk_space import watch_disk
from sandbox.workbench.controller.guest_accounts import lease_account
from sandbox.workbench.controller.guest_memory import find_guest_group
from sandbox.workbench.controller.services import Services
from sandbox.workspaces.layout import WorktreePaths
from sandbox.workspaces.own_disk import restore_spare

if TYPE_CHECKING:
    from sandbox.store.liveness import LiveController
    from sandbox.workbench.checks import collected_artifacts
else:  # loaded if a check has artifacts (docs/adr/0080)
    collected_artifacts = LazyModule("sandbox.workbench.checks.collected_artifacts")

_log = logging.getLogger(__name__)


def run_one(
    services: Services,
    recorder: Recorder,
    which: tuple[str, Check, CheckDirectories],
    watch: Watch,
    *,
    owner: str,
    before: Callable[[CheckRun], None] | None = None,
) -> CheckRun:
    """Wait for a turn, announce and run one check, and save its record under `owner`: a task or a repository. `before`:
    called with the run before it has a record, so that no kill leaves a record without what this call writes.

    A check that is cancelled, or interrupted in the main thread, has a record too; the interrupt is raised afterwards.
    Raises: `conflict` when a stopped process blocks the run queue; `quota_exceeded` for a full disk; errors of the
    engine; what `watch.follow` raised.
    """
    run_id, check, place = which
    with hold_errors(watch.follow) as follow, defer_interrupts() as interrupted:
        wish = latch(any_of(stop_when_cancelled(watch.cancelled), stop_when_cancelled(interrupted)))
        watch.starts(run_id, check)
        watch.announce(check, None)
        companions = find_services(recorder.guest, check.id)
        demand = demand_memory(services, (check.limits, *(c.rule.limits for c in companions)), owner)
        with services.check_queue.wait_for_slot(owner, lambda: wish() is not None, watch.queued, demand) as turn:
            disk = watch_disk(services, place, check.limits)
            why_stop = with_heartbeat(latch(any_of(wish, disk.check_disk_limit)), turn.heartbeat)
            with (
                services.disk.admit(Writer.CHECK, _demand_of_run(check, companions)),
                _surround(services, recorder, (run_id, check, replace(place, disk=disk)), companions) as place,
            ):
                run = recorder.run(run_id, check, place, follow, why_stop)
                notes = run.notes
                if run.verdict is Verdict.KILLED and (reason := watch.stop_reason()):
                    notes += (reason,)
                if check.artifacts:
                    notes += _collect_artifacts(services, owner, run_id, check, place.workspace)
            run = run.model_copy(update={"session": services.caller.session, "notes": notes})
        if before is not None:
            before(run)
        save_run(services.home, owner, run)
        watch.announce(check, run)
    return run


def _collect_artifacts(services: Services, owner: str, run_id: str, check: Check, workspace: Path) -> tuple[str, ...]:
    """Keep what the profile asks for, and return notes about what of it could not be read. A home that cannot be
    written loses artifacts, and no verdict; so does a fault in what reads them.
    """
    faults = ReaderFaults(run_id)

    def admit(size: int) -> AbstractContextManager[None]:
        return services.disk.admit(Writer.ARTIFACT, Demand(size, 1))

    with faults.note_errors("its artifacts"):
        try:
            with WorktreeFiles(workspace) as files:
                collected_artifacts.collect_artifacts(services.home, owner, run_id, check, files, admit)
        except OSError as error:
            _log.warning("the artifacts of %s are not kept: %s", run_id, error)
    return faults.notes


def _demand_of_run(check: Check, companions: Sequence[ServiceSetup]) -> Demand:
    """The logs of both streams and of services, and the record. The check's own files are watched while it runs."""
    logs = 2 * check.limits.output_bytes + sum(c.rule.limits.output_bytes for c in companions)
    return Demand(logs, 4 + len(companions)) + RECORD_DEMAND


@contextmanager
def _surround(
    services: Services,
    recorder: Recorder,
    which: tuple[str, Check, CheckDirectories],
    companions: tuple[ServiceSetup, ...],
) -> Iterator[CheckDirectories]:
    """The place of a check, with its services: they have a uid of their own for this run. Free without services."""
    run_id, check, place = which
    if not companions:
        yield place
        return
    runner = ServiceRunner(services.guest_engine, services.policies.container, recorder.guest, recorder.logs)
    with lease_account(services, run_id) as account:
        guest = NetworkMember(place.account.user[0], check.limits.memory_bytes)
        beside = RunServices(runner, run_id, companions, account, guest, check.timeout_s)
        try:
            yield replace(place, companions=beside)
        except BaseException:
            beside.forget_logs()  # the run has no record; the error has the end of the log
            raise


def prepare_task_report(home: Home, task_id: str, site: WorktreePaths) -> Path:
    """Empty the task's report directory, which its container has mounted, and return it. It is on the worktree's own
    disk if there is one; the folder in the home then says only that the container may exist. The caller holds the
    task's lock, and no check runs in the task.
    """
    home.report(task_id).mkdir(exist_ok=True)
    home.report(task_id).chmod(0o755)  # whatever the umask
    folder = site.report or home.report(task_id)
    empty_tree(folder)
    folder.chmod(0o755)  # cannot be a link: only we can enter the parent folder
    if site.owner is not None:
        os.chown(folder, *site.owner)
    if site.report is not None:
        restore_spare(site.layers)
    return folder


def new_run_id(presence: LiveController) -> str:
    """A new, unique run id."""
    return f"run-{presence.new_id()}"


@contextmanager
def new_report_folder(services: Services, room: WorktreePaths) -> Iterator[tuple[str, Path]]:
    """A new run id and an empty directory for the guest's report, on the clean room's own disk if it has one. The
    directory is removed at the end.
    """
    run_id, owner = new_run_id(services.presence), room.owner
    folder = services.home.clean_room(run_id) if room.report is None else room.report.with_name(run_id)
    try:
        folder.mkdir(mode=0o700)
        folder.chmod(0o755)  # whatever the umask: the guest writes there
        if owner is not None:
            os.chown(folder, *owner)
        yield run_id, folder
    finally:
        remove_tree(folder)


def build_room_recorder(services: Services, setup: GuestSetup, owner: str) -> Recorder:
    """For clean rooms: each check has a new guest that is removed afterwards.

    Raises: `quota_exceeded` for a full disk; `engine_unavailable`, `image_missing`, `policy_violation`.
    """
    _require_ready(services)
    guest = _build_guest(services, setup)
    return Recorder(
        FreshContainer(services.guest_engine, services.policies.container, guest), guest, services.home.logs(owner)
    )


def build_task_recorder(services: Services, setup: GuestSetup, task_id: str) -> Recorder:
    """For checks in a task's own worktree: their guest is kept.

    Raises: as `build_room_recorder`.
    """
    executor = build_task_container(services, setup, task_id)
    return Recorder(executor, executor.guest, services.home.logs(task_id))


def build_task_container(services: Services, setup: GuestSetup, task_id: str) -> TaskContainer:
    """The container of a task, which need not exist yet. Raises: as `build_room_recorder`."""
    _require_ready(services)
    kept = services.settings.container
    return TaskContainer(
        services.guest_engine,
        services.policies.container,
        _build_guest(services, setup),
        task_id,
        keep=kept.keep,
        keep_bytes=kept.keep_bytes,
    )


def _require_ready(services: Services) -> None:
    services.disk.require(Writer.CHECK)
    if not services.guest_engine.is_local:
        raise SandboxError(
            ErrorCode.ENGINE_UNAVAILABLE,
            "The engine is not on this host, so it cannot mount the files to check",
            details=services.engine.endpoint.url,
            hint="Use an engine on a local unix socket; `sandbox doctor` shows which one is found.",
        )


def _build_guest(services: Services, setup: GuestSetup) -> GuestSettings:
    return GuestSettings(
        image_digest=setup.image_digest,
        runtime=setup.runtime,
        git_mask=services.home.git_mask,
        hosts=services.hosts_file,
        instance=services.home.instance_id,
        tenant=services.settings.container.tenant,
        cpus=find_bindable_cpus(services.engine_facts, services.policies.container.container.group),
        cgroup_parent=find_guest_group(services).parent,
        supervisor=Supervisor(_find_supervisor(services, setup), services.settings.container.idle_s),
        layers=setup.layers,
        services=setup.services,
        without_layers=setup.without_layers,
        missing_packages=setup.missing_packages,
        left_out=setup.left_out,
        compiler_cache=setup.compiler_cache,
    )


def _find_supervisor(services: Services, setup: GuestSetup) -> Path:
    """The binary of PID 1. It stays the same for the life of a controller, so the engine is asked once, even if
    another one is built in between.
    """
    runtime = setup.runtime
    known = services.supervisor_paths.get(runtime)
    if known is None or not is_usable_binary(known):
        courier = SupervisorExtractor(
            f"sandbox-init-{services.presence.new_id()}", _own_user(services), runtime, services.home.instance_id
        )
        known = services.supervisor_paths[runtime] = ensure_supervisor(
            services.image_build_context, services.policies.container, courier, digest=setup.supervisor_digest
        )
    return known


def _own_user(services: Services) -> tuple[int, int]:
    """The user of a guest that runs no foreign code."""
    return services.policies.pristine_owner or (os.geteuid(), os.getegid())
