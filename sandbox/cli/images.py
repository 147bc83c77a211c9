"""`sandbox images`: the images that checks run in."""

from __future__ import annotations

from pathlib import Path

import click

from sandbox.byte_sizes import format_bytes
from sandbox.cli.build_progress import BuildProgress
from sandbox.cli.invocation import Invocation, global_options, note, show_table
from sandbox.models import ImageArchive, ImageInfo, TransferredImage
from sandbox.text import one_line


@click.group()
def images() -> None:
    """List, build and copy the images of profiles."""


@images.command("list")
@global_options
@click.pass_obj
def list_(invocation: Invocation) -> None:
    """List the images and whether the engine has them."""
    with invocation.workbench() as workbench:
        found = workbench.images()
    invocation.emit({"images": found}, lambda: _show(found))


def _show(found: tuple[ImageInfo, ...]) -> None:
    rows = [[i.name, _state(i), format_bytes(i.size_bytes), (i.digest or "-")[:19]] for i in found]
    show_table(["IMAGE", "STATE", "SIZE", "DIGEST"], rows)
    for image in found:
        if image.packages:
            click.echo(f"{image.name}: {one_line(image.derived_from)} with {', '.join(image.packages)}")
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
    """Build images: parents first, others in parallel. Images that are up to date are not built again."""
    with _show_builds(invocation, verbose=verbose) as progress, invocation.workbench() as workbench:
        if wheelhouse is None and name_as is None:
            built = workbench.build_images(names, progress.add_line, no_cache=no_cache)
        else:
            built = tuple(
                workbench.build_image(
                    name, progress.add_line, no_cache=no_cache, wheelhouse=wheelhouse, name_as=name_as
                )
                for name in names
            )
    invocation.emit({"images": built}, lambda: _show(built))


def _show_builds(invocation: Invocation, *, verbose: bool) -> BuildProgress:
    return BuildProgress(invocation.status, verbose=verbose, document=invocation.json)


@images.command()
@click.argument("name")
@click.argument("packages", metavar="PACKAGE...", nargs=-1, required=True)
@click.option("-v", "--verbose", is_flag=True, help="Show all output of the build, not only the steps.")
@global_options
@click.pass_obj
def derive(invocation: Invocation, name: str, packages: tuple[str, ...], verbose: bool) -> None:
    """Build the image that a profile with image NAME and these Debian packages uses. Checks build it too."""
    with _show_builds(invocation, verbose=verbose) as progress, invocation.workbench() as workbench:
        built = workbench.derive_image(name, packages, progress.add_line)
    invocation.emit({"image": built}, lambda: _show((built,)))


@images.command()
@click.argument("name")
@global_options
@click.pass_obj
def remove(invocation: Invocation, name: str) -> None:
    """Remove an image with packages of a profile (see `images list`). It is built again when it is needed."""
    with invocation.workbench() as workbench:
        found = workbench.remove_image(name)
    invocation.emit({"image": found}, lambda: click.echo(f"removed {found.name}"))


@images.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("names", metavar="[NAME]...", nargs=-1)
@global_options
@click.pass_obj
def export(invocation: Invocation, file: Path, names: tuple[str, ...]) -> None:
    """Write images to FILE for another host, with all that they need; without names all images that the engine has."""
    with invocation.workbench() as workbench:
        archive = workbench.export_images(file, names, note)
    invocation.emit({"archive": archive}, lambda: _show_archive("exported", archive))


@images.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@global_options
@click.pass_obj
def share(invocation: Invocation, names: tuple[str, ...]) -> None:
    """Put images into the store of cache.url, for other hosts: with cache.images they take them instead of building."""
    with invocation.workbench() as workbench:
        archives = workbench.share_images(names, note)
    invocation.emit({"archives": archives}, lambda: _show_shared(names, archives))


def _show_shared(names: tuple[str, ...], archives: tuple[ImageArchive, ...]) -> None:
    for name, archive in zip(names, archives, strict=True):
        click.echo(f"shared {name} with {len(archive.images)} images, {format_bytes(archive.size_bytes)}")


@images.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--digest", help="Digest that the export printed; another archive is refused.")
@click.option("--replace", is_flag=True, help="Use these images in place of others that were built from their recipes.")
@global_options
@click.pass_obj
def import_(invocation: Invocation, file: Path, digest: str | None, replace: bool) -> None:
    """Import the images of an archive: all of them, or none. Checks trust them as if they were built here."""
    with invocation.workbench() as workbench:
        archive = workbench.import_images(file, note, expected=digest, replace=replace)
    invocation.emit({"archive": archive}, lambda: _show_archive("imported", archive))


def _show_archive(done: str, archive: ImageArchive) -> None:
    rows = [[one_line(image.tag), _transfer_state(done, image), image.digest[:19]] for image in archive.images]
    show_table(["IMAGE", "STATE", "DIGEST"], rows)
    click.echo(f"{done} {len(rows)} images, {format_bytes(archive.size_bytes)}, digest {archive.digest}")


def _transfer_state(done: str, image: TransferredImage) -> str:
    if not image.usable:
        return "of another version"
    return done if image.loaded or done == "exported" else "present"
