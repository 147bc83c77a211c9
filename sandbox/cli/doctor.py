"""`sandbox doctor`: whether this host has what the sandbox needs."""

from __future__ import annotations

import click

from sandbox.cli.invocation import Invocation, add_home, global_options, suggest_pages
from sandbox.models import Probe, ProbeLevel

_COLORS = {ProbeLevel.OK: "green", ProbeLevel.WARN: "yellow", ProbeLevel.FAIL: "red"}


@click.command()
@click.option("--attack", is_flag=True, help="Run the known attacks against this host and report each result.")
@click.option("--only", multiple=True, metavar="SECTION|ID", help="With --attack: only this, e.g. K, A01. Repeatable.")
@click.option("--explain", is_flag=True, help="With --attack: describe each attack and what stops it; run none.")
@global_options
@click.pass_obj
def doctor(invocation: Invocation, attack: bool, only: tuple[str, ...], explain: bool) -> int:
    """Check the engine, the kernel, the images and git.

    Exits with 5 when a line fails; with --attack, exits with 1 unless attacks ran and each was stopped.
    """
    if (only or explain) and not attack:
        raise click.UsageError(f"{'--only' if only else '--explain'} needs --attack.")
    if explain:
        from sandbox.cli.attacks import explain_attacks  # noqa: PLC0415 - as below

        return explain_attacks(invocation, only)
    if attack:
        from sandbox.cli.attacks import run_attacks  # noqa: PLC0415 - lazy: the plain `doctor` stays fast

        return run_attacks(invocation, only)
    with invocation.workbench() as workbench:
        probes = workbench.doctor()
    failed = any(p.level is ProbeLevel.FAIL for p in probes)
    invocation.emit({"probes": probes, "ok": not failed}, lambda: _show(probes))
    return 5 if failed else 0


def _show(probes: tuple[Probe, ...]) -> None:
    width = max(len(p.name) for p in probes)
    for probe in probes:
        level = click.style(f"{probe.level.value:<4}", fg=_COLORS[probe.level], bold=True)
        first, *rest = probe.value.splitlines() or [""]
        click.echo(f"{level}  {probe.name:<{width}}  {first}")
        for line in rest:
            click.echo(f"      {'':<{width}}  {line}")
        if probe.hint and probe.level is not ProbeLevel.OK:
            for line in (f"-> {add_home(probe.hint)}", *suggest_pages(probe.hint)):
                click.echo(f"      {'':<{width}}  {line}")
