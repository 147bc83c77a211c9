"""Who asked for an operation, and how it came to be allowed."""

from __future__ import annotations

from typing import Literal

from sandbox.models.model import Model


class Caller(Model):
    """The user of the system who asked, and the program or agent that spoke for them.

    `user`: by the system's accounts, not by the environment; `sudo_user`: who `sudo` says they were before.
    `program`: what a Python program was started as. `client`, `client_version`: what an MCP client says it is, which
    nothing proves. `session`: tells connections apart: over HTTP a digest of the session's id, else one for each server
    process.
    """

    uid: int
    user: str
    sudo_user: str = ""
    program: str = ""
    client: str = ""
    client_version: str = ""
    transport: Literal["", "stdio", "http"] = ""
    session: str = ""


class Permission(Model):
    """How an agent's call came to be allowed.

    `how`: the policy allows the tool (`policy`); the server was started with `--approvals auto` and nobody was asked
    (`auto`); an approval of the tool for a task or repository (`standing`), or of exactly this call (`person`).
    `decided_by`: as in the approval.
    """

    how: Literal["policy", "auto", "standing", "person"]
    approval_id: str = ""
    decided_by: str = ""
