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
