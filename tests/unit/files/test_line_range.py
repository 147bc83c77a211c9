"""Windows of lines: compared with a plain reading of the whole content, and with git's idea of a line."""

from __future__ import annotations

import hashlib
import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.files.line_range import LineRange, LineRangeContent, read_line_range
from tests.unit.conftest import Upstream

CAP = 1 << 20
NOT_LINE_ENDS = "\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029\r"


def window(content: bytes, lines: LineRange | None = None, cap: int = CAP, step: int = 7) -> LineRangeContent:
    pieces = [content[i : i + step] for i in range(0, len(content), step)]
    return read_line_range(pieces, lines or LineRange(), cap)


@pytest.mark.parametrize("content", [b"", b"\n", b"a", b"a\n", b"a\nb", b"a\r\nb\r\n", b"\xef\xbb\xbfa\n", b"\n\n\n"])
def test_a_text_file_comes_whole_and_unchanged(content: bytes) -> None:
    """Carriage returns and a byte order mark are content."""
    total = content.count(b"\n") + (not content.endswith(b"\n") and content != b"")
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    assert window(content) == LineRangeContent(digest, len(content), content, 1, total, total, truncated=False)


@pytest.mark.parametrize("char", NOT_LINE_ENDS, ids=ascii)
def test_a_line_ends_where_git_ends_it(char: str, upstream: Upstream) -> None:
    """Control: `str.splitlines` counts more lines, so that a patch made with its numbers would miss."""
    text = f"one{char}still one\ntwo\nthree\n"
    assert len(text.splitlines()) > 3
    upstream.write("f", text.encode())
    upstream.git("add", "f")
    found = upstream.git("grep", "--cached", "-n", "two", "--", "f").decode()
    assert found == "f:2:two\n"
    assert window(text.encode(), LineRange(2, 2)).content == b"two\n"
    assert window(text.encode()).total_lines == 3


@settings(max_examples=300)
@given(
    st.lists(st.sampled_from(["a", "\n", "\u00e9", "\u2028", "\r", "\U0001f600", "\x0c"]), max_size=40).map("".join),
    st.integers(1, 8), st.none() | st.integers(0, 6), st.integers(1, 60), st.integers(1, 9),
)  # fmt: skip
def test_a_window_is_what_slicing_the_lines_gives(text: str, first: int, more: int | None, cap: int, step: int) -> None:
    content = text.encode()
    every = content.split(b"\n")
    every = [line + b"\n" for line in every[:-1]] + ([every[-1]] if every[-1] else [])
    last = None if more is None else first + more
    wanted = every[first - 1 : last]
    found = window(content, LineRange(first, last), cap, step)
    assert (found.size, found.total_lines, found.first) == (len(content), len(every), first)
    assert found.sha256 == f"sha256:{hashlib.sha256(content).hexdigest()}"
    assert len(found.content) <= cap
    assert b"".join(wanted).startswith(found.content)
    assert found.truncated == (found.content != b"".join(wanted))
    assert found.last == first - 1 + len(found.content.decode().split("\n")) - (found.content[-1:] in {b"", b"\n"})
    if sum(map(len, wanted)) <= cap:
        assert found.content == b"".join(wanted)
    elif len(wanted[0]) <= cap:
        assert found.content.endswith(b"\n"), "cut after a whole line"


@pytest.mark.parametrize("content", [b"\xff", b"a\n\xc3", b"\xed\xa0\x80", b"\xc0\xaf", b"text\n" * 20 + b"\x80"])
@pytest.mark.parametrize("step", [1, 3, 1000])
def test_what_is_not_strict_utf8_is_bytes_without_lines(content: bytes, step: int) -> None:
    whole = window(content, step=step)
    assert (whole.content, whole.first, whole.last, whole.total_lines) == (content, None, None, None)
    assert not whole.truncated
    cut = window(content + b"\xff", cap=1, step=step)
    assert (cut.content, cut.size, cut.truncated) == (content[:1], len(content) + 1, True)
    assert window(content, LineRange(1, 2), step=step).content == b""


def test_a_character_split_between_two_pieces_is_still_text() -> None:
    assert window("\U0001f600\u00e9\n".encode(), step=1).total_lines == 1


@pytest.mark.parametrize(("cap", "content"), [(5, "\u00e9\u00e9"), (4, "\u00e9\u00e9"), (1, "")])
def test_a_line_longer_than_the_cap_is_cut_between_characters(cap: int, content: str) -> None:
    found = window(("\u00e9" * 10 + "\nnext\n").encode(), cap=cap)
    assert found.content.decode() == content
    assert found.truncated
    assert found.total_lines == 2


def pieces_of_a_large_file(mebibytes: int) -> Iterator[bytes]:
    for n in range(mebibytes):
        yield (f"{n:015}\n".encode()) * (1 << 16)


@pytest.mark.parametrize("lines", [LineRange(), LineRange(4_000_000, 4_000_010)], ids=["start", "end"])
def test_h16_a_window_of_a_large_file_costs_the_window(lines: LineRange) -> None:
    """Control: holding the file takes its size."""
    tracemalloc.start()
    try:
        found = read_line_range(pieces_of_a_large_file(64), lines, 1 << 16)
        peak = tracemalloc.get_traced_memory()[1]
        assert peak < 8 << 20
        held = b"".join(pieces_of_a_large_file(64))
        assert tracemalloc.get_traced_memory()[1] > 64 << 20
    finally:
        tracemalloc.stop()
    assert found.sha256 == f"sha256:{hashlib.sha256(held).hexdigest()}"
    assert found.total_lines == 64 << 16
    assert found.content in held
    assert found.first == lines.first
    assert found.truncated == (lines.last is None), "the lines at the end fit"
