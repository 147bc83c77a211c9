"""Colour source text: a program of its own, which is killed when it takes too long (see `syntax_colours`).

It reads JSON, a list of [language, text], and writes for each text a list of lines, each a list of [class, piece].
It imports Pygments, no module of the sandbox.
"""

from __future__ import annotations

import json
import resource
import sys

from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name
from pygments.token import Comment, Keyword, Name, Number, String, _TokenType

_CLASSES = (
    (Comment, "c"), (Keyword, "k"), (String, "s"), (Number, "n"), (Name.Function, "f"), (Name.Class, "f"),
    (Name.Builtin, "f"), (Name.Tag, "k"), (Name.Attribute, "f"), (Name.Decorator, "f"),
)  # fmt: skip


def colour_lines(lexer: Lexer, text: str) -> list[list[tuple[str, str]]]:
    """The pieces of each line; joined they are the text."""
    lines: list[list[tuple[str, str]]] = [[]]
    for kind, value in lexer.get_tokens(text):
        name = find_class(kind)
        first, *others = value.split("\n")
        add_piece(lines[-1], name, first)
        for piece in others:
            lines.append([])
            add_piece(lines[-1], name, piece)
    return lines


def add_piece(line: list[tuple[str, str]], name: str, piece: str) -> None:
    """Join neighbours of the same class."""
    if line and line[-1][0] == name:
        line[-1] = (name, line[-1][1] + piece)
    elif piece:
        line.append((name, piece))


def find_class(kind: _TokenType) -> str:
    """The class of a token; '' for plain text."""
    return next((name for parent, name in _CLASSES if kind[: len(parent)] == parent), "")


def main() -> None:
    """Limits, then the work: `python -I syntax_worker.py CPU_SECONDS MEMORY_BYTES`."""
    seconds, memory = int(sys.argv[1]), int(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    for language, text in json.load(sys.stdin):
        found = colour_lines(get_lexer_by_name(language, stripnl=False, ensurenl=False), text)
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
