"""Commands that texts of the product name exist, with the options that they are named with."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click

import sandbox
from sandbox.cli.app import cli

_COMMAND = re.compile(r"`sandbox ([a-z][^`]*)`")


def find_commands() -> Iterator[tuple[str, str]]:
    """Module and the words after `sandbox`; what is filled in is X."""
    for path, text in read_source_texts("`sandbox "):
        for words in _COMMAND.findall(text):
            yield path, words


def read_source_texts(word: str) -> Iterator[tuple[str, str]]:
    """Name of a module and a text of it, of the modules that have `word`; what is filled in is X."""
    for path in Path(sandbox.__file__).parent.rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(source)) if word in source else ():
            if text := _text_of(node):
                yield path.name, text


def _text_of(node: ast.AST) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def find_missing(words: list[str]) -> str:
    command: click.Command = cli
    while isinstance(command, click.Group) and words and re.fullmatch("[a-z][a-z-]*", words[0]):
        found = command.get_command(click.Context(command), words.pop(0))
        if found is None:
            return "command"
        command = found
    known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    return next((word for word in words if word.startswith("--") and word.partition("=")[0] not in known), "")


def test_each_command_in_a_hint_exists() -> None:
    found = sorted(set(find_commands()))
    assert len(found) > 50, "void: nothing was found"
    assert [(path, text) for path, text in found if find_missing(text.split())] == []


def test_a_command_that_is_not_there_is_seen() -> None:
    assert find_missing(["repo", "sett", "X"])
    assert find_missing(["repo", "set", "X", "--profil", "make"]) == "--profil"
