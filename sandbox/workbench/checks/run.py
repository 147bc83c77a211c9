"""Run one check, in a task or in a clean room: order of checks, guest, report directory, stored record."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from sandbox.checks.cancellation import first_reason, interrupts_deferred, lasting, stops_when
from sandbox.checks.containers import FreshContainer, TaskContainer
from sandbox.checks.execute import Guest, Place, Recorder
from sandbox.checks.jobs import with_jobs
from sandbox.engine.create_options import Supervisor
from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.checkout import empty_tree, remove_tree
from sandbox.images.supervisor import Courier, is_usable, supervisor
from sandbox.models import Check, CheckRun
from sandbox.profiles import Profile
from sandbox.store.records import near, save_run
from sandbox.workbench.checks.callbacks import Watch
from sandbox.workbench.checks.guest_setup import GuestSetup, resolve_guest_setup
from sandbox.workbench.controller.disk_space import require_space, watch_disk, with_disk_use
from sandbox.workbench.controller.services import Parts


def run_one(services: Parts, recorder: Recorder, which: tuple[str, Check, Place], watch: Watch, *, owner: str) -> CheckRun:
    """Wait for a turn, announce and run one check, and save its record under `owner`: a task or a repository.

    A check that is cancelled, or interrupted in the main thread, has a record too; the interrupt is raised afterwards.
    Raises: `conflict` when a stopped process blocks the run queue; `quota_exceeded` for a full disk; errors of the
    engine.
    """
    run_id, check, place = which
    with interrupts_deferred() as interrupted:
        wish = lasting(first_reason(stops_when(watch.cancelled), stops_when(interrupted)))
        watch.starts(run_id, check)
        watch.announce(check, None)
        with services.turns.turn(owner, lambda: wish() is not None, watch.queued) as turn:
            require_space(services)
            disk = watch_disk(services, place, check.limits)
            why_stop = lasting(first_reason(wish, disk))
            run = recorder.run(run_id, check, place, watch.follow, why_stop, heartbeat=turn.here)
            run = with_disk_use(run, disk)
        save_run(services.home, owner, run)
        watch.announce(check, run)
    return run


def task_report(services: Parts, task_id: str) -> Path:
    """Empty the task's report directory, which its container has mounted, and return it. The caller holds the task's
    lock, and no check runs in the task.
    """
    folder = services.home.report(task_id)
    folder.mkdir(mode=0o755, exist_ok=True)
    empty_tree(folder)
    folder.chmod(0o755)  # cannot be a link: only we can enter the parent folder
    if services.file_owner is not None:
        os.chown(folder, *services.file_owner)
    return folder


def new_run_id(services: Parts) -> str:
    """A new, unique run id."""
    return f"run-{services.presence.new_id()}"


@contextmanager
def report_folder(services: Parts) -> Iterator[tuple[str, Path]]:
    """A new run id and an empty directory for the guest's report; the directory is removed at the end."""
    run_id = new_run_id(services)
    folder = services.home.room(run_id)
    try:
        folder.mkdir(mode=0o755)
        if services.file_owner is not None:
            os.chown(folder, *services.file_owner)
        yield run_id, folder
    finally:
        remove_tree(folder)


def recorder(services: Parts, setup: GuestSetup, owner: str) -> Recorder:
    """For clean rooms: each check has a new guest that is removed afterwards.

    Raises: `quota_exceeded` for a full disk; `engine_unavailable`, `image_missing`, `policy_violation`.
    """
    _require_ready(services)
    guest = _guest(services, setup)
    return Recorder(FreshContainer(services.guest_engine, services.policy, guest), guest, services.home.logs(owner))


def task_recorder(services: Parts, profile: Profile, task_id: str) -> Recorder:
    """For checks in a task's own worktree: their guest is kept.

    Raises: as `build_room_recorder`.
    """
    _require_ready(services)
    guest = _guest(services, resolve_guest_setup(services, profile))
    executor = TaskContainer(services.guest_engine, services.policy, guest, task_id, keep=services.settings.container.keep)
    return Recorder(executor, guest, services.home.logs(task_id))


def _require_ready(services: Parts) -> None:
    require_space(services)
    if not services.guest_engine.local:
        raise SandboxError(
            ErrorCode.ENGINE_UNAVAILABLE,
            "The engine is not on this host, so it cannot mount the files to check",
            details=services.engine.endpoint.url,
            hint="Use an engine on a local unix socket; `sandbox doctor` shows which one is found.",
        )


def _guest(services: Parts, setup: GuestSetup) -> Guest:
    return Guest(
        image_digest=setup.image_digest,
        runtime=setup.runtime,
        user=services.guest_user,
        git_mask=services.home.git_mask,
        hosts=services.hosts,
        instance=services.instance,
        cpus=os.cpu_count() or 1,
        supervisor=Supervisor(_supervisor(services, setup.runtime), services.settings.container.idle_s),
    )


def _supervisor(services: Parts, runtime: str) -> Path:
    """The binary of PID 1. It stays the same for the life of a controller, so the engine is asked once, even if
    another one is built in between.
    """
    known = services.supervisors.get(runtime)
    if known is None or not is_usable(known):
        courier = Courier(f"sandbox-init-{services.presence.new_id()}", services.guest_user, runtime, services.instance)
        known = services.supervisors[runtime] = supervisor(services.image_site, services.policy, courier)
    return known


def in_order(profile: Profile, wanted: Sequence[str]) -> tuple[Check, ...]:
    """The requested checks and their requirements, required ones first.

    Raises: `not_found` for an unknown check, `invalid_input` when there is no check to run.
    """
    known = [c.id for c in profile.checks]
    for name in wanted:
        if name not in known:
            raise near("check", name, known, f"The checks are defined by the profile '{profile.name}'.")
    if not wanted and known:
        raise SandboxError(
            ErrorCode.INVALID_INPUT, "No check was named", hint=f"The profile '{profile.name}' has: {', '.join(known)}."
        )
    if not wanted:
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            f"The profile '{profile.name}' has no checks to run",
            hint="Add checks to the profile (docs/profiles.md), or use another one: `run` has --profile.",
        )
    return tuple(_fitted(c) for c in profile.in_order(wanted))


def _fitted(check: Check) -> Check:
    """Limit the CPUs to those of the host, since the engine refuses more; set the number of jobs accordingly."""
    limits = check.limits
    fitted = limits.model_copy(update={"cpus": min(limits.cpus, os.cpu_count() or 1)})
    return with_jobs(check.model_copy(update={"limits": fitted}))
