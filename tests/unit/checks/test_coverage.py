"""Sums of coverage files, which a guest wrote."""

from __future__ import annotations

import time

import pytest
from pydantic import ValidationError

from sandbox.checks.coverage import MOST_BYTES, read_cobertura, read_lcov
from sandbox.checks.output_lines import ReadingTime
from sandbox.models import ArtifactRule, Coverage

COBERTURA = b'<?xml version="1.0" ?><coverage version="7" lines-valid="8" lines-covered="6"><packages/></coverage>'
BOMB = (
    b'<!DOCTYPE a [<!ENTITY b "bbbb"><!ENTITY c "&b;&b;">]><coverage lines-valid="8" lines-covered="6">&c;</coverage>'
)


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (COBERTURA, (6, 8)),
        (COBERTURA + b" " * 10_000_000, (6, 8)),
        (COBERTURA.replace(b'"6"', b'"9"'), None),
        (COBERTURA.replace(b'"6"', b'"-1"'), None),
        (COBERTURA.replace(b"coverage", b"report"), None),
        (BOMB, None),
        (b"", None),
        (b"\xff\xfe", None),
        (COBERTURA.replace(b"?>", b'encoding="nope"?>'), None),  # S189: what a parser raises for one differs
        (COBERTURA.replace(b"?>", b'encoding="zlib"?>'), None),
        (COBERTURA.replace(b"?>", b'encoding="undefined"?>'), None),
        (COBERTURA.replace(b"?>", b'encoding="utf-32"?>'), None),
    ],
)
def test_cobertura(content: bytes, found: tuple[int, int] | None) -> None:
    assert read_cobertura(content) == found


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"TN:\nSF:a.c\nDA:1,1\nLF:4\nLH:3\nend_of_record\nSF:b.c\nLF:4\nLH:1\nend_of_record\n", (4, 8)),
        (b"LF:4\r\nLH:3\r\n", (3, 4)),
        (b"LF:4\nLH:5\n", None),
        (b"LF:99999999999999\n", None),
        (b"", None),
    ],
)
def test_lcov(content: bytes, found: tuple[int, int] | None) -> None:
    assert read_lcov(content, ReadingTime()) == found


def test_s208_the_time_for_an_lcov_file_is_bounded() -> None:
    """Of one of short lines, which is the slowest. Control: there is time for one of 60 KB."""
    left = ReadingTime(0.1)
    began = time.thread_time()
    assert read_lcov(b"LF:0\n" * (MOST_BYTES // 5), left) is None
    assert left.is_over
    assert time.thread_time() - began < 0.4
    left = ReadingTime()
    assert read_lcov(b"LF:1\nLH:1\n" * 6_000, left) == (6_000, 6_000)
    assert not left.is_over


def test_percent() -> None:
    assert Coverage(path="a", lines_covered=3, lines_total=4).percent == 75.0
    assert Coverage(path="a", lines_covered=0, lines_total=0).percent == 0.0


@pytest.mark.parametrize("path", ["", "../x", "a/../b", "!a", "a/", "#a"])
def test_a_rule_names_files_inside(path: str) -> None:
    with pytest.raises(ValidationError):
        ArtifactRule(path=path)
