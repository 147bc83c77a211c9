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
_INVISIBLE = re.compile("[\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u2064\u2066-\u206f\ufeff\U000e0000-\U000e007f]")
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")  # surrogates: no stream can encode them


def shown(raw: bytes) -> str:
    """UTF-8 with replacement, without terminal sequences, other control characters as U+FFFD."""
    return neutral(raw.decode("utf-8", errors="replace"))


def neutral(text: str) -> str:
    """The same for text."""
    plain = _SEQUENCES.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    plain = _INVISIBLE.sub(lambda m: f"\\u{ord(m[0]):04x}", plain)
    return _UNPRINTABLE.sub("\ufffd", plain)
