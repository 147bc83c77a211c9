from __future__ import annotations

import re
from pathlib import Path

import pytest

import sandbox
from sandbox.byte_sizes import format_bytes

MIB = 1024**2


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (None, "0 B"),
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (99.96 * MIB, "100.0 MiB"),
        (123.4 * MIB, "123 MiB"),
        (512 * MIB, "512 MiB"),
        (10 * 1024**3, "10 GiB"),
        (2 * 1024**4, "2 TiB"),
        (5000 * 1024**4, "5000 TiB"),
    ],
)
def test_amounts_are_for_people(size: float | None, text: str) -> None:
    assert format_bytes(size) == text


def test_no_command_page_or_error_has_a_format_of_its_own() -> None:
    """Attacks have: they say what they did in the units that they did it in."""
    root = Path(sandbox.__file__).parent
    sources = [path for path in root.rglob("*.py") if path.relative_to(root).parts[0] != "attack"]
    assert [path.name for path in sources if re.search(r"\} [KMGT]i?B\b", path.read_text(encoding="utf-8"))] == []
