"""Who called an operation, and why it was allowed."""

from __future__ import annotations

from typing import Literal

from sandbox.models.model import Model


class Caller(Model):
    """The system user who called, and the program or agent that acted for this user.

    `user`: from the system's accounts, not from the environment. `sudo_user`: the user before `sudo`, as `sudo` says.
    `program`: the name a Python program was started with. `client`, `client_version`: what an MCP client claims to be,
    not verified. `session`: identifies the connection: over HTTP a digest of the session's id, else one value for each
    server process.
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
    """Why an agent's call was allowed.

    `how`: the policy allows the tool (`policy`), or allows it for what is sent (`diff`); the server runs with
    `--approvals auto`, which does not ask (`auto`); no question was needed, as the packages that it asks for are there,
    or the task that it closes is closed, or the call was carried out before under `approval_id` (`known`); an approval
    of the tool for a task or repository (`standing`), or of exactly this call (`person`).
    `decided_by`: as in the approval.
    """

    how: Literal["policy", "diff", "auto", "known", "standing", "person"]
    approval_id: str = ""
    decided_by: str = ""
