"""What an image may hand out as the guests' PID 1: a whole, static program and nothing else."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest

from sandbox.errors import ErrorCode, SandboxError
from sandbox.images.supervisor import MAX_BYTES, MIN_BYTES, require_static_program


@pytest.fixture(scope="module")
def program(supervisor: Path) -> bytes:
    return supervisor.read_bytes()


def refused(content: bytes, says: str) -> None:
    with pytest.raises(SandboxError) as raised:
        require_static_program(content)
    assert raised.value.code is ErrorCode.INTERNAL
    assert says in raised.value.details
    assert "sandbox images build init" in raised.value.hint


def test_supervisor_is_taken(program: bytes) -> None:
    require_static_program(program)


@pytest.mark.parametrize("percent", range(10, 100, 10))
def test_part_of_it_is_refused(program: bytes, percent: int) -> None:
    refused(program[: len(program) * percent // 100], "incomplete program")


def test_its_last_byte_counts(program: bytes) -> None:
    refused(program[:-1], "incomplete program")


@pytest.mark.parametrize(
    ("content", "says"), [(b"", "0 bytes"), (b"x" * (MIN_BYTES - 1), "bytes"), (b"\x7fELF", "4 bytes")]
)
def test_too_little_is_refused(content: bytes, says: str) -> None:
    refused(content, says)


def test_too_much_is_refused() -> None:
    refused(bytes(MAX_BYTES + 1), "bytes")


@pytest.mark.parametrize(
    ("offset", "value", "says"),
    [
        (0, b"\x7fELG", "not print a 64-bit program"),
        (4, b"\x01", "not print a 64-bit program"),  # 32 bits
        (5, b"\x02", "not print a 64-bit program"),  # big-endian
        (32, struct.pack("<Q", 2**64 - 1), "incomplete program"),  # program headers beyond the end
        (40, struct.pack("<Q", 2**64 - 1), "incomplete program"),  # section headers beyond the end
        (54, struct.pack("<H", 0), "not linked statically"),  # program headers of no size
        (56, struct.pack("<H", 0), "not linked statically"),  # none of them
        (56, struct.pack("<H", 65535), "incomplete program"),
    ],
)
def test_damaged_header_is_refused(program: bytes, offset: int, value: bytes, says: str) -> None:
    refused(program[:offset] + value + program[offset + len(value) :], says)


def test_program_that_needs_a_loader_is_refused() -> None:
    shell = shutil.which("sh")
    assert shell is not None
    refused(Path(shell).resolve().read_bytes(), "not linked statically")


def test_text_is_refused() -> None:
    refused(b"#!/bin/sh\nexec cat\n" * 2000, "not print a 64-bit program")
