"""`sandbox doctor`: what this host offers and lacks."""

from __future__ import annotations

import click

from sandbox.cli.invocation import Invocation, copyable, global_options
from sandbox.models import Probe, ProbeLevel

_COLORS = {ProbeLevel.OK: "green", ProbeLevel.WARN: "yellow", ProbeLevel.FAIL: "red"}


@click.command()
@click.option("--attack", is_flag=True, help="Run the known attacks against this very host and say how each ended.")
@click.option("--only", multiple=True, metavar="SECTION|ID", help="With --attack: only these, e.g. K or A01.")
@click.option("--explain", is_flag=True, help="With --attack: run nothing; say what each attack is and what stops it.")
@global_options
@click.pass_obj
def doctor(invocation: Invocation, attack: bool, only: tuple[str, ...], explain: bool) -> int:
    """Check the engine, the kernel, the images and git. Exits 5 when a line fails; with --attack 1 when one is hit."""
    if (only or explain) and not attack:
        raise click.UsageError(f"{'--only' if only else '--explain'} goes with --attack.")
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
            click.echo(f"      {'':<{width}}  -> {copyable(probe.hint)}")
