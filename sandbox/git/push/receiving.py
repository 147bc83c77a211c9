"""A push to a local path: git on this host receives it, in a repository with a configuration that is not ours.

By default git would run that repository's hooks as our user, check out with its filters, and run its housekeeping.
"""

from __future__ import annotations

import shlex

from sandbox.git.process import Git, git_executable
from sandbox.remotes import Remote

MAX_PACK_BYTES = 8 * 1024**3
"""Of the one file that is written: the pack that a local path receives."""

_EVENTS = (
    "pre-receive", "update", "proc-receive", "reference-transaction", "post-receive", "post-update",
    "push-to-checkout", "post-index-change", "post-checkout", "pre-auto-gc",
)  # fmt: skip
_HARDENING = (
    "core.hooksPath=/dev/null",
    *(f"hook.{event}.enabled=false" for event in _EVENTS),  # hooks in the configuration: git 2.54
    "core.fsmonitor=false",
    "core.alternateRefsCommand=/bin/false",
    "receive.denyCurrentBranch=refuse",  # `updateInstead` checks out
    "receive.autogc=false",
    "gc.auto=0",
    "maintenance.auto=false",
)


def receive_pack_options(git: Git, remote: Remote) -> tuple[str, ...]:
    """Options of `git push` that turn all of this off if the remote is a local path; else none."""
    if remote.protocol != "file":
        return ()
    config = (word for item in _HARDENING for word in ("-c", item))
    return (f"--receive-pack={shlex.join([git_executable(git.executable), *config, 'receive-pack'])}",)
