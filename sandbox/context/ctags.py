"""Find the symbols of a tree with ctags in a guest: parsers of hostile input do not run on the host.

The tree is mounted read-only; there is no network; output and time are bounded. The output is guest data: lines in
another format are dropped. Format: ctags-json-output(5). A repository of 25,000 files gives 300,000 lines: each is
validated in one step, and fields that the map does not show (the pattern is half of a line) are not requested.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from sandbox.engine.container_labels import INSTANCE_LABEL, RUN_LABEL
from sandbox.engine.container_types import Streams
from sandbox.engine.create_options import ContainerSpec, GuestAccount, create_options
from sandbox.engine.protocol import GuestRunner
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import Limits
from sandbox.policy.container import EffectiveContainerPolicy

_log = logging.getLogger(__name__)

DEADLINE_S = 120.0
OUTPUT_BYTES = 64 * 1024**2
_ARGV = (
    "ctags",
    "--options=NONE",
    "--recurse",
    "--links=no",
    "--sort=no",
    "--output-format=json",
    "--fields=+nKS-P-t-f",
    "-f",
    "-",
    ".",
)


def _require_printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("not printable")
    return text


def _strip_dot_prefix(path: str) -> str:
    return _require_printable(path).removeprefix("./")


class Symbol(BaseModel):
    """One definition. Guest data."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_require_printable)]
    path: Annotated[str, Field(min_length=1, max_length=4096), AfterValidator(_strip_dot_prefix)]
    line: int = Field(ge=1)
    kind: Annotated[str, Field(max_length=40), AfterValidator(_require_printable)]
    scope: Annotated[str, Field(max_length=400), AfterValidator(_require_printable)] = ""
    signature: Annotated[str, Field(max_length=400), AfterValidator(_require_printable)] = ""


@dataclass(frozen=True)
class CtagsRun:
    """Where ctags runs: the guest's name, image and settings, and the host path of the tree."""

    name: str
    engine: GuestRunner
    policy: EffectiveContainerPolicy
    image_digest: str
    runtime: str
    account: GuestAccount
    instance: str
    tree: Path
    cgroup_parent: str


def read_symbols(run: CtagsRun) -> list[Symbol]:
    """Return the definitions in the first `OUTPUT_BYTES` of ctags' output.

    Raises: `timeout`, `internal`, and the errors of the engine adapter.
    """
    out, errors = _BoundedBuffer(OUTPUT_BYTES), _BoundedBuffer(64 * 1024)
    options = create_options(_container_spec(run), run.policy)
    ending = run.engine.run_to_end(run.name, options, Streams(out.append, errors.append), deadline_s=DEADLINE_S)
    if ending.timed_out:
        raise SandboxError(
            ErrorCode.TIMEOUT, f"ctags did not finish within {DEADLINE_S:g} s", hint="Use include_globs."
        )
    if ending.exit_code != 0 or ending.oom_killed:
        details = bytes(errors.content[-2000:]).decode("utf-8", errors="replace")
        raise SandboxError(ErrorCode.INTERNAL, f"ctags ended with exit code {ending.exit_code}", details=details)
    if len(out.content) == OUTPUT_BYTES:
        _log.warning("ctags printed more than %d bytes: symbols of the last files are missing", OUTPUT_BYTES)
    return list(parse_symbols(bytes(out.content)))


def parse_symbols(output: bytes) -> Iterator[Symbol]:
    """Parse ctags' JSON lines; invalid lines are skipped. Pure."""
    for line in output.splitlines():
        try:
            yield Symbol.model_validate_json(line)
        except ValidationError:
            continue


class _BoundedBuffer:
    """Keeps the first bytes of a stream."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.content = bytearray()

    def append(self, chunk: bytes) -> None:
        self.content += chunk[: self._limit - len(self.content)]


def _container_spec(run: CtagsRun) -> ContainerSpec:
    return ContainerSpec(
        name=run.name,
        image=run.image_digest,
        argv=_ARGV,
        cwd=PurePosixPath(run.policy.container.mounts.workspace),
        env={},
        limits=run.policy.container.within_ceiling(Limits(memory_bytes=1024**3, cpus=1.0, pids=64)),
        workspace=run.tree,
        git_mask=None,
        report=None,
        user=run.account.user,
        runtime=run.runtime,
        labels={INSTANCE_LABEL: run.instance, RUN_LABEL: run.name},
        cpuset="",
        workspace_read_only=True,
        account_files=run.account.files,
        cgroup_parent=run.cgroup_parent,
    )
