"""The rules in force, and where each comes from."""

from __future__ import annotations

from typing import Literal

from sandbox.models.model import Model


class PolicyRule(Model):
    """One rule of a policy. `key`: as it is written in the policy's file, tables with dots.

    `origin`: shipped with the sandbox (`built-in`), a file in the home's `policies/` (`operator`), `config.toml`
    (`config`), a variable (`environment`), or what a program passed (`program`). `source`: the file or variable; '' for
    a default of the program and for what is no option at all.
    """

    policy: Literal["container", "commit", "paths", "approvals", "settings"]
    key: str
    value: bool | int | float | str | tuple[str, ...]
    origin: Literal["built-in", "operator", "config", "environment", "program"]
    source: str = ""
