"""`sandbox policy`: the policy rules in force and where each is set."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from sandbox.cli.invocation import Invocation, global_options, show_table
from sandbox.text import one_line

if TYPE_CHECKING:
    from sandbox.models import PolicyRule


@click.group()
def policy() -> None:
    """Show the policy rules in force and where each is set."""


@policy.command()
@click.argument("name", metavar="[NAME]", required=False)
@global_options
@click.pass_obj
def show(invocation: Invocation, name: str | None) -> None:
    """Show all rules in force, or those of NAME: container, commit, paths, approvals or settings.

    ORIGIN is built-in, operator (a file in the home's policies/), config (config.toml), environment or program.
    """
    with invocation.workbench() as workbench:
        found = workbench.policy(name)
    headers = ["POLICY", "KEY", "VALUE", "ORIGIN", "SOURCE"]
    invocation.emit({"rules": found}, lambda: show_table(headers, [_row(rule) for rule in found]))


def _row(rule: PolicyRule) -> list[str]:
    value = ", ".join(rule.value) if isinstance(rule.value, tuple) else rule.value
    text = str(value).lower() if isinstance(value, bool) else str(value)
    source = rule.source if rule.origin != "built-in" else "-"
    return [rule.policy, one_line(rule.key), one_line(text)[:100] or "-", rule.origin, one_line(source)]
