"""The policy rules in force and where each is set."""

from __future__ import annotations

from typing import Literal

from sandbox.models.model import Model


class PolicyRule(Model):
    """One rule of a policy. `key`: as in the policy's file, tables with dots.

    `origin`: shipped with the sandbox (`built-in`), a file in the home's `policies/` (`operator`), `config.toml`
    (`config`), a variable (`environment`), or passed by a program (`program`). `source`: the file or variable; '' for a
    default of the code and for a rule that cannot be set.
    """

    policy: Literal["container", "commit", "paths", "approvals", "settings"]
    key: str
    value: bool | int | float | str | tuple[str, ...]
    origin: Literal["built-in", "operator", "config", "environment", "program"]
    source: str = ""


class PolicyAnswer(Model):
    """What one path, URL, tool or check would meet. `outcome`: `asked` if a person would be asked; `flagged` if it goes
    through and a person sees it before a push. `rule`: the key in `policy show`, or what has none. `source`: its file.
    """

    subject: str
    outcome: Literal["allowed", "flagged", "asked", "refused"]
    rule: str
    why: str = ""
    source: str = ""


class PolicyDifference(Model):
    """One rule that is not as shipped, or not as in another home. None: there is no such rule."""

    policy: str
    key: str
    before: str | None
    now: str | None
    source: str
