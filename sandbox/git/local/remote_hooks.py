"""The hooks of a local repository that a push would have run, had git itself received it.

They are programs of a directory that may be hostile, so they are looked up and never started (THREATS E12, ADR 179).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from sandbox.errors import ErrorCode, SandboxError
from sandbox.git.local.local_remotes import local_path_of
from sandbox.git.local.repository_layout import LocalRepository, open_local_repository
from sandbox.git.process import Git
from sandbox.remotes import Remote

_DECIDING = ("pre-receive", "update", "proc-receive")
"""githooks(5): each may decline a push; `proc-receive` may also put the commit elsewhere."""
_INFORMED = ("reference-transaction", "post-receive", "post-update")
"""Run for a push that was accepted. The first may decline too, but tools such as git-branchless install it into
everyone's own checkout, to keep a record."""
_FALSE = {"false", "no", "off", "0"}


def find_skipped_hooks(git: Git, remote: Remote) -> tuple[str, ...]:
    """Names of the hooks that a push to `remote` does not run; empty for a remote on the network, which runs its own.

    Raises: `unsafe_repository`.
    """
    path = local_path_of(remote)
    return () if path is None else tuple(_list_hooks(open_local_repository(git, path), (*_DECIDING, *_INFORMED)))


def require_no_deciding_hook(repository: LocalRepository) -> None:
    """Raises: `policy_violation` if the repository has a hook that could have declined the push."""
    found = list(_list_hooks(repository, _DECIDING))
    if found:
        raise SandboxError(
            ErrorCode.POLICY_VIOLATION,
            f"The local repository has hooks that may decline a push, and they are not run: {', '.join(found)}",
            details=str(repository.common_dir),
            hint="No data was sent. A hook of a local path would run on this host, unprotected. Push with git, which "
            "runs it: `sandbox task apply TASK --to DIR` takes the work into your own checkout. Or clone the "
            "repository by ssh or https, where its server runs its hooks.",
            reason="hooks_not_run",
            data={"hooks": found},
        )


def _list_hooks(repository: LocalRepository, events: tuple[str, ...]) -> Iterator[str]:
    folder = _find_folder(repository)
    configured = set(_list_configured(repository))
    return (event for event in events if event in configured or _is_program(folder / event))


def _find_folder(repository: LocalRepository) -> Path:
    """git-config(1), `core.hooksPath`: relative to where hooks run, which for a push is the git directory."""
    named = repository.last_value("core.hookspath") or "hooks"
    return repository.common_dir / (Path(named).expanduser() if named.startswith("~/") else named)


def _list_configured(repository: LocalRepository) -> Iterator[str]:
    """Events of hooks that are in the configuration itself, as git 2.54 reads them."""
    for key, event in repository.config:
        name = key.removeprefix("hook.").removesuffix(".event")
        if key == f"hook.{name}.event" and repository.last_value(f"hook.{name}.enabled").lower() not in _FALSE:
            yield event


def _is_program(path: Path) -> bool:
    """As git decides it. Only asks for permissions: opening a pipe waits."""
    return os.access(path, os.X_OK) and path.is_file()
