"""Which characters cannot be seen, and which look like a dot, a separator or a space. One table for all uses.

Sources: Unicode's Default_Ignorable_Code_Point (DerivedCoreProperties.txt, 15.0), the categories Cf, Zl and Zp, and
confusables.txt (UTS 39) for the look-alikes. The ranges are spelled out, because the tables of Python differ between
its versions, and because unassigned code points belong to the property too.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping

_Ranges = tuple[tuple[int, int], ...]

# They have no width, reorder text or end a line.
_HIDDEN: _Ranges = (
    (0x61C, 0x61C), (0x180E, 0x180E), (0x200B, 0x200F), (0x2028, 0x202E), (0x2060, 0x2064), (0x2066, 0x206F),
    (0xFEFF, 0xFEFF), (0xFFF9, 0xFFFB), (0x13430, 0x13440), (0xE0000, 0xE007F),
)  # fmt: skip
# They select, join or separate shapes, or fill the place of a letter: soft hyphen, combining grapheme joiner, fillers
# of Hangul and Khmer, selectors of Mongolian, variation selectors, controls of shorthand and music.
_SHAPING: _Ranges = (
    (0xAD, 0xAD), (0x34F, 0x34F), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180D), (0x180F, 0x180F),
    (0x2065, 0x2065), (0x3164, 0x3164), (0xFE00, 0xFE0F), (0xFFA0, 0xFFA0), (0xFFF0, 0xFFF8), (0x1BCA0, 0x1BCA3),
    (0x1D173, 0x1D17A), (0xE0080, 0xE0FFF),
)  # fmt: skip
# They take up space and look blank: the empty Braille pattern, the Khitan filler, an empty notehead.
_BLANK: _Ranges = ((0x2800, 0x2800), (0x16FE4, 0x16FE4), (0x1D159, 0x1D159))
_NOT_IGNORABLE: _Ranges = ((0x2028, 0x2029), (0xFFF9, 0xFFFB), (0x13430, 0x13440))


def _expand(ranges: Iterable[tuple[int, int]]) -> frozenset[int]:
    return frozenset(code for first, last in ranges for code in range(first, last + 1))


SHAPING = _expand(_SHAPING)
"""Invisible characters that only change or replace the shape of others."""

INVISIBLE = _expand((*_HIDDEN, *_SHAPING, *_BLANK))
"""Every character that cannot be seen, or makes text look different from what it is."""

IGNORABLE = _expand((*_HIDDEN, *_SHAPING)) - _expand(_NOT_IGNORABLE)
"""Unicode's Default_Ignorable_Code_Point. HFS+ ignores some of them in names (CVE-2014-9390, git's protectHFS); ext4
and f2fs directories with case folding ignored all until Linux 6.13."""

TAGS = _expand([(0xE0000, 0xE007F)])
"""Tag characters: an alphabet that no screen shows and that language models read."""

EMOJI_SELECTORS = frozenset({0xFE0E, 0xFE0F})
"""They only say whether the symbol before them is an emoji."""

# Letters and digits that look like these are words of their languages, and are not listed.
_DOTS = (
    *(0xB7, 0x701, 0x702, 0x2024, 0x2027, 0x2219, 0x22C5, 0x3002, 0x30FB, 0xA60E, 0xFE12, 0xFE52, 0xFF0E, 0xFF61),
    *(0xFF65, 0x10A50, 0x1D16D),
)
_SLASHES = (0x1735, 0x2041, 0x2044, 0x2215, 0x2571, 0x27CB, 0x29F8, 0x31D3, 0xFF0F, 0x1D23A)
_BACKSLASHES = (0x2216, 0x2572, 0x27CD, 0x29F5, 0x29F9, 0x31D4, 0xFE68, 0xFF3C, 0x1D20F, 0x1D23B)

LOOK_ALIKES: Mapping[int, str] = {
    **dict.fromkeys(_DOTS, "."),
    **{0x2025: "..", 0x2026: "...", 0x22EF: "...", 0xFE19: "...", 0xFE30: ".."},
    **dict.fromkeys(_SLASHES, "/"),
    **dict.fromkeys(_BACKSLASHES, "\\"),
    **{0x1680: " "},
}
"""Characters that look like a dot, a separator or a space, and what they look like."""

_NAMELESS = "unassigned"


def char_class(codes: Iterable[int]) -> str:
    """The characters as a class of a regular expression, shortened to ranges."""
    ranges: list[list[int]] = []
    for code in sorted(codes):
        if ranges and code == ranges[-1][1] + 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    return "[" + "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in ranges) + "]"


def describe_character(character: str) -> str:
    """Code point and name, such as `U+200B ZERO WIDTH SPACE`."""
    return f"U+{ord(character):04X} {unicodedata.name(character, _NAMELESS)}"
