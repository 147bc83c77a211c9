"""`sandbox layers`: the packages that checks get, fetched and installed apart."""

from __future__ import annotations

import click

from sandbox.byte_sizes import format_bytes
from sandbox.cli.background import start_detached
from sandbox.cli.build_progress import BuildProgress
from sandbox.cli.gc import show_leftovers
from sandbox.cli.invocation import Invocation, global_options, show_examples
from sandbox.cli.layer_tables import show_layers, show_prepared
from sandbox.cli.time_format import format_for_listing
from sandbox.models.layers import LayerDetails
from sandbox.text import one_line
from sandbox.workbench import Watch


@show_examples(
    ("sandbox layers build REPO", "fetch its packages now"),
    ("sandbox layers show KEY --sbom", "list what a layer holds, as CycloneDX"),
)
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
    invocation.emit({"layers": found}, lambda: show_layers(found))


@layers.command()
@click.argument("key")
@click.option("--sbom", is_flag=True, help="Print the packages as a CycloneDX document (JSON).")
@global_options
@click.pass_obj
def show(invocation: Invocation, key: str, sbom: bool) -> None:
    """Show the packages of a layer, who uses it, how they were chosen, and which hosts the fetch asked for."""
    with invocation.workbench() as workbench:
        if sbom:
            click.echo(workbench.layer_sbom(key))
            return
        found = workbench.layer(key)
    invocation.emit(found, lambda: _show_one(found))


def _show_one(found: LayerDetails) -> None:
    layer = found.layer
    click.echo(
        f"{layer.key}\n  {layer.ecosystem}, {format_bytes(layer.bytes)}, {layer.files} files, built "
        f"{format_for_listing(layer.built_at)} in {layer.wall_time_s:.1f} s, used {format_for_listing(found.used_at)}"
    )
    for user in found.users:
        task = f" {user.task_id}" if user.task_id else ""
        click.echo(f"  used by {user.repo_id}{task}, {format_for_listing(user.used_at)}")
    for package in layer.packages:
        click.echo(f"  {package.name} {package.version}  sha256:{package.sha256[:12]}")
    for file in layer.left_out:
        click.echo(f"  left out, it cannot be built: {file}")
    for file in layer.without_extension:
        click.echo(f"  built without an extension, which does not compile: {file}")
    if layer.shortage is not None:
        click.echo(
            f"  the build ran short of {', '.join(layer.shortage.of)}: checks build what is missing again, later"
        )
    for resolution in found.resolutions:
        click.echo(f"  chosen from: {resolution.selection}")
        hosts = dict.fromkeys(f"{access.host}:{access.port}" for access in resolution.accesses)
        click.echo(f"    hosts asked for: {', '.join(map(one_line, hosts)) or '-'}")
        for refused in resolution.refused:
            click.echo(f"    refused, {refused.reason.value}: {one_line(refused.text)} ({one_line(refused.origin)})")


@layers.command()
@click.argument("owner_id", metavar="TASK|REPO")
@click.option("--refresh", is_flag=True, help="Choose the packages anew, also if the same manifests led to a layer.")
@click.option("--detach", is_flag=True, help="Return at once; the build runs in the background (see check wait).")
@global_options
@click.pass_obj
def build(invocation: Invocation, owner_id: str, refresh: bool, detach: bool) -> int:
    """Fetch and install the packages that a task's last commit, or a repository's default branch, asks for.

    `run`, `verify` and checks do it too.
    """
    if detach:
        return start_detached(invocation, lambda workbench: workbench.start_layers(owner_id, refresh=refresh))
    with BuildProgress(invocation.status) as progress, invocation.workbench() as workbench:
        found = workbench.build_layers(owner_id, Watch(building=progress.add_line), refresh=refresh)
    invocation.emit(found, lambda: show_prepared(found))
    return 0


@layers.command()
@click.argument("key")
@global_options
@click.pass_obj
def remove(invocation: Invocation, key: str) -> None:
    """Remove a layer that no check uses. It is built again when it is needed."""
    with invocation.workbench() as workbench:
        found = workbench.remove_layer(key)
    invocation.emit(found, lambda: click.echo(f"removed {found.removed[0][:12]}, {format_bytes(found.freed_bytes)}"))


@layers.command()
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@global_options
@click.pass_obj
def gc(invocation: Invocation, dry_run: bool) -> None:
    """Remove layers past layers.keep_days and layers.max_bytes. `sandbox gc` does it too."""
    with invocation.workbench() as workbench:
        found = workbench.collect_layers(dry_run=dry_run)
    invocation.emit(found, lambda: show_leftovers(found))
