"""`sandbox file`: read and edit files of a task."""

from __future__ import annotations

import os
from typing import IO, Any

import click

from sandbox.cli.invocation import Invocation, global_options, note
from sandbox.cli.search import search
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import FileContent, PatchResult
from sandbox.text import neutral, one_line

ABSENT = "absent"
_MOST_BYTES = 11 * 1024**2  # more than an edit may have: the workbench says so


@click.group()
def file() -> None:
    """Read and edit files of a task."""


file.add_command(search)


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
    text = patch_file.read(_MOST_BYTES)
    with invocation.workbench() as workbench:
        result = workbench.apply_patch(task_id, text, hashes)
    invocation.emit(result, lambda: _show_result(result))


@file.command()
@click.argument("task_id", metavar="TASK")
@click.argument("path")
@click.argument("content_file", metavar="[FILE]", type=click.File("rb"), default="-")
@click.option("--expect", "expected", required=True, metavar="HASH", help=f"As for `edit`; '{ABSENT}' for a new file.")
@click.option("--executable/--not-executable", default=None, help="Default: as the file was; a new one is not.")
@global_options
@click.pass_obj
def write(
    invocation: Invocation, task_id: str, path: str, content_file: IO[bytes], expected: str, executable: bool | None
) -> None:
    """Replace PATH of TASK by FILE (default: stdin), or make it."""
    known = _hash(expected, expected)
    content = content_file.read(_MOST_BYTES)
    with invocation.workbench() as workbench:
        result = workbench.write_file(task_id, path, content, known, executable=executable)
    invocation.emit(result, lambda: _show_result(result))


@file.command()
@click.argument("task_id", metavar="TASK")
@click.argument("path")
@click.option("--old", help="The text to replace; it has to be in the file exactly once.")
@click.option("--old-file", type=click.File("rb"), help="A file with that text.")
@click.option("--new", help="The text to put there.")
@click.option("--new-file", type=click.File("rb"), help="A file with that text.")
@click.option("--expect", "expected", required=True, metavar="HASH", help="The sha256:... PATH was read with.")
@global_options
@click.pass_obj
def edit(invocation: Invocation, /, task_id: str, path: str, expected: str, **texts: Any) -> None:
    """Replace one piece of text in PATH of TASK."""
    known = _hash(expected, expected)
    if known is None:
        raise _wrong_hash(expected)
    old, new = (_text(name, texts[name], texts[f"{name}_file"]) for name in ("old", "new"))
    with invocation.workbench() as workbench:
        result = workbench.edit_file(task_id, path, old, new, known)
    invocation.emit(result, lambda: _show_result(result))


def _text(name: str, given: str | None, stream: IO[bytes] | None) -> bytes:
    """The bytes of an argument as the shell gave them, or of a file."""
    if (given is None) == (stream is None):
        raise SandboxError(ErrorCode.INVALID_INPUT, f"Give one of --{name} and --{name}-file")
    return stream.read(_MOST_BYTES) if stream is not None else os.fsencode(given or "")


def _expectation(item: str) -> tuple[str, str | None]:
    path, separator, value = item.rpartition("=")
    if not separator or not path:
        raise _wrong_hash(item)
    return path, _hash(value, item)


def _hash(value: str, item: str) -> str | None:
    hexadecimal = value.removeprefix("sha256:")
    whole = value != hexadecimal and len(hexadecimal) == 64 and not set(hexadecimal) - set("0123456789abcdef")
    if value != ABSENT and not whole:
        raise _wrong_hash(item)
    return None if value == ABSENT else value


def _wrong_hash(item: str) -> SandboxError:
    return SandboxError(
        ErrorCode.INVALID_INPUT,
        f"A hash is sha256:<64 hex digits> or, for a new file, {ABSENT}; `file patch` takes PATH=HASH",
        details=neutral(item[:200]),
        hint="`sandbox file read TASK PATH --json` prints the hash.",
    )


def _show_result(result: PatchResult) -> None:
    for remark in result.adjusted:
        note(f"note: {one_line(remark)}")
    for changed in result.files:
        name = f"{changed.old_path} -> {changed.path}" if changed.old_path else changed.path
        click.echo(f"{changed.kind.value:<9} {one_line(name)}  {changed.sha256_after or ''}".rstrip())
    if not result.files:
        note("The file has this content already.")
