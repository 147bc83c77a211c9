"""Sanitize an agent's Markdown: headings, lists, quotes, emphasis and code are kept, all else becomes text.

The source is parsed and written again; no part of it is copied. Text goes through `sandbox.forges.escape`. Links become
their text and the URL as code, images their description, HTML a code span or block.
"""

from __future__ import annotations

from collections.abc import Sequence

from markdown_it import MarkdownIt
from markdown_it.token import Token

from sandbox.forges.escape import BREAK, RULE, as_code, as_code_block, as_prose, break_command, join_inline

MAX_EMPHASIS = 2
"""Deeper emphasis is dropped."""

_LEFT_OUT = "\n\n_The rest of this text was cut: it was too long._"
_UNLIMITED = 10**9  # the whole text has its own limit
_NESTING = 12
_LOWEST_HEADING = 6
_ITEM_MARK = "- "
_EMPHASIS = {"em": "*", "strong": "**"}


def sanitize_markdown(markdown: str, max_chars: int) -> str:
    """Sanitize Markdown to at most `most` characters. If the end was cut, a note says so."""
    max_chars -= len(_LEFT_OUT)
    taken = markdown[:max_chars]
    while len(text := _render(taken)) > max_chars:
        taken = taken[: len(taken) // 2]
    return text if len(taken) == len(markdown) else text + _LEFT_OUT


def _render(markdown: str) -> str:
    writer = _Writer()
    for token in MarkdownIt("commonmark", {"maxNesting": _NESTING}).parse(markdown):
        writer.add_token(token)
    return "\n".join(writer.blocks)


class _Container:
    """A quote or a list item: prefixes of its first line and of the others. `again`: not the first item of a list."""

    def __init__(self, first: str, rest: str, *, again: bool = False) -> None:
        self.first, self.rest, self.again = first, rest, again
        self.started = False

    def prefix(self) -> str:
        """The prefix of the next line."""
        begun, self.started = self.started, True
        return self.rest if begun else self.first


class _Writer:
    """Writes Markdown blocks from parser tokens, in order. A block includes the blank line before it."""

    def __init__(self) -> None:
        self.blocks: list[str] = []
        self._open: list[_Container] = []
        self._numbers: list[tuple[int | None, bool]] = []  # per open list: next number (None: bullets), has items
        self._heading = ""
        self._tight = False  # whether the paragraph is in a list without blank lines between items
        self._tight_depth = 0  # number of open containers around such a paragraph if it was the last block

    def add_token(self, token: Token) -> None:
        """Process one token. Tokens of unknown constructs produce no output."""
        match token.type:
            case "blockquote_open":
                self._open.append(_Container("> ", "> "))
            case "bullet_list_open" | "ordered_list_open":
                self._numbers.append((_start(token) if token.type.startswith("ordered") else None, False))
            case "list_item_open":
                self._open.append(self._item())
            case "blockquote_close" | "list_item_close":
                self._open.pop()
            case "bullet_list_close" | "ordered_list_close":
                self._numbers.pop()
            case "paragraph_open":
                self._tight = token.hidden
            case "paragraph_close":
                self._tight = False
            case "heading_open":
                self._heading = "#" * min(int(token.tag[1]) + 2, _LOWEST_HEADING) + " "
            case "heading_close":
                self._heading = ""
            case _:
                self._leaf(token)

    def _leaf(self, token: Token) -> None:
        match token.type:
            case "inline":
                text = render_inline(token.children or ())
                self._write(self._heading + text.replace("\n", " ") if self._heading else text)
            case "fence" | "code_block" | "html_block":
                self._write(as_code_block(token.content, _UNLIMITED))
            case "hr":
                self._write(RULE)

    def _item(self) -> _Container:
        number, again = self._numbers.pop()
        self._numbers.append((None if number is None else number + 1, True))
        mark = _ITEM_MARK if number is None else f"{number}. "
        return _Container(mark, " " * len(mark), again=again)

    def _write(self, text: str) -> None:
        if not text.strip():
            return
        blank = "".join(c.rest for c in self._open if c.started).rstrip()
        separated = [] if self._continues_list() or not self.blocks else [blank]
        lines = [self._prefix() + break_command(line.strip()) for line in text.split("\n")]
        self.blocks.append("\n".join([*separated, *(line.rstrip() for line in lines)]))
        self._tight_depth = len(self._open) if self._tight else 0

    def _prefix(self) -> str:
        return "".join(container.prefix() for container in self._open)

    def _continues_list(self) -> bool:
        """Whether a one-paragraph item follows another one: the only case without a blank line between."""
        item = self._open[-1] if self._open else None
        fresh = item is not None and item.again and not item.started
        return self._tight and fresh and self._tight_depth == len(self._open)


def _start(token: Token) -> int:
    """The first number of a list; the parser accepts at most nine digits."""
    return min(int(token.attrs.get("start", 1)), 10**6)


def render_inline(tokens: Sequence[Token]) -> str:
    """Inline Markdown of the tokens of one paragraph or heading."""
    pieces: list[str] = []
    targets: list[str] = []
    depth = 0
    for token in tokens:
        kind, _, edge = token.type.partition("_")
        if kind in _EMPHASIS:
            depth -= edge == "close"
            pieces.append(_EMPHASIS[kind] if depth < MAX_EMPHASIS else BREAK)
            depth += edge == "open"
        elif token.type == "link_open":
            targets.append(str(token.attrs.get("href", "")))
            pieces.append(BREAK)
        elif token.type == "link_close":
            pieces.append(_target(targets.pop()))
        else:
            pieces.append(_inline_leaf(token))
    return join_inline(pieces)


def _inline_leaf(token: Token) -> str:
    match token.type:
        case "text":
            return as_prose(token.content)
        case "code_inline" | "html_inline":
            return as_code(token.content)
        case "image":
            return BREAK + as_prose(token.content) + BREAK
        case "softbreak" | "hardbreak":
            return "\n"
    return BREAK


def _target(url: str) -> str:
    """The part of a link after its text: the URL as code. The break separates it from the words around it."""
    return f"{BREAK} ({as_code(url)})" if url else BREAK
