"""The command of a check for a supervised guest, with a new environment for each check. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath

from sandbox.engine.create_options import (
    SERVICE_DIRECTORY,
    require_command,
    require_directory,
    require_environment,
)
from sandbox.engine.pid1_messages import MAX_PAYLOAD, Command, command_bytes
from sandbox.errors import ErrorCode, SandboxError
from sandbox.policy.container import EffectiveContainerPolicy


def build_command(
    argv: Sequence[str],
    cwd: PurePosixPath,
    env: Mapping[str, str],
    policy: EffectiveContainerPolicy,
    container_env: Iterable[str],
) -> Command:
    """Build a check's command. `container_env`: the container's environment as the engine reports it, already compared
    with the request: the policy's variables, and harmless ones that the image adds and its programs may need.

    Raises: `policy_violation` for a command, directory or variable that a check may not have.
    """
    require_directory(cwd, policy)
    return _build(argv, cwd, env, container_env)


def build_service_command(argv: Sequence[str], env: Mapping[str, str], container_env: Iterable[str]) -> Command:
    """Build the command of a service, which runs in a directory of its own. Parameters and errors as above."""
    return _build(argv, SERVICE_DIRECTORY, env, container_env)


def _build(argv: Sequence[str], cwd: PurePosixPath, env: Mapping[str, str], container_env: Iterable[str]) -> Command:
    require_command(argv)
    require_environment(env)
    pairs = (entry.partition("=") for entry in container_env)
    fixed = {name: value for name, separator, value in pairs if separator}  # a bare name removes what the image sets
    command = Command(tuple(argv), cwd, {**fixed, **env})
    if (size := command_bytes(command)) > MAX_PAYLOAD:
        raise SandboxError(
            ErrorCode.POLICY_VIOLATION,
            f"The command and environment take {size} bytes; the maximum is {MAX_PAYLOAD}",
            hint="Put long values into a file of the repository.",
        )
    return command
