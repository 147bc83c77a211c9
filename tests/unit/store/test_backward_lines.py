"""Lines from the end of a file: the same lines as from its beginning, and no more blocks than needed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.store import backward_lines
from sandbox.store.backward_lines import read_lines_backward

CONTENTS = st.lists(st.sampled_from([b"\n", b"a", b"bc", b"long line", b"\r", b"\xff"])).map(b"".join)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backward_lines, "BLOCK_BYTES", 4)


def lines_of(path: Path, content: bytes, max_bytes: int | None = None) -> list[bytes]:
    path.write_bytes(content)
    with path.open("rb") as stream:
        return list(read_lines_backward(stream.fileno(), max_bytes))


@given(content=CONTENTS)
def test_all_lines_are_read_in_reverse(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "lines"
    assert lines_of(path, content) == content.split(b"\n")[::-1]


@given(content=CONTENTS, max_bytes=st.integers(min_value=0, max_value=40))
def test_a_limit_leaves_out_the_line_it_cuts(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, max_bytes: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "lines"
    start = max(0, len(content) - max_bytes)
    assert lines_of(path, content, max_bytes) == content[start:].split(b"\n")[1 if start else 0 :][::-1]


def test_only_the_blocks_that_are_needed_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(b"0123456\n" * 1000)
    sizes: list[int] = []
    real = os.pread

    def spy(fd: int, size: int, offset: int) -> bytes:
        sizes.append(size)
        return real(fd, size, offset)

    monkeypatch.setattr(os, "pread", spy)
    with (tmp_path / "file").open("rb") as stream:
        lines: Iterator[bytes] = read_lines_backward(stream.fileno())
        assert [next(lines), next(lines), next(lines)] == [b"", b"0123456", b"0123456"]
    assert sizes == [4] * 5
