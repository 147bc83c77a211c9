"""What a task requires of a worker, and which workers have it. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from pydantic import TypeAdapter, ValidationError

from sandbox.config import Labels, Settings
from sandbox.document_errors import describe_errors
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import Limits
from sandbox.models.operations import WorkerInfo
from sandbox.models.workers import HostCapabilities
from sandbox.profiles import Profile

Requirements = Mapping[str, str]
"""By name: a capability (`sandbox.config.CAPABILITIES`) or a label."""

_SIZE = re.compile(r"([0-9]{1,15})([kmgt]?)(i?b)?", re.IGNORECASE)
_UNITS = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}
_LABELS: TypeAdapter[dict[str, str]] = TypeAdapter(Labels)
_SHOWN_WORKERS = 20


def check_requirements(requirements: Requirements) -> dict[str, str]:
    """Raises: `invalid_input` for a name or value that is not possible."""
    try:
        found = _LABELS.validate_python(dict(requirements))
        for key, read in _READ_VALUE.items():
            if key in found:
                read(found[key])
    except ValidationError as error:
        raise _requirement_error(describe_errors(error)) from error
    except ValueError as error:
        raise _requirement_error(str(error)) from error
    return found


def _requirement_error(details: str) -> SandboxError:
    return SandboxError(
        ErrorCode.INVALID_INPUT,
        "This cannot be required of a worker",
        details=details,
        hint="Require arch=arm64, cgroup=2, cpus=8, memory=16g, runtime=runsc, or a label such as zone=a.",
    )


def find_profile_requirements(settings: Settings, profile: Profile | None, repo_id: str) -> dict[str, str]:
    """What the settings of a profile and of a repository require, and what the profile's checks need: the runtime that
    was set for it, and memory beyond the default limit. None of a profile that is not known yet.
    """
    found: dict[str, str] = {}
    if profile is not None:
        memory_bytes = max((check.limits.memory_bytes for check in profile.checks), default=0)
        if memory_bytes > Limits().memory_bytes:
            found["memory"] = str(memory_bytes)
        if (ours := settings.profiles.get(profile.name)) is not None:
            found |= {"runtime": ours.runtime} if ours.runtime else {}
            found |= ours.require
    if (repository := settings.repositories.get(repo_id)) is not None:
        found |= repository.require
    return found


def list_unmet(worker: WorkerInfo, requirements: Requirements) -> tuple[str, ...]:
    """The requirements that a worker does not meet, `arch=arm64`; all of them if it does not say what it can do."""
    found = worker.capabilities
    return tuple(
        f"{key}={value}" for key, value in sorted(requirements.items()) if found is None or not _has(found, key, value)
    )


def require_worker(workers: Sequence[WorkerInfo], requirements: Requirements) -> None:
    """Raises: `engine_unavailable` (`reason`: `requirements_unmet`) if no worker meets all requirements. `data`: what
    no worker has, and what each one lacks.
    """
    unmet = {worker.id: list_unmet(worker, requirements) for worker in workers}
    if not requirements or () in unmet.values():
        return
    wanted = [f"{key}={value}" for key, value in sorted(requirements.items())]
    nowhere = [text for text in wanted if all(text in lacking for lacking in unmet.values())]
    brief = f"No worker has {', '.join(nowhere)}" if nowhere else f"No worker has all of {', '.join(wanted)}"
    lines = [f"{worker.id} lacks {', '.join(unmet[worker.id])}. It has {describe(worker)}." for worker in workers]
    more = [f"And {len(lines) - _SHOWN_WORKERS} more."] if len(lines) > _SHOWN_WORKERS else []
    raise SandboxError(
        ErrorCode.ENGINE_UNAVAILABLE,
        brief,
        details="\n".join([*lines[:_SHOWN_WORKERS], *more]) or "The cluster has no workers.",
        hint="Start a worker that has it (`sandbox worker --label NAME=VALUE` for a label), or require less. "
        "`sandbox cluster workers` shows what each has.",
        reason="requirements_unmet",
        data={"requirements": dict(requirements), "nowhere": nowhere, "unmet": {k: list(v) for k, v in unmet.items()}},
    )


def describe(worker: WorkerInfo) -> str:
    """What a worker has, for people."""
    found = worker.capabilities
    if found is None:
        return "not announced it: it is of an earlier version"
    words = [f"arch={found.arch}", f"cgroup={found.cgroup or 'none'}", f"cpus={found.cpus}"]
    words += [f"memory={found.memory_bytes // 1024**2}m", *(f"runtime={name}" for name in found.runtimes)]
    return ", ".join([*words, *(f"{key}={value}" for key, value in sorted(found.labels.items()))])


def parse_size(text: str) -> int:
    """Bytes of `16g`, `512MiB` or `1024`: powers of 1024, as for Docker. Raises: ValueError."""
    found = _SIZE.fullmatch(text)
    if found is None:
        raise ValueError(f"'{text[:80]}' is no size of memory, such as 16g")
    return int(found[1]) * _UNITS[found[2].lower()]


def _parse_cpus(text: str) -> float:
    if not re.fullmatch(r"[0-9]{1,5}(\.[0-9]{1,3})?", text):
        raise ValueError(f"'{text[:80]}' is no number of CPUs")
    return float(text)


def _parse_cgroup(text: str) -> str:
    if text not in {"1", "2"}:
        raise ValueError(f"'{text[:80]}' is no version of control groups: 1 or 2")
    return text


_READ_VALUE: Mapping[str, Callable[[str], object]] = {
    "cgroup": _parse_cgroup,
    "cpus": _parse_cpus,
    "memory": parse_size,
}
_HAS: Mapping[str, Callable[[HostCapabilities, str], bool]] = {
    "arch": lambda found, value: found.arch == value,
    "cgroup": lambda found, value: found.cgroup == value,
    "cpus": lambda found, value: found.cpus >= _parse_cpus(value),
    "memory": lambda found, value: found.memory_bytes >= parse_size(value),
    "runtime": lambda found, value: value in found.runtimes,
}


def _has(found: HostCapabilities, key: str, value: str) -> bool:
    has = _HAS.get(key)
    return found.labels.get(key) == value if has is None else has(found, value)
