"""`sandbox artifacts`: the files of runs that profiles ask to keep."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sandbox.cli.invocation import Invocation, global_options, note, show_table
from sandbox.cli.output_files import writing
from sandbox.text import one_line

if TYPE_CHECKING:
    from sandbox.models import ArtifactList


@click.group()
def artifacts() -> None:
    """List and get the files that checks left and their profile asks to keep ([[check.artifact]])."""


@artifacts.command("list")
@click.argument("run_id", metavar="RUN")
@click.option("--base", metavar="RUN", help="A run of the same check on the base, to compare the coverage with.")
@global_options
@click.pass_obj
def list_(invocation: Invocation, run_id: str, base: str | None) -> None:
    """List the artifacts of RUN, what was not kept and why, and the coverage that it says."""
    with invocation.workbench() as workbench:
        found = workbench.artifacts(run_id)
        before = workbench.artifacts(base) if base else None
    invocation.emit(found if before is None else {"run": found, "base": before}, lambda: _show(found, before))


def _show(found: ArtifactList, before: ArtifactList | None) -> None:
    rows = [[str(each.size), each.sha256[7:19], one_line(each.path)] for each in found.artifacts]
    show_table(["BYTES", "SHA256", "PATH"], rows)
    for refused in found.refused:
        note(f"not kept: {one_line(refused.path)} ({refused.reason})")
    if found.coverage is not None:
        change = ""
        if before is not None and before.coverage is not None:
            change = f", {found.coverage.percent - before.coverage.percent:+.2f} against the base"
        lines = f"{found.coverage.lines_covered} of {found.coverage.lines_total} lines"
        click.echo(f"coverage: {found.coverage.percent:.2f} % ({lines}){change}")


@artifacts.command()
@click.argument("run_id", metavar="RUN")
@click.argument("path")
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Where to.")
@global_options
@click.pass_obj
def get(invocation: Invocation, run_id: str, path: str, output: Path | None) -> None:
    """Write the artifact PATH of RUN to FILE, which must not exist; without FILE to stdout. Its hash is verified."""
    with invocation.workbench() as workbench:
        chunks = workbench.read_artifact(run_id, path)
        if output is None:
            for chunk in chunks:
                sys.stdout.buffer.write(chunk)
            return
        with writing(output):
            _write_new(output, chunks)
    note(f"{output}: {one_line(path)}")


def _write_new(output: Path, chunks: Iterable[bytes]) -> None:
    beside = output.with_name(f".{output.name}.part")
    try:
        with beside.open("xb") as file:
            file.writelines(chunks)
        os.link(beside, output)  # refuses a file that is there
    except FileExistsError as error:
        raise click.UsageError(f"{output} exists.") from error
    finally:
        beside.unlink(missing_ok=True)
