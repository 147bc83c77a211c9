"""`python -m devtools.vm [ROW...]`: measure these rows, or all."""

from __future__ import annotations

import argparse
import os
import platform
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from devtools.vm.matrix_page import PAGE, write_page
from devtools.vm.matrix_rows import Column, Engine, Matrix, Row, load_matrix
from devtools.vm.qemu import KVM, PROGRAM, Boot, RootDisk, find_accelerator, run_machine, tell
from devtools.vm.root_disk import START, Workshop, ensure_root_disk, find_cache, make_data_disk, stage_project
from devtools.vm.row_results import RowResult, load_results, read_lines, save_results
from sandbox.version import __version__

_NEEDED = (PROGRAM, "mmdebstrap", "mke2fs", "docker")
_LIMIT_S = {True: 900.0, False: 3600.0}  # by KVM or not
_DATA_MIB = 128


def main(arguments: list[str]) -> int:
    """Exit code 1: a row has a column that failed or was not reached; 2: nothing could be measured."""
    matrix = load_matrix()
    asked = _parse(arguments, matrix)
    workshop = Workshop(find_cache(os.environ), matrix.machine, os.environ)
    if asked.delete:
        shutil.rmtree(workshop.cache, ignore_errors=True)
        return 0
    if not asked.page and (obstacle := _find_obstacle(os.environ)):
        tell(obstacle)
        return 2
    good = True
    for name in () if asked.page else asked.rows or tuple(matrix.rows):
        result = _measure_row(workshop, matrix, name, tuple(asked.column))
        good &= is_complete(result, tuple(asked.column) or matrix.rows[name].columns)
        save_results({**load_results(), name: result}, matrix.rows)
        write_page(matrix, load_results())
    if asked.page:
        write_page(matrix, load_results())
    tell(f"the table is in {PAGE}")
    return 0 if good else 1


def is_complete(result: RowResult, columns: tuple[Column, ...]) -> bool:
    """Whether each column was reached and none failed. Pure."""
    cells = [result.find(column) for column in columns]
    return all(cell is not None and cell.outcome != "failed" for cell in cells)


def _parse(arguments: list[str], matrix: Matrix) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m devtools.vm", description=__doc__)
    parser.add_argument("rows", nargs="*", choices=[[], *matrix.rows], metavar="ROW")
    parser.add_argument("--column", action="append", type=Column, default=[], help="only these, and keep the others")
    parser.add_argument("--page", action="store_true", help="write docs/platforms.md from the last results")
    parser.add_argument("--delete", action="store_true", help="remove the cache of root disks")
    return parser.parse_args(arguments)


def _find_obstacle(environ: Mapping[str, str]) -> str:
    """Why this host cannot run machines; empty: it can."""
    absent = [name for name in _NEEDED if shutil.which(name, path=environ.get("PATH", "") + ":/usr/sbin") is None]
    if absent:
        return f"no {', '.join(absent)}: scripts/setup matrix installs them on Debian"
    if platform.machine() != "x86_64":
        return f"rows are for x86_64; this host is {platform.machine()}"
    return "" if os.geteuid() == 0 else "root is needed to make root disks"


def _measure_row(workshop: Workshop, matrix: Matrix, name: str, chosen: tuple[Column, ...]) -> RowResult:
    row = matrix.rows[name]
    disk = ensure_root_disk(workshop, row.system, matrix.systems[row.system])
    with tempfile.TemporaryDirectory(dir=workshop.cache) as folder:
        return _boot_row(workshop, disk, (name, row), chosen, Path(folder))


def _boot_row(
    workshop: Workshop, disk: RootDisk, named: tuple[str, Row], chosen: tuple[Column, ...], folder: Path
) -> RowResult:
    name, row = named
    columns = chosen or row.columns
    project = folder / "project"
    stage_project(project)
    contents: dict[str, Path | str] = {
        "start.sh": START,
        "row.env": format_environment(row, columns),
        "project": project,
    }
    data = make_data_disk(folder, contents, _DATA_MIB)
    masked = () if row.engine is Engine.DOCKER else ("docker.service", "docker.socket")
    boot = Boot(disk, data, folder, workshop.machine, masked=masked)
    accelerator = find_accelerator(boot)
    tell(f"{name}: booting with {accelerator}")
    started, lines = time.monotonic(), list[str]()

    def hear(line: str) -> None:
        lines.append(line)
        for cell in read_lines(line)[1]:
            tell(f"{name}: {cell.column}: {cell.outcome}: {cell.seen} ({cell.wall_time_s:g} s)")

    ended = run_machine(boot, accelerator, _LIMIT_S[accelerator == KVM], hear)
    versions, cells = read_lines("\n".join(lines))
    if len(cells) < len(columns):
        ended = ended or "the machine was off before its last column"
        shutil.copy2(boot.console, workshop.cache / f"{name}.console")
        tell(f"{name}: {ended}; its console is in {workshop.cache / name}.console")
    before = load_results().get(name) if chosen else None
    kept = tuple(cell for cell in before.cells if cell.column not in chosen) if before else ()
    return RowResult(
        date=datetime.now(UTC).date().isoformat(),
        product=__version__,
        accelerator=accelerator,
        wall_time_s=round(time.monotonic() - started),
        versions=versions or (before.versions if before else {}),
        cells=tuple(sorted((*kept, *cells), key=lambda cell: list(Column).index(cell.column))),
        ended=ended,
    )


def format_environment(row: Row, columns: tuple[Column, ...]) -> str:
    """What `start.sh` reads. Pure."""
    values = {
        "ENGINE": row.engine.value,
        "RUNS_AS": row.user,
        "REFUSED": row.refused,
        "COLUMNS": shlex.join(column.value for column in columns),
    }
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in values.items())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
