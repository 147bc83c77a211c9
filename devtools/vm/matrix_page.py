"""docs/platforms.md: what was measured on which system, from rows and results. Pure, except `write_page`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from devtools.vm.matrix_rows import Column, Matrix
from devtools.vm.row_results import Outcome, RowResult

PAGE = Path(__file__).parents[2] / "docs" / "platforms.md"
_HEAD = """\
# Platforms

`make matrix` writes this page. Each row is a virtual machine made of Debian's packages alone, in which the product ran
as it was in the checkout. **works**: it did what it must, limits and figures included. **refused**: the product
says by name that it does not support this engine, in `sandbox doctor` and before any job starts anything. **failed**:
neither. **not run**: nothing is known. **in part**: some of the column's attacks, named below.

In the row with SELinux the kernel enforces Debian's policy on guests alone: that policy is not made for a whole
system, so what other processes do is only recorded. Two rules of Fedora's policy are added. Guests may start with the
engine's own init, and new files have the categories of their folder, not those of the guest. The column **selinux**
says what was denied to the guests of the columns before it, and shows that SELinux does deny: a folder without a label,
and a whole home without labels.

Speed says nothing here: all machines ran without hardware support (`tcg`), about ten times slower.

A `-` in place of a figure: it was not measured. A peak of memory is missing where the check before had a higher one and
the kernel cannot set it back (before 6.12, as in Debian 12) or lets only root do so.

Beside the machines: Podman 4.3.1 as root with runc 1.1.5 ran on the developers' host (Debian 12, control groups of
version 1) on 2026-11-25: doctor, the main job, a map, services, an image build, each limit with its verdict, and the
executor contract (64 tests); `tests/docker/test_podman.py` repeats the most of it. That file also passed with Podman
5.8.6, with runc 1.3.6 and with crun 1.28, on 2026-11-28, and the executor contract with that runc (85 tests).

On that host and day a root directory of Debian unstable gave Docker 28.5.2 with containerd 2.1.9 and runc 1.3.6, in
control groups of version 1: doctor, the main job and hardening held with both image stores; checks of tasks, images
by tag and archives of images with the store of containerd (`tests/docker`). The main job also ran with the home on
btrfs and on XFS, with a disk for each task and without. With version 2 the same Docker has a row below. Docker 29 was
not run.

A day later, with runc 1.4.3 of experimental, Python 3.14.10 and git 2.55: doctor, the main job, the life of a task,
kill and reconcile, and each limit held, but that of the CPU: this host was too busy for a guest to reach it. Of 169
attacks 162 held and seven were skipped, which need an image that was not there.

The unit tests hold on Python 3.14.10 with git 2.55: they ran in a root directory of Debian unstable on the developers'
host on 2026-11-27, without an engine. 7,732 passed at once. 26 and a module failed, because the package was not
installed there or by faults of the tests, none of the product; these passed when they were run again. On 2026-11-29
they ran on the developers' host with Python 3.12.1 and 3.13.0: 10,895 and 10,893 passed at once. Three and five failed,
by faults of tests and of that day's docs and by the low priority of the run; these passed when they were run again.

For arm64 (2026-11-29) PID 1 and the relay compile without a warning, and 197 of the 201 tests of PID 1 pass with it in
a user-mode emulator. Four do not: they are about signals, tracing and priorities. The emulator has handlers and
threads of its own in place of PID 1's, which is the probable cause; that was not shown. Each name of the seccomp
profile has, for arm64 and for x86-64, the number that the kernel's headers have, and arm64 has no call that x86-64
lacks.

Not run: Python 3.12 with an engine (no Debian has it), 3.13 and 3.14 beside the rows and the runs above, and a guest
on arm64: a user-mode emulator has neither our seccomp filter nor the kernel's view of a guest, and a whole machine
without hardware support takes hours.
"""
_SHORT = {
    Column.PROCESSES: "pids",
    Column.KILL: "kill",
    Column.UNITS: "units",
    Column.CONTRACT: "contract",
    Column.MAIN_JOB: "job",
    Column.TASK_LIFE: "task",
}


def render_page(matrix: Matrix, results: Mapping[str, RowResult]) -> str:
    """The page as Markdown."""
    parts = [_HEAD, *_summary(matrix, results)]
    for name in matrix.rows:
        parts += ["", f"## {matrix.title(name)}", "", *_details(name, matrix.columns(name), results.get(name))]
    return "\n".join(parts) + "\n"


def write_page(matrix: Matrix, results: Mapping[str, RowResult], path: Path = PAGE) -> None:
    """Replace the page."""
    path.write_text(render_page(matrix, results), encoding="utf-8")


def _summary(matrix: Matrix, results: Mapping[str, RowResult]) -> Iterator[str]:
    yield f"| row | {' | '.join(_SHORT.get(column, column) for column in Column)} |"
    yield f"|---|{'---|' * len(Column)}"
    for name in matrix.rows:
        words = [_word(matrix.columns(name), results.get(name), column) for column in Column]
        yield f"| {matrix.title(name)} | {' | '.join(words)} |"


def _word(columns: tuple[Column, ...], result: RowResult | None, column: Column) -> str:
    if column not in columns:
        return "-"
    cell = result.find(column) if result else None
    if cell is None:
        return "not run"
    word = f"**{cell.outcome}**" if cell.outcome is Outcome.FAILED else cell.outcome
    return f"{word}, in part" if cell.part else word


def _details(name: str, columns: tuple[Column, ...], result: RowResult | None) -> Iterator[str]:
    if result is None:
        yield f"Not run: `make matrix ROWS={name}`."
        return
    yield f"`make matrix ROWS={name}`, {result.date}, Space Sandbox {result.product}, {result.accelerator}."
    yield ""
    yield "| what | seen |"
    yield "|---|---|"
    for what, version in result.versions.items():
        yield f"| {what} | {_escape(version)} |"
    for column in columns:
        cell = result.find(column)
        if cell is not None:
            notes = [cell.part, cell.date if cell.date != result.date else ""]
            note = "".join(f" ({_escape(text)})" for text in notes if text)
            yield f"| {column}{note}: {cell.outcome} | {_escape(cell.seen)} |"
    if result.ended:
        yield ""
        yield f"The measurement stopped early: {_escape(result.ended)}."


def _escape(text: str) -> str:
    """For a cell of a table: one line, nothing that is a link, a tag or the end of the cell."""
    plain = " ".join(text.split())
    for character in "\\|<>[]*_`":
        plain = plain.replace(character, f"\\{character}")
    return plain
