"""Which image a Go module gets, by the version that its go.mod names."""

from __future__ import annotations

import pytest

from sandbox.dependencies.go_versions import allows_go, read_needed_go


@pytest.mark.parametrize(
    ("text", "needed"),
    [
        (b"module m\n\ngo 1.17 // old\n", "1.17"),
        (b"module m\r\n\r\ngo 1.22.3\r\ntoolchain go1.24.1\r\n", "1.22.3"),
        (b"module m\n\ngo 1.20\ntoolchain go1.24.1\n", "1.21"),
        (b"module m\ntoolchain go1.24.1\n", "1.21"),
        (b"go 1.22rc2\n", "1.22rc2"),
        (b"// go 1.22\nmodule go\n\nrequire go 1.23\n", ""),
        (b"go 1.22; rm -rf /\n", ""),
        (b"\xff\xfe", ""),
    ],
)
def test_the_least_version_is_read_from_go_mod(text: bytes, needed: str) -> None:
    assert read_needed_go({"go.mod": text}.get) == needed


@pytest.mark.parametrize(
    ("needed", "version", "enough"),
    [
        ("1.19", "1.19.8", True),
        ("1.20", "1.19.8", False),
        ("1.24", "1.24.4", True),
        ("1.24.4", "1.24.4", True),
        ("1.24.10", "1.24.4", False),
        ("1.24rc1", "1.24", True),
        ("1.25rc1", "1.24.4", False),
        ("1.9", "1.19.8", True),
        ("2.0", "1.24.4", False),
    ],
)
def test_an_older_go_is_not_enough(needed: str, version: str, *, enough: bool) -> None:
    assert allows_go(needed, version) is enough
