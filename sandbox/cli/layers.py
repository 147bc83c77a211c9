"""`sandbox layers`: the packages that checks get, fetched and installed apart."""

from __future__ import annotations

import click

from sandbox.cli.build_progress import BuildProgress
from sandbox.cli.gc import show_leftovers
from sandbox.cli.invocation import Invocation, global_options, show_table
from sandbox.cli.time_format import format_for_listing
from sandbox.errors import SandboxError
from sandbox.models.layers import LayerDetails, LayerSummary, PreparedLayers
from sandbox.text import one_line
from sandbox.workbench import Watch

_MEGABYTE = 1e6


@click.group()
def layers() -> None:
    """List, show, build and remove layers: the packages that repositories ask for."""


@layers.command("list")
@global_options
@click.pass_obj
def list_(invocation: Invocation) -> None:
    """List the layers of this home, the one used last first."""
    with invocation.workbench() as workbench:
        found = workbench.layers()
    invocation.emit({"layers": found}, lambda: _show_all(found))


def _show_all(found: tuple[LayerSummary, ...]) -> None:
    rows = [
        [layer.key[:12], layer.ecosystem, str(layer.packages), _size(layer.bytes), format_for_listing(layer.used_at)]
        for layer in found
    ]
    show_table(["LAYER", "KIND", "PACKAGES", "SIZE", "USED"], rows)


@layers.command()
@click.argument("key")
@global_options
@click.pass_obj
def show(invocation: Invocation, key: str) -> None:
    """Show the packages of a layer, how they were chosen, and which hosts the fetch asked for."""
    with invocation.workbench() as workbench:
        found = workbench.layer(key)
    invocation.emit(found, lambda: _show_one(found))


def _show_one(found: LayerDetails) -> None:
    layer = found.layer
    click.echo(f"{layer.key}\n  {layer.ecosystem}, {_size(layer.bytes)}, {layer.files} files, built in "
               f"{layer.wall_time_s:.1f} s, used {format_for_listing(found.used_at)}")  # fmt: skip
    for package in layer.packages:
        click.echo(f"  {package.name} {package.version}  sha256:{package.sha256[:12]}")
    for file in layer.left_out:
        click.echo(f"  left out, it cannot be built: {file}")
    for resolution in found.resolutions:
        click.echo(f"  chosen from: {resolution.selection}")
        hosts = dict.fromkeys(f"{access.host}:{access.port}" for access in resolution.accesses)
        click.echo(f"    hosts asked for: {', '.join(map(one_line, hosts)) or '-'}")
        for refused in resolution.refused:
            click.echo(f"    refused, {refused.reason.value}: {one_line(refused.text)} ({one_line(refused.origin)})")


@layers.command()
@click.argument("task_id", metavar="TASK")
@global_options
@click.pass_obj
def build(invocation: Invocation, task_id: str) -> None:
    """Fetch and install the packages that TASK's last commit asks for. `run`, `verify` and checks do it too."""
    progress = BuildProgress(invocation.status)
    try:
        with invocation.workbench() as workbench:
            found = workbench.build_layers(task_id, Watch(building=progress.add_line))
    except SandboxError:
        progress.show_log()
        raise
    invocation.emit(found, lambda: _show_prepared(found))


def _show_prepared(found: PreparedLayers) -> None:
    _show_all(found.layers)
    for refused in found.refused:
        click.echo(f"refused, {refused.reason.value}: {one_line(refused.text)} ({one_line(refused.origin)})")


@layers.command()
@click.argument("key")
@global_options
@click.pass_obj
def remove(invocation: Invocation, key: str) -> None:
    """Remove a layer that no check uses. It is built again when it is needed."""
    with invocation.workbench() as workbench:
        found = workbench.remove_layer(key)
    invocation.emit(found, lambda: click.echo(f"removed {found.removed[0][:12]}, {_size(found.freed_bytes)}"))


@layers.command()
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@global_options
@click.pass_obj
def gc(invocation: Invocation, dry_run: bool) -> None:
    """Remove layers past layers.keep_days and layers.max_bytes. `sandbox gc` does it too."""
    with invocation.workbench() as workbench:
        found = workbench.collect_layers(dry_run=dry_run)
    invocation.emit(found, lambda: show_leftovers(found))


def _size(count: int) -> str:
    return f"{count / _MEGABYTE:.1f} MB"
