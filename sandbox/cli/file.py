"""`sandbox file`: read and edit the files of a task; read those of a commit."""

from __future__ import annotations

import os
from typing import IO, TYPE_CHECKING, Any

import click

from sandbox.cli.invocation import Invocation, global_options, note
from sandbox.cli.readable_owner import OWNER_METAVAR, find_owner
from sandbox.cli.search import search
from sandbox.errors import ErrorCode, SandboxError
from sandbox.text import neutralise, one_line

if TYPE_CHECKING:
    from sandbox.models import FileContent, PatchResult

ABSENT = "absent"
_MAX_BYTES = 11 * 1024**2  # more than the limit of an edit, which the workbench enforces


_expect = click.option(
    "--expect",
    "expected",
    required=True,
    metavar="HASH",
    help="Hash (sha256:...) of PATH when you read it: `sandbox file read TASK PATH` prints it.",
)


@click.group()
def file() -> None:
    """Read, search and edit the files of a task; read and search those of a repository's commit."""


file.add_command(search)


@file.command()
@click.argument("owner", metavar=OWNER_METAVAR)
@click.argument("path")
@click.option("--start-line", type=click.IntRange(min=1), help="First line to read; lines are counted from 1.")
@click.option("--end-line", type=click.IntRange(min=1), help="Last line to read, inclusive.")
@global_options
@click.pass_obj
def read(invocation: Invocation, owner: str, path: str, start_line: int | None, end_line: int | None) -> None:
    """Print the file PATH of TASK, or of a commit of REPO: a branch, tag or commit id, by default the default branch.

    Its hash, which edits need for --expect, goes to stderr.
    """
    with invocation.workbench() as workbench:
        owner_id, ref = find_owner(workbench, owner)
        if ref is None:
            content = workbench.read_file(owner_id, path, start_line, end_line)
        else:
            content = workbench.read_committed_file(owner_id, path, start_line, end_line, ref=ref)
    invocation.emit(content, lambda: _show_content(content))


def _show_content(content: FileContent) -> None:
    note(f"{one_line(content.path)} {content.sha256} {content.size} bytes, {content.encoding}")
    click.echo(neutralise(content.content), nl=content.encoding == "base64")


@file.command()
@click.argument("task_id", metavar="TASK")
@click.argument("patch_file", metavar="[FILE]", type=click.File("rb"), default="-")
@click.option(
    "--expect",
    "expected",
    multiple=True,
    metavar="PATH=HASH",
    help=f"Hash (sha256:...) of PATH when you read it, or '{ABSENT}' for a new file. Repeatable.",
)
@global_options
@click.pass_obj
def patch(invocation: Invocation, task_id: str, patch_file: IO[bytes], expected: tuple[str, ...]) -> None:
    """Apply the unified diff in FILE (default: stdin) to the files of TASK: to all of them or to none.

    Each existing file that the patch changes needs its hash, so that you never change content you have not seen.
    """
    hashes = dict(_parse_expectation(item) for item in expected)
    text = patch_file.read(_MAX_BYTES)
    with invocation.workbench() as workbench:
        result = workbench.apply_patch(task_id, text, hashes)
    invocation.emit(result, lambda: _show_result(result))


@file.command()
@click.argument("task_id", metavar="TASK")
@click.argument("path")
@click.argument("content_file", metavar="[FILE]", type=click.File("rb"), default="-")
@click.option("--expect", "expected", required=True, metavar="HASH",
              help=f"Hash (sha256:...) of PATH when you read it, or '{ABSENT}' for a new file.")  # fmt: skip
@click.option("--executable/--not-executable", default=None, help="Default: unchanged; a new file is not executable.")
@global_options
@click.pass_obj
def write(
    invocation: Invocation, task_id: str, path: str, content_file: IO[bytes], expected: str, executable: bool | None
) -> None:
    """Replace or create PATH in TASK with the content of FILE (default: stdin)."""
    known = _parse_hash(expected, expected)
    content = content_file.read(_MAX_BYTES)
    with invocation.workbench() as workbench:
        result = workbench.write_file(task_id, path, content, known, executable=executable)
    invocation.emit(result, lambda: _show_result(result))


@file.command()
@click.argument("task_id", metavar="TASK")
@click.argument("path")
@click.option("--old", help="Text to replace; it must occur exactly once.")
@click.option("--old-file", type=click.File("rb"), help="File with the text to replace.")
@click.option("--new", help="Replacement text.")
@click.option("--new-file", type=click.File("rb"), help="File with the replacement text.")
@_expect
@global_options
@click.pass_obj
def edit(invocation: Invocation, /, task_id: str, path: str, expected: str, **texts: Any) -> None:
    """Replace a text that occurs exactly once in PATH of TASK."""
    known = _parse_existing(expected)
    old, new = (_read_text(name, texts[name], texts[f"{name}_file"]) for name in ("old", "new"))
    with invocation.workbench() as workbench:
        result = workbench.edit_file(task_id, path, old, new, known)
    invocation.emit(result, lambda: _show_result(result))


@file.command()
@click.argument("task_id", metavar="TASK")
@click.argument("path")
@_expect
@global_options
@click.pass_obj
def delete(invocation: Invocation, task_id: str, path: str, expected: str) -> None:
    """Delete PATH in TASK."""
    known = _parse_existing(expected)
    with invocation.workbench() as workbench:
        result = workbench.delete_file(task_id, path, known)
    invocation.emit(result, lambda: _show_result(result))


@file.command()
@click.argument("task_id", metavar="TASK")
@click.argument("path")
@click.argument("new_path")
@_expect
@global_options
@click.pass_obj
def rename(invocation: Invocation, task_id: str, path: str, new_path: str, expected: str) -> None:
    """Rename PATH in TASK to NEW_PATH, which must be free."""
    known = _parse_existing(expected)
    with invocation.workbench() as workbench:
        result = workbench.rename_file(task_id, path, new_path, known)
    invocation.emit(result, lambda: _show_result(result))


def _read_text(name: str, given: str | None, stream: IO[bytes] | None) -> bytes:
    """Bytes of an argument as the shell passed them, or of a file."""
    if (given is None) == (stream is None):
        raise SandboxError(ErrorCode.INVALID_INPUT, f"Give either --{name} or --{name}-file")
    return stream.read(_MAX_BYTES) if stream is not None else os.fsencode(given or "")


def _parse_expectation(item: str) -> tuple[str, str | None]:
    path, separator, value = item.rpartition("=")
    if not separator or not path:
        raise _invalid_hash(item)
    return path, _parse_hash(value, item)


def _parse_hash(value: str, item: str) -> str | None:
    if value == ABSENT:
        return None
    hexadecimal = value.removeprefix("sha256:")
    if len(hexadecimal) != 64 or set(hexadecimal) - set("0123456789abcdef"):
        raise _invalid_hash(item)
    return f"sha256:{hexadecimal}"  # also for what `sha256sum` prints


def _parse_existing(value: str) -> str:
    """The hash of a file that exists."""
    known = _parse_hash(value, value)
    if known is None:
        raise _invalid_hash(value)
    return known


def _invalid_hash(item: str) -> SandboxError:
    return SandboxError(
        ErrorCode.INVALID_INPUT,
        f"--expect takes sha256:<64 hex digits>, or {ABSENT} for a new file; `file patch` takes PATH=HASH",
        details=neutralise(item[:200]),
        hint="Run `sandbox file read TASK PATH --json` to get the hash.",
    )


def _show_result(result: PatchResult) -> None:
    for remark in result.adjusted:
        note(f"note: {one_line(remark)}")
    for changed in result.files:
        name = f"{changed.old_path} -> {changed.path}" if changed.old_path else changed.path
        click.echo(f"{changed.kind.value:<9} {one_line(name)}  {changed.sha256_after or ''}".rstrip())
    if result.ignored:
        note(f"note: {result.note}: {', '.join(map(one_line, result.ignored[:10]))}")
    if not result.files:
        note("The file already has this content.")
