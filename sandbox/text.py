"""Make guest bytes safe to show. They remain data: never interpreted, never trusted."""

from __future__ import annotations

import codecs
import re
import time
import unicodedata
from typing import TYPE_CHECKING

from sandbox.characters import EMOJI_SELECTORS, INVISIBLE, LOOK_ALIKES, char_class
from sandbox.lazy_pattern import lazy_pattern

if TYPE_CHECKING:
    from datetime import datetime

# CSI, OSC (ended by BEL or ST), DCS/SOS/PM/APC strings, and two-character escapes: ECMA-48. The parameters of a CSI are
# bounded, so that a stream shown in chunks has a bound on how much may belong to an unfinished sequence.
_CSI = r"(?:\x1b\[|\x9b)[0-?]{0,64}[ -/]{0,8}"
_OSC = r"(?:\x1b\]|\x9d)[^\x07\x1b\x9c]*"
_STRING = r"(?:\x1b[PX^_]|[\x90\x98\x9e\x9f])[^\x1b\x9c]*"
_TWO = r"\x1b[ -/]{0,8}"
_WHOLE = rf"{_CSI}[@-~]|{_OSC}(?:\x07|\x1b\\|\x9c)?|{_STRING}(?:\x1b\\|\x9c)?|{_TWO}[0-~]?"
_SEQUENCES = lazy_pattern(_WHOLE)
# The same, for a chunk that ends before a sequence does.
_PIECE = lazy_pattern(rf"(?P<undecided>(?:{_CSI}|{_TWO})\Z)|(?P<osc>{_OSC}\Z)|(?P<string>{_STRING}\Z)|{_WHOLE}")
_ENDS = {"osc": lazy_pattern("[\x07\x1b\x9c]"), "string": lazy_pattern("[\x1b\x9c]")}
_INVISIBLE = lazy_pattern(char_class(INVISIBLE))
_UNPRINTABLE = lazy_pattern("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")  # surrogates: no stream can encode them


def format_utc(at: datetime) -> str:
    """`2026-11-22 17:24:50 UTC`: for the text of errors, which a reader in another zone may get."""
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", at.utctimetuple())


def decode_for_display(raw: bytes) -> str:
    """Decode UTF-8 with replacement, remove terminal sequences, replace other control characters by U+FFFD."""
    return neutralise(raw.decode("utf-8", errors="replace"))


def neutralise(text: str) -> str:
    """Like `decode_for_display`, for text."""
    return _replace_invisible(_SEQUENCES.sub("", text.replace("\r\n", "\n").replace("\r", "\n")))


def one_line(text: str) -> str:
    """Like `neutralise`, for text within a line: a name must not start a new line."""
    return neutralise(text).replace("\n", "\N{SYMBOL FOR NEWLINE}")


def neutralise_lines(text: str) -> str:
    """Like `neutralise`, for text of which each line counts, as in a diff: a line stays one line and keeps its CRLF.

    A terminal sequence that a line does not end hides no later line. A carriage return within a line is a symbol.
    """
    lines = text.split("\n")
    return "\n".join(line if line.isascii() and line.isprintable() else _neutralise_line(line) for line in lines)


def _neutralise_line(line: str) -> str:
    body = line.removesuffix("\r")
    shown = neutralise(body.replace("\r", "\N{SYMBOL FOR CARRIAGE RETURN}"))
    return shown + line[len(body) :]


def escape_invisible(text: str) -> str:
    """Text on one line for a user who decides about it: it is complete, and invisible characters are escaped.

    `neutralise` drops characters instead, which does no harm where no decision depends on the text.
    """
    return "".join(c if _is_visible(c) else _escape(c) for c in text.replace("\\", "\\\\"))


def spell_out(text: str) -> str:
    """As `escape_invisible`, with a note if it has letters that may look like others."""
    return escape_invisible(text) + note_ascii(text)


def note_ascii(text: str) -> str:
    """A note beside a text that is not all ASCII; '' for one that is."""
    return "" if text.isascii() else "  [not all ASCII]"


def escape_path(path: str) -> str:
    """Like `escape_invisible`, for a path: characters that look like a dot, a separator or a space are escaped too."""
    return "".join(_escape(c) if ord(c) in LOOK_ALIKES else c for c in escape_invisible(path))


def _escape(character: str) -> str:
    return f"\\u{{{ord(character):x}}}"


def _is_visible(character: str) -> bool:
    """Whether a character is visible: printable ASCII, and characters of other scripts that have a width."""
    if character.isascii():
        return character.isprintable()
    is_mark = unicodedata.category(character) in {"Mn", "Me"}
    return character.isprintable() and not is_mark and ord(character) not in INVISIBLE


def _replace_invisible(text: str) -> str:
    """Spell out invisible characters. Emoji selectors are dropped: they are common, and only change a symbol's look."""
    plain = text if text.isascii() else _INVISIBLE.sub(_spell_out, text)
    return _UNPRINTABLE.sub("\ufffd", plain)


def _spell_out(match: re.Match[str]) -> str:
    code = ord(match[0])
    return "" if code in EMOJI_SELECTORS else f"\\u{code:04x}"


class DisplayDecoder:
    """`decode_for_display` for a stream: the concatenated results are the same as for the whole stream, however it is
    chunked.

    Text that a later chunk decides about (part of a character or sequence, a carriage return) is held back, at most 80
    characters.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._held = ""
        self._until: re.Pattern[str] | None = None  # the end of an OSC or string, which is not shown

    def feed(self, piece: bytes) -> str:
        """Take a chunk and return the text that can be shown now."""
        text = self._held + self._decoder.decode(piece)
        self._held = "\r" if text.endswith("\r") else ""
        text = text.removesuffix("\r").replace("\r\n", "\n").replace("\r", "\n")
        return self._remove_sequences(self._skip_unfinished(text))

    def finish(self) -> str:
        """Return the rest at the end of the stream."""
        text = self._held + self._decoder.decode(b"", final=True)
        self._held = ""
        return neutralise(self._skip_unfinished(text))

    def _remove_sequences(self, text: str) -> str:
        kept, at = [], 0
        for match in _PIECE.finditer(text):
            kept.append(text[at : match.start()])
            at = match.end()
            if match.lastgroup == "undecided":
                self._held = match[0] + self._held
            elif match.lastgroup is not None:
                self._until = _ENDS[match.lastgroup]
        return _replace_invisible("".join([*kept, text[at:]]))

    def _skip_unfinished(self, text: str) -> str:
        """Remove the rest of a sequence that began in an earlier chunk. An escape ends it and starts the next one."""
        if self._until is None:
            return text
        end = self._until.search(text)
        if end is None:
            return ""
        self._until = None
        return text[end.start() if end[0] == "\x1b" else end.end() :]
