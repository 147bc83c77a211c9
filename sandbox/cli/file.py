"""`sandbox file`: read and edit files of a task."""

from __future__ import annotations

from typing import IO

import click

from sandbox.cli.invocation import Invocation, global_options, note
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import FileContent, PatchResult
from sandbox.text import neutral

ABSENT = "absent"


@click.group()
def file() -> None:
    """Read and edit files of a task."""


@file.command()
@click.argument("task_id", metavar="TASK")
@click.argument("path")
@click.option("--start-line", type=click.IntRange(min=1), help="First line, from 1.")
@click.option("--end-line", type=click.IntRange(min=1), help="Last line, inclusive.")
@global_options
@click.pass_obj
def read(invocation: Invocation, task_id: str, path: str, start_line: int | None, end_line: int | None) -> None:
    """Print PATH of TASK; its hash goes to stderr, for `file patch --expect`."""
    with invocation.workbench() as workbench:
        content = workbench.read_file(task_id, path, start_line, end_line)
    invocation.emit(content, lambda: _show_content(content))


def _show_content(content: FileContent) -> None:
    note(f"{content.path} {content.sha256} {content.size} bytes, {content.encoding}")
    click.echo(neutral(content.content), nl=content.encoding == "base64")


@file.command()
@click.argument("task_id", metavar="TASK")
@click.argument("patch_file", metavar="[FILE]", type=click.File("rb"), default="-")
@click.option(
    "--expect",
    "expected",
    multiple=True,
    metavar="PATH=HASH",
    help=f"The sha256:... PATH was read with, or '{ABSENT}' for a new file; repeatable.",
)
@global_options
@click.pass_obj
def patch(invocation: Invocation, task_id: str, patch_file: IO[bytes], expected: tuple[str, ...]) -> None:
    """Apply the unified diff in FILE (default: stdin) to TASK, all files or none.

    Every existing file that the patch touches needs its hash, so that no edit lands on content you have not seen.
    """
    hashes = dict(_expectation(item) for item in expected)
    text = patch_file.read(11 * 1024**2)
    with invocation.workbench() as workbench:
        result = workbench.apply_patch(task_id, text, hashes)
    invocation.emit(result, lambda: _show_result(result))


def _expectation(item: str) -> tuple[str, str | None]:
    path, separator, value = item.rpartition("=")
    valid = value == ABSENT or (
        value.startswith("sha256:") and len(value) == 71 and not set(value[7:]) - set("0123456789abcdef")
    )
    if not separator or not path or not valid:
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            "--expect takes PATH=sha256:<64 hex digits> or PATH=absent",
            details=neutral(item[:200]),
            hint="`sandbox file read TASK PATH --json` prints the hash.",
        )
    return path, None if value == ABSENT else value


def _show_result(result: PatchResult) -> None:
    for changed in result.files:
        click.echo(f"{changed.kind.value:<9} {neutral(changed.path)}  {changed.sha256_after or ''}".rstrip())
