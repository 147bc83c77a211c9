"""`sandbox policy`: the rules in force, where each is set, what they say of something, and how they differ."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sandbox.cli.invocation import Invocation, global_options, show_table
from sandbox.text import one_line

if TYPE_CHECKING:
    from sandbox.models import PolicyAnswer, PolicyDifference, PolicyRule
    from sandbox.workbench import Workbench

_REFUSED_CODE = 3


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


@policy.command()
@click.option("--diff", "patch", type=click.File("rb"), metavar="FILE", help="A unified diff; `-`: stdin.")
@click.option("--path", "paths", multiple=True, help="A path of a new file. Repeatable.")
@click.option("--url", "urls", multiple=True, help="A URL of a remote. Repeatable.")
@click.option("--tool", "tools", multiple=True, metavar="NAME", help="A tool that an agent would call. Repeatable.")
@click.option("--check", "checks", multiple=True, nargs=2, metavar="TASK ID", help="A check of a task or repository.")
@click.option("--repo", "repo_id", default="", metavar="REPO", help="Repository of --diff and --path, for exceptions.")
@global_options
@click.pass_obj
def check(invocation: Invocation, /, **what: Any) -> int:
    """Say what a diff, path, URL, tool call or check would meet, and which rule says so. It changes no file.

    Exits with 3 if anything would be refused.
    """
    if not any(what[name] for name in ("patch", "paths", "urls", "tools", "checks")):
        raise click.UsageError("Name at least one of --diff, --path, --url, --tool and --check.")
    with invocation.workbench() as workbench:
        found = list(_ask(workbench, what))
    rows = [[one_line(cell) or "-" for cell in (a.subject, a.outcome, a.rule, a.why, a.source)] for a in found]
    headers = ["SUBJECT", "OUTCOME", "RULE", "WHY", "SOURCE"]
    invocation.emit({"answers": found}, lambda: show_table(headers, rows))
    return _REFUSED_CODE if any(answer.outcome == "refused" for answer in found) else 0


def _ask(workbench: Workbench, what: dict[str, Any]) -> Iterator[PolicyAnswer]:
    if what["patch"] is not None:
        yield from workbench.check_patch(what["patch"].read(), what["repo_id"])
    yield from workbench.check_paths(what["paths"], what["repo_id"])
    yield from map(workbench.check_url, what["urls"])
    yield from (_ask_about_tool(workbench, name) for name in what["tools"])
    for owner, check_id in what["checks"]:
        yield from workbench.check_limits(owner, check_id)


def _ask_about_tool(workbench: Workbench, name: str) -> PolicyAnswer:
    from sandbox.agent.tools import TOOLS  # noqa: PLC0415 - lazy: other questions do not load the agent's server

    if name not in TOOLS:
        raise click.UsageError(f"--tool: there is no tool {name[:100]!r}.")
    return workbench.check_tool(name, TOOLS[name].risk)


@policy.command()
@click.argument(
    "other", metavar="[HOME]", required=False, type=click.Path(file_okay=False, exists=True, path_type=Path)
)
@global_options
@click.pass_obj
def diff(invocation: Invocation, other: Path | None) -> None:
    """Show the rules in force that are not as shipped, or not as in another HOME, which is only read."""
    with invocation.workbench() as workbench:
        found = workbench.policy_differences(other)
    headers = ["POLICY", "KEY", "THERE" if other else "SHIPPED", "HERE", "SOURCE"]
    invocation.emit({"differences": found}, lambda: show_table(headers, [_difference(each) for each in found]))


def _difference(found: PolicyDifference) -> list[str]:
    values = ("-" if value is None else one_line(value)[:100] or "''" for value in (found.before, found.now))
    return [found.policy, one_line(found.key), *values, one_line(found.source) or "-"]
