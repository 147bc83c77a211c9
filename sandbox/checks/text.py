"""Make guest bytes safe to show. They stay data: never interpreted, never trusted."""

from __future__ import annotations

import re

# CSI, OSC (ended by BEL or ST), DCS/SOS/PM/APC strings, and two-character escapes: ECMA-48.
_SEQUENCES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|(?:\x1b\]|\x9d)[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"
    r"|(?:\x1b[PX^_]|[\x90\x98\x9e\x9f])[^\x1b\x9c]*(?:\x1b\\|\x9c)?"
    r"|\x1b[ -/]*[0-~]?"
)
# Bidirectional controls and zero-width or tag characters can make text read other than it is.
_INVISIBLE = re.compile("[\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff\U000e0000-\U000e007f]")


def shown(raw: bytes) -> str:
    """UTF-8 with replacement, without terminal sequences, other control characters as U+FFFD."""
    return neutral(raw.decode("utf-8", errors="replace"))


def neutral(text: str) -> str:
    """The same for text."""
    plain = _SEQUENCES.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    plain = _INVISIBLE.sub(lambda m: f"\\u{ord(m[0]):04x}", plain)
    return "".join(c if c in "\n\t" or (c >= " " and not "\x7f" <= c <= "\x9f") else "\ufffd" for c in plain)
