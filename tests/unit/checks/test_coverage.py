"""Sums of coverage files, which a guest wrote."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from sandbox.checks.coverage import read_cobertura, read_lcov
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
    assert read_lcov(content) == found


def test_percent() -> None:
    assert Coverage(path="a", lines_covered=3, lines_total=4).percent == 75.0
    assert Coverage(path="a", lines_covered=0, lines_total=0).percent == 0.0


@pytest.mark.parametrize("path", ["", "../x", "a/../b", "!a", "a/", "#a"])
def test_a_rule_names_files_inside(path: str) -> None:
    with pytest.raises(ValidationError):
        ArtifactRule(path=path)
