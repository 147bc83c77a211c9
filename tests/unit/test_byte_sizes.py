from __future__ import annotations

import pytest

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
