"""Executors: run a check in the task's own container, which is kept, or in a new one, which is removed afterwards.

Both use the same kind of guest: our PID 1, which receives the check as a command (docs/adr/0019, 0020).
"""

from __future__ import annotations

import hashlib
import json
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from sandbox.checks.execute import CheckDirectories, GuestSettings
from sandbox.engine.container_labels import (
    CHECK_LABEL,
    FETCH_LABEL,
    RUN_LABEL,
    TASK_LABEL,
    task_container_name,
)
from sandbox.engine.container_types import (
    ALONE,
    ContainerExit,
    StopCondition,
    Streams,
    SupervisedCheck,
    surround_with_nothing,
)
from sandbox.engine.create_options import (
    EGRESS_SOCKET_TARGET,
    RELAY_TARGET,
    ContainerSpec,
    EgressMounts,
    create_options,
)
from sandbox.engine.guest_commands import build_command
from sandbox.engine.pid1_messages import Command
from sandbox.engine.protocol import GuestRunner
from sandbox.files.tree import WorktreeFiles
from sandbox.lazy_dataclass import dataclass
from sandbox.models import Check
from sandbox.policy.container import EffectiveContainerPolicy
from sandbox.policy.paths import parse_repo_path

DEFAULT_KEEP_BYTES = 512 * 1024**2
PROXY_PORT = 3128
"""The port on loopback at which a guest that fetches finds its proxy."""
PROXY_URL = f"http://127.0.0.1:{PROXY_PORT}"
OPTIONS_LABEL = "space.sandbox.options"
"""SHA-256 of all the create options. A kept container is reused if it matches, after a comparison field by field."""


@dataclass(frozen=True)
class _ContainerIdentity:
    """What distinguishes one container from others with the same settings. `cpuset`: '' for all CPUs."""

    name: str
    labels: Mapping[str, str]
    cpuset: str


@dataclass(frozen=True)
class TaskContainer:
    """An executor with the task's own container, created at its first use and reused as long as it is clean.

    The caller holds the task's lock: two controllers never use one guest. Files in /tmp and in the home directory are
    kept for the next check; processes are not. Without `keep` the container is removed after each check, and in any
    case after one that leaves more than `keep_bytes` in memory.
    """

    engine: GuestRunner
    policy: EffectiveContainerPolicy
    guest: GuestSettings
    task_id: str
    keep: bool = True
    keep_bytes: int = DEFAULT_KEEP_BYTES

    def execute(
        self, run_id: str, check: Check, directories: CheckDirectories, streams: Streams, stop_condition: StopCondition
    ) -> ContainerExit:
        """Raises: `unsafe_path` when the check's directory is not one, and the errors of the engine adapter."""
        name, options = self._request(check, directories)
        work = _build_check(self.policy, with_surroundings(check, self.guest), directories, streams, stop_condition)
        work = replace(work, max_left_bytes=self.keep_bytes)
        if not self.keep:
            self.engine.remove_container(name)  # a container from before the setting was changed may exist
        return self.engine.run_supervised(name, options, work, keep=self.keep)

    def start(self, check: Check, directories: CheckDirectories) -> None:
        """Start the container for a later run of this check. No command runs in it. Raises: as `execute`."""
        if self.keep:
            self.engine.start_supervised(*self._request(check, directories))

    def _request(self, check: Check, directories: CheckDirectories) -> tuple[str, dict[str, Any]]:
        """Name and options of the container that this check runs in."""
        name = self.engine.choose_free_name(task_container_name(self.guest.instance, self.task_id))
        labels = {**self.guest.labels, TASK_LABEL: self.task_id}
        cpuset = choose_cpus(check.limits.cpus, self.guest.cpus, lambda count: _stable_number(self.task_id) % count)
        identity = _ContainerIdentity(name, labels, cpuset)
        options = create_options(_build_spec(self.policy, self.guest, check, directories, identity), self.policy)
        options["Labels"][OPTIONS_LABEL] = _digest(options)
        return name, options


@dataclass(frozen=True)
class FreshContainer:
    """An executor with a new container for each check."""

    engine: GuestRunner
    policy: EffectiveContainerPolicy
    guest: GuestSettings

    def execute(
        self, run_id: str, check: Check, directories: CheckDirectories, streams: Streams, stop_condition: StopCondition
    ) -> ContainerExit:
        """Raises: `unsafe_path` when the check's directory is not one, and the errors of the engine adapter."""
        name = f"sandbox-{run_id}"
        labels = {**self.guest.labels, RUN_LABEL: run_id, CHECK_LABEL: check.id}
        if directories.task_id:
            labels[TASK_LABEL] = directories.task_id
        cpuset = choose_cpus(check.limits.cpus, self.guest.cpus)
        identity = _ContainerIdentity(name, labels, cpuset)
        options = create_options(_build_spec(self.policy, self.guest, check, directories, identity), self.policy)
        work = _build_check(self.policy, with_surroundings(check, self.guest), directories, streams, stop_condition)
        return self.engine.run_supervised(name, options, work, keep=False)


@dataclass(frozen=True)
class FetchContainer:
    """An executor for commands that fetch: a new container for each, without a worktree, with the way out.

    It has no network, as every guest. The relay, which is PID 1's command, starts the check's command and offers the
    proxy's socket to it at `PROXY_URL`. The command must be ours: a guest with a way out runs no foreign code.
    """

    engine: GuestRunner
    policy: EffectiveContainerPolicy
    guest: GuestSettings
    egress: EgressMounts

    def execute(
        self, run_id: str, check: Check, directories: CheckDirectories, streams: Streams, stop_condition: StopCondition
    ) -> ContainerExit:
        """Raises: the errors of the engine adapter."""
        name = f"sandbox-{run_id}"
        labels = {**self.guest.labels, RUN_LABEL: run_id, FETCH_LABEL: check.id}
        identity = _ContainerIdentity(name, labels, choose_cpus(check.limits.cpus, self.guest.cpus))
        spec = _build_spec(self.policy, self.guest, check, directories, identity)
        options = create_options(replace(spec, git_mask=None, egress=self.egress), self.policy)
        relayed = check.model_copy(update={"argv": (RELAY_TARGET, EGRESS_SOCKET_TARGET, str(PROXY_PORT), *check.argv)})
        work = _build_check(self.policy, relayed, directories, streams, stop_condition)
        return self.engine.run_supervised(name, options, work, keep=False)


def choose_cpus(cpus: float, available: Sequence[int], pick: Callable[[int], int] = random.randrange) -> str:
    """Choose neighbours of the available CPUs for a check, so that `nproc` is correct in the guest; '' when it may use
    all CPUs.
    """
    count = math.ceil(cpus)
    if count >= len(available):
        return ""
    first = pick(len(available) - count + 1)
    chosen = available[first : first + count]
    is_one_range = count > 1 and chosen[-1] - chosen[0] == count - 1
    return f"{chosen[0]}-{chosen[-1]}" if is_one_range else ",".join(map(str, chosen))


def _build_spec(
    policy: EffectiveContainerPolicy,
    guest: GuestSettings,
    check: Check,
    directories: CheckDirectories,
    identity: _ContainerIdentity,
) -> ContainerSpec:
    return ContainerSpec(
        name=identity.name,
        image=guest.image_digest,
        argv=(),
        cwd=PurePosixPath(policy.container.mounts.workspace),
        env={},
        limits=check.limits,
        workspace=directories.workspace,
        workspace_read_only=check.workspace == "read-only",
        git_mask=guest.git_mask,
        report=directories.report,
        user=directories.account.guest_user,
        first_ids=directories.account.first_ids,
        runtime=guest.runtime,
        labels=identity.labels,
        cpuset=identity.cpuset,
        hosts=guest.hosts,
        account_files=directories.account.files,
        supervisor=guest.supervisor,
        layers=(*(layer.mount for layer in guest.layers), *guest.compiler_cache.mounts),
        cgroup_parent=guest.cgroup_parent,
    )


def with_surroundings(check: Check, guest: GuestSettings) -> Check:
    """The check with the variables of the guest's compiler cache and layers and of its own services. Pure."""
    rules = (setup.rule for setup in guest.services if setup.rule.serves(check.id))
    cached = guest.compiler_cache.environment
    given = (cached, *(layer.env for layer in guest.layers), *(rule.check_env for rule in rules))
    variables = {name: value for env in given for name, value in env.items()}
    return check.model_copy(update={"env": {**variables, **check.env}}) if variables else check


def _build_check(
    policy: EffectiveContainerPolicy,
    check: Check,
    directories: CheckDirectories,
    streams: Streams,
    stop_condition: StopCondition,
) -> SupervisedCheck:
    cwd = PurePosixPath(policy.container.mounts.workspace) / _require_directory(directories.workspace, check.cwd)
    companions, launch = directories.companions, directories.launch
    if launch is not None:
        streams = launch.wrap(streams)

    def build(created: list[str]) -> Command:
        if launch is None:
            return build_command(check.argv, cwd, check.env, policy, created)
        filled = launch.fill_values(check.env)
        launch.use(lambda argv, env: build_command(argv, cwd, {**filled, **env}, policy, created))
        return build_command(launch.fill(check.argv), cwd, filled, policy, created)

    return SupervisedCheck(
        build_command=build,
        streams=streams,
        deadline_s=check.timeout_s,
        stop_condition=stop_condition,
        surround=(lambda guest: companions.run_beside(guest, stop_condition)) if companions else surround_with_nothing,
        beside=launch.run_beside if launch else None,
        disk_used=directories.read_disk_used,
        neighbours=companions.neighbours if companions else ALONE,
    )


def _require_directory(workspace: Path, cwd: str) -> str:
    """Return a check's directory, after checking that it is a directory and no part of its path is a link."""
    if cwd == ".":
        return "."
    path = parse_repo_path(cwd)
    with WorktreeFiles(workspace) as files:
        files.require_directory(path)
    return path


def _stable_number(text: str) -> int:
    """Return a number that is the same in every process: options must not change, or a container is not reused."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4])


def _digest(options: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(options, sort_keys=True).encode()).hexdigest()
