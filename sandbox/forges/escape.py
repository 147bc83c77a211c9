"""Escaping of guest and agent text in our Markdown: GitHub and GitLab show it, and act on no part of it.

Theory. A forge reads a pull request's text in three ways. The text must be inert in each:
- as Markdown: backslashes, code spans and indented code prevent structure, HTML, links and images;
- as rendered text outside code: `@user`, `#1`, `!1`, `:smile:`, `$x$` and URLs are replaced after the Markdown was
  parsed, so backslashes do not help; a zero-width space after the first character of each does;
- as raw lines, without Markdown: GitLab looks there for `/close` and `Closes #1` (its Gitlab::QuickActions::Extractor
  and Gitlab::ClosingIssueExtractor), and a squash merge turns the text into a commit message, in which a forge looks
  for closing words and `[skip ci]`. So these are broken in code too, and verbatim text never starts at the beginning
  of a line.
Sources: GitHub's "Autolinked references and URLs", "Linking a pull request to an issue", "Writing mathematical
expressions" and "Skipping workflow runs"; GitLab's "GitLab Flavored Markdown" and "Quick actions"; the GFM spec 0.29.
"""

from __future__ import annotations

import re

from sandbox.characters import SHAPING, char_class
from sandbox.text import neutralise

BREAK = "\u200b"
"""Zero-width space: invisible; it ends every reference, word and URL."""

RULE = "* * *"
"""A horizontal rule. Not dashes: text between two lines of dashes is hidden, see Gitlab::FrontMatter."""

_LINE_CHARS = 2000

_SHAPING = re.compile(char_class(SHAPING))
_BLANKS = re.compile(r"[^\S\n]")  # all of Unicode's: what looks for the start of a line looks for spaces only
# Bounded and possessive: hostile text must not cause long backtracking.
_REFERENCE = r"(?:\S{0,300}[#!]|https?:|[a-z][a-z0-9_]{0,60}-\d)"
_CLOSING_WORD = r"\b(?:clos(?:e[sd]?|ing)|fix(?:e[sd]|ing)?|resolv(?:e[sd]?|ing)|implement(?:s|ed|ing)?)"
_CLOSING = re.compile(
    rf"{_CLOSING_WORD}(?=(?:\s++:?+\s*+|:\s*+)(?:issues?\s++)?{_REFERENCE})",
    re.IGNORECASE,
)
_SKIP_CI = re.compile(
    r"\[(?=\s*(?:skip|no|ci|actions|azp?|azurepipelines|circle|travis)\b[^\]\n]{0,30}\])|\*\*\*(?=NO_CI)|\bskip(?=-checks)",
    re.IGNORECASE,
)
_TRIGGER = re.compile(
    r"[@#!~%&$^*](?!\s)"  # mentions, references of either forge, math, entities
    r"|\[|\{(?=[+-])"  # task lists, named references, marked changes
    r"|:(?=[\w+-]+:|[:/])|www(?=\.)|(?:mailto|xmpp)(?=:)"  # emoji, directives, URLs
    r"|(?<=[a-z0-9_])(?=-\d)"  # GH-1, and ids of external trackers
    r"|[0-9a-f]{4}(?=[0-9a-f]{3})"  # ids of commits
    r"|^[ ]*/(?=\w)|\b[a-z-]{1,40}-by(?=:)"  # quick actions, trailers
    rf"|{_CLOSING_WORD}(?=\s*+:?+\s*+\Z)",  # code may come next
    re.IGNORECASE | re.MULTILINE,
)
# URLs and possible commit ids become code spans, not broken text, so that readers can copy them.
_COPYABLE = re.compile(
    r"((?:\b[a-z][a-z0-9+.-]{0,30}://|\bwww\.|\bmailto:)\S+|(?<![0-9a-f])[0-9a-f]{7,64}(?![0-9a-f]))", re.IGNORECASE
)
_MARKUP = re.compile(r"[\\`*_\[\]<>&|~#^{}]")
# Lists, headings, rules, tables and definitions; three of some characters start front matter (GitLab).
_LINE_START = re.compile(r"^([ ]*)([-+=:;]|[0-9]{1,9}(?=[.)]))", re.MULTILINE)


def clean(text: str) -> str:
    """Remove terminal sequences and shaping characters, spell out other invisible ones; expand tabs.

    Elsewhere shaping characters are spelled out too. A pull request is prose, in which a soft hyphen is ordinary.
    """
    return neutralise(_SHAPING.sub("", text)).expandtabs(4)


def break_references(text: str) -> str:
    """Break references, mentions, URLs, emoji and commands in clean text. The result is not Markdown yet."""
    return _break_commands(_TRIGGER.sub(_with_break, text))


def break_command(line: str) -> str:
    """Break a line that begins with a slash: GitLab obeys it. For lines as they are sent, after all other changes."""
    return f"/{BREAK}{line[1:]}" if line.startswith("/") and not line.startswith(f"/{BREAK}") else line


def as_prose(text: str) -> str:
    """Inline Markdown that shows the text. Line breaks are kept; URLs and commit ids become code spans.

    All other white space becomes spaces: a later step strips all of Unicode's, which must not uncover a start of a line
    that was not seen here.
    """
    pieces = _COPYABLE.split(_BLANKS.sub(" ", clean(text)))
    return join_inline([as_code(piece) if n % 2 else _escape_markdown(piece) for n, piece in enumerate(pieces)])


def as_code(text: str, max_chars: int = _LINE_CHARS) -> str:
    """A code span of one line, with at most `max_chars` characters of the text."""
    line = _break_commands(clip_code(text, max_chars)) or " "
    fence = "`" * (max(map(len, re.findall("`+", line)), default=0) + 1)
    pad = " " if line.strip() and (line[0] in "` " or line[-1] in "` ") else ""
    return f"{fence}{pad}{line}{pad}{fence}"


def clip_code(text: str, max_chars: int) -> str:
    """The text that `as_code` shows."""
    return clip_line(clean(text[: 4 * max_chars]).replace("\n", "\N{SYMBOL FOR NEWLINE}"), max_chars)


def as_code_block(text: str, max_chars: int) -> str:
    """A quoted code block of about `max_chars` characters; empty for empty text.

    Indented, so that there is no fence to close. Quoted, so that no line of the text starts a line of the source.
    """
    rows = _list_block_rows(text)
    kept = count_fitting(rows, max_chars)
    left = [f">     … and {len(rows) - kept} more"] if kept < len(rows) else []
    return "\n".join([*rows[:kept], *left]) if text.strip() else ""


def clip_code_block(text: str, max_chars: int) -> tuple[list[str], int]:
    """The lines that `as_code_block` shows, without what breaks commands, and the number of those it leaves out."""
    rows = _list_block_rows(text) if text.strip() else []
    kept = count_fitting(rows, max_chars)
    lines = clean(text).strip("\n").split("\n")[:kept]
    return [clip_line(line, _LINE_CHARS) for line in lines], len(rows) - kept


def _list_block_rows(text: str) -> list[str]:
    lines = _break_commands(clean(text)).strip("\n").split("\n")
    return [f">     {clip_line(line, _LINE_CHARS)}".rstrip() for line in lines]


def join_inline(pieces: list[str]) -> str:
    """Join inline Markdown. Adjacent code spans are separated, else their backticks would be one run."""
    whole = ""
    for piece in pieces:
        whole += BREAK + piece if whole.endswith("`") and piece.startswith("`") else piece
    return whole


def clip_line(text: str, max_chars: int) -> str:
    """Cut the text to `max_chars` characters, ending in an ellipsis if it was longer."""
    return text if len(text) <= max_chars else text[: max_chars - 1] + "…"


def count_fitting(rows: list[str], max_chars: int) -> int:
    """The number of lines, from the first, that fit into `max_chars` characters."""
    size = 0
    for number, row in enumerate(rows):
        size += len(row) + 1
        if size > max_chars:
            return number
    return len(rows)


def _break_commands(text: str) -> str:
    """Break the commands that forges also obey inside code."""
    return _SKIP_CI.sub(_with_break, _CLOSING.sub(_with_break, text))


def _with_break(match: re.Match[str]) -> str:
    return match[0] + BREAK


def _escape_markdown(text: str) -> str:
    shown = _MARKUP.sub(r"\\\g<0>", break_references(text))
    shown = _LINE_START.sub(lambda m: m[1] + (m[2] + "\\" if m[2].isdigit() else "\\" + m[2]), shown)
    # GitHub pairs dollar signs after parsing Markdown, GitLab before: so each one becomes an entity of its own.
    return shown.replace("$", "<span>&dollar;</span>")
