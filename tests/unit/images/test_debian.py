"""The Debian base: what is asked before it is bootstrapped."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.disk_usage import FreeSpace
from sandbox.images import debian
from sandbox.store.quarantine import QuarantineNotes
from tests.unit.conftest import refused
from tests.unit.memory_engine import MemoryEngine

MIB = 1024**2


@pytest.mark.parametrize(
    ("free_bytes", "outcome"), [(100 * MIB, ErrorCode.QUOTA_EXCEEDED), (600 * MIB, ErrorCode.INTERNAL)]
)
def test_a_root_file_system_is_begun_only_where_it_fits(
    monkeypatch: pytest.MonkeyPatch, free_bytes: int, outcome: ErrorCode, tmp_path: Path
) -> None:
    def run(*_: object) -> None:
        raise SandboxError(ErrorCode.INTERNAL, "the first command was run")

    monkeypatch.setattr(debian, "_run", run)
    monkeypatch.setattr(FreeSpace, "of", lambda _folder: FreeSpace(0, 0, free_bytes, None))
    with refused(outcome):
        debian.bootstrap(MemoryEngine(QuarantineNotes(tmp_path)), "mmdebstrap", "", {}, lambda _line: None)
