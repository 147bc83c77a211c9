"""`python -m devtools.vm [ROW...]`: measure these rows, or all."""

from __future__ import annotations

import argparse
import os
import platform
import shlex
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from devtools.vm.architectures import PLATFORMS
from devtools.vm.foreign_images import EMULATION_NEEDS
from devtools.vm.matrix_page import PAGE, write_page
from devtools.vm.matrix_rows import Architecture, Column, Engine, Matrix, Row, load_matrix
from devtools.vm.qemu import KVM, Boot, RootDisk, find_accelerator, run_machine, tell
from devtools.vm.root_disk import (
    START,
    Workshop,
    ensure_root_disk,
    find_cache,
    find_commit,
    is_own,
    make_data_disk,
    stage_project,
)
from devtools.vm.row_results import Cell, RowResult, load_results, read_lines, save_results
from sandbox.version import __version__

_NEEDED = ("mmdebstrap", "mke2fs", "docker")
_LIMIT_S = {True: 900.0, False: 3600.0}  # by KVM or not
_DATA_MIB = 128
END = "@matrix ended"
"""The last line of a machine that reached its last column."""


def main(arguments: list[str]) -> int:
    """Exit code 1: a row has a column that failed or was not reached; 2: nothing could be measured."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that no machine outlives this process
    matrix = load_matrix()
    asked = _parse(arguments, matrix)
    workshop = Workshop(find_cache(os.environ), matrix.machine, os.environ)
    if asked.delete:
        shutil.rmtree(workshop.cache, ignore_errors=True)
        return 0
    names = () if asked.page else asked.rows or tuple(matrix.rows)
    architectures = {matrix.systems[matrix.rows[name].system].architecture for name in names}
    if names and (obstacle := _find_obstacle(os.environ, architectures)):
        tell(obstacle)
        return 2
    good = True
    for name in names:
        wanted = Wanted(name, tuple(asked.column) or matrix.columns(name), asked.attacks, asked.limit_s)
        good &= is_complete(_measure_row(workshop, matrix, wanted), wanted.columns)
    if asked.page:
        write_page(matrix, load_results())
    tell(f"the table is in {PAGE}")
    return 0 if good else 1


def is_complete(result: RowResult, columns: tuple[Column, ...]) -> bool:
    """Whether each column was reached and none failed. Pure."""
    cells = [result.find(column) for column in columns]
    return not result.ended and all(cell is not None and cell.outcome != "failed" for cell in cells)


@dataclass(frozen=True)
class Wanted:
    """What is measured in one boot. `attacks`: sections and ids, all if empty. `limit_s`: None for the default."""

    row: str
    columns: tuple[Column, ...]
    attacks: str = ""
    limit_s: float | None = None


def _parse(arguments: list[str], matrix: Matrix) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m devtools.vm", description=__doc__)
    parser.add_argument("rows", nargs="*", choices=[[], *matrix.rows], metavar="ROW")
    parser.add_argument("--column", action="append", type=Column, default=[], help="only these, and keep the others")
    parser.add_argument("--attacks", default="", help="only these sections and entries of attacks, with commas")
    parser.add_argument("--limit-s", type=float, help="how long a machine may run")
    parser.add_argument("--page", action="store_true", help="write docs/platforms.md from the last results")
    parser.add_argument("--delete", action="store_true", help="remove the cache of root disks")
    return parser.parse_args(arguments)


def list_needed(architectures: Collection[Architecture]) -> tuple[str, ...]:
    """Programs of this host for machines of these architectures."""
    emulators = () if all(map(is_own, architectures)) else EMULATION_NEEDS
    return (*(PLATFORMS[each].program for each in sorted(architectures)), *_NEEDED, *emulators)


def _find_obstacle(environ: Mapping[str, str], architectures: Collection[Architecture]) -> str:
    """Why this host cannot run machines; empty: it can."""
    path = environ.get("PATH", "") + ":/usr/sbin"
    absent = [name for name in list_needed(architectures) if shutil.which(name, path=path) is None]
    if absent:
        return f"no {', '.join(absent)}: scripts/setup matrix installs them on Debian"
    if platform.machine() != "x86_64":
        return f"rows are for x86_64; this host is {platform.machine()}"
    return "" if os.geteuid() == 0 else "root is needed to make root disks"


def _measure_row(workshop: Workshop, matrix: Matrix, wanted: Wanted) -> RowResult:
    row = matrix.rows[wanted.row]
    disk = ensure_root_disk(workshop, row.system, matrix.systems[row.system])

    def keep(result: RowResult) -> None:
        save_results({**load_results(), wanted.row: result}, matrix.rows)
        write_page(matrix, load_results())

    with tempfile.TemporaryDirectory(dir=workshop.cache) as folder:
        boot = _prepare_boot(workshop, disk, row, wanted, Path(folder))
        return _boot_row(boot, wanted, workshop.cache, keep)


def _prepare_boot(workshop: Workshop, disk: RootDisk, row: Row, wanted: Wanted, folder: Path) -> Boot:
    project = folder / "project"
    stage_project(project)
    contents: dict[str, Path | str] = {
        "start.sh": START,
        "row.env": format_environment(row, wanted.columns, wanted.attacks),
        "project": project,
    }
    data = make_data_disk(folder, contents, _DATA_MIB)
    masked = () if row.engine is Engine.DOCKER else ("docker.service", "docker.socket")
    return Boot(disk, data, folder, workshop.machine, masked=masked)


def _boot_row(boot: Boot, wanted: Wanted, cache: Path, keep: Callable[[RowResult], None]) -> RowResult:
    """Measure, and keep the result after each cell: this process may be ended before the machine is."""
    name, lines = wanted.row, list[str]()
    accelerator = find_accelerator(boot)
    before, commit = load_results().get(name), find_commit()
    tell(f"{name}: booting with {accelerator}")
    started = time.monotonic()

    def result(ended: str) -> RowResult:
        versions, cells = read_lines("\n".join(lines))
        new = RowResult(
            date=datetime.now(UTC).date().isoformat(),
            commit=commit,
            product=__version__,
            accelerator=accelerator,
            wall_time_s=round(time.monotonic() - started),
            versions=versions,
            cells=cells,
            ended=ended,
        )
        return merge_results(before, new)

    def hear(line: str) -> None:
        lines.append(line)
        for cell in read_lines(line)[1]:
            tell(f"{name}: {cell.column}: {cell.outcome}: {cell.part} {cell.seen} ({cell.wall_time_s:g} s)")
            keep(result("the machine was still running"))

    ended = run_machine(boot, accelerator, wanted.limit_s or _LIMIT_S[accelerator == KVM], hear)
    if not any(END in line for line in lines):
        ended = ended or "the machine was off before its last column"
        shutil.copy2(boot.console, cache / f"{name}.console")
        tell(f"{name}: {ended}; its console is in {cache / name}.console")
    keep(result(ended))
    return result(ended)


def merge_results(before: RowResult | None, new: RowResult) -> RowResult:
    """Keep cells that were not measured again, with their date and commit. Pure."""
    when = {"date": new.date, "commit": new.commit}
    cells = {cell.column: cell.model_copy(update=when) for cell in new.cells}
    if before is None:
        return new.model_copy(update={"cells": _in_order(cells)})
    kept = {cell.column: cell.model_copy(update={"date": cell.date or before.date}) for cell in before.cells}
    versions = new.versions or before.versions
    return new.model_copy(update={"cells": _in_order(kept | cells), "versions": versions})


def _in_order(cells: Mapping[Column, Cell]) -> tuple[Cell, ...]:
    return tuple(cells[column] for column in Column if column in cells)


def format_environment(row: Row, columns: tuple[Column, ...], attacks: str = "") -> str:
    """What `start.sh` reads. Pure."""
    values = {
        "ENGINE": row.engine.value,
        "RUNS_AS": row.user,
        "REFUSED": row.refused,
        "COLUMNS": shlex.join(column.value for column in columns),
        "ATTACKS": attacks,
    }
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in values.items())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
