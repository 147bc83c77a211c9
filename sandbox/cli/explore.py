"""`sandbox explore`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from sandbox.cli.background import start_detached
from sandbox.cli.exploration_table import show_exploration
from sandbox.cli.invocation import Invocation, global_options
from sandbox.cli.verdicts import CheckProgress
from sandbox.errors import ErrorCode, SandboxError
from sandbox.workbench import ExploreOptions

_MAX_BYTES = 11 * 1024**2  # more than a patch may have, which the workbench says
_SUFFIXES = {".patch", ".diff"}


@click.command()
@click.argument("task_id", metavar="TASK")
@click.option("--patches", "folder", type=click.Path(exists=True, file_okay=False, path_type=Path), metavar="DIR",
              help="Try each *.patch and *.diff of DIR: unified diffs with a/ and b/.")  # fmt: skip
@click.option("--tasks", "task_ids", multiple=True, metavar="ID", help="Try the files of this task. Repeatable.")
@click.argument("more_ids", metavar="[ID]...", nargs=-1)
@click.option("-j", "--jobs", type=click.IntRange(min=1), default=2, show_default=True,
              help="Verify up to N of them in parallel.")  # fmt: skip
@click.option(
    "--restore/--no-restore",
    default=True,
    help="Give TASK the files of the best one, or only say which it is.",
)
@click.option("--detach", is_flag=True, help="Return at once; the checks run in the background (see check wait).")
@global_options
@click.pass_obj
def explore(
    invocation: Invocation, /, task_id: str, folder: Path | None, detach: bool, **how: Any
) -> int:  # fmt: skip
    """Try several changes of TASK side by side: each is verified in clean rooms, ranked, and kept as a snapshot.

    The best has the fewest newly failing tests, then the fewest failing ones, the smallest difference, the shortest
    time and the least memory. TASK gets its files if it breaks no test; what TASK had is a snapshot, too.

    With --tasks, further IDs may stand alone: --tasks ID ID ID. Exits with 0 when one is good, else with 1.
    """
    patches = {} if folder is None else _read_patches(folder)
    options = ExploreOptions(jobs=how["jobs"], restore=how["restore"])
    ids = (*how["task_ids"], *how["more_ids"])
    if folder is None and not ids:
        raise click.UsageError("Give --patches DIR, --tasks ID, or both.")
    if detach:
        return start_detached(
            invocation, lambda workbench: workbench.start_exploration(task_id, patches, ids, options=options)
        )
    with invocation.workbench() as workbench:
        watch = CheckProgress(parallel=True).watch()
        found = workbench.explore(task_id, patches, ids, watch, options)
    invocation.emit(found, lambda: show_exploration(found))
    return 0 if found.winner else 1


def _read_patches(folder: Path) -> dict[str, bytes]:
    """The patches of a directory, by file name. Raises: `invalid_input` if there is none."""
    paths = sorted(path for path in folder.iterdir() if path.suffix in _SUFFIXES and path.is_file())
    if not paths:
        raise SandboxError(
            ErrorCode.INVALID_INPUT, f"There is no patch in {folder}", hint="Their names end in .patch or .diff."
        )
    found = {}
    for path in paths:
        with path.open("rb") as file:
            found[path.name] = file.read(_MAX_BYTES)
    return found
