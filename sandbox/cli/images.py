"""`sandbox images`: the images that checks run in."""

from __future__ import annotations

from pathlib import Path

import click

from sandbox.cli.build_progress import BuildProgress
from sandbox.cli.invocation import Invocation, global_options, note, show_table
from sandbox.errors import SandboxError
from sandbox.models import ImageInfo

_MEGABYTE = 1e6


@click.group()
def images() -> None:
    """List and build the images of profiles."""


@images.command("list")
@global_options
@click.pass_obj
def list_(invocation: Invocation) -> None:
    """List the images and whether the engine has them."""
    with invocation.workbench() as workbench:
        found = workbench.images()
    invocation.emit({"images": found}, lambda: _show(found))


def _show(found: tuple[ImageInfo, ...]) -> None:
    rows = [[i.name, _state(i), f"{(i.size_bytes or 0) / _MEGABYTE:.0f} MB", (i.digest or "-")[:19]] for i in found]
    show_table(["IMAGE", "STATE", "SIZE", "DIGEST"], rows)
    for image in found:
        if image.problem:
            note(f"{image.name}: {image.problem}")


def _state(image: ImageInfo) -> str:
    if image.problem:
        return "broken"
    if not image.present:
        return "missing"
    return "stale" if image.stale else "present"


@images.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option("--no-cache", is_flag=True, help="Build every layer again.")
@click.option(
    "--wheelhouse",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="With --as: requirements file; the new image also contains these wheels.",
)
@click.option("--as", "name_as", help="With --wheelhouse: name of the new image.")
@click.option("-v", "--verbose", is_flag=True, help="Show all output of the builds, not only the steps.")
@global_options
@click.pass_obj
def build(
    invocation: Invocation,
    names: tuple[str, ...],
    no_cache: bool,
    wheelhouse: Path | None,
    name_as: str | None,
    verbose: bool,
) -> None:
    """Build images, parents first. Images that are up to date are not built again."""
    progress = BuildProgress(invocation.status, verbose=verbose)
    try:
        with invocation.workbench() as workbench:
            built = tuple(
                workbench.build_image(
                    name, progress.add_line, no_cache=no_cache, wheelhouse=wheelhouse, name_as=name_as
                )
                for name in names
            )
    except SandboxError:
        progress.show_log()
        raise
    invocation.emit({"images": built}, lambda: _show(built))
