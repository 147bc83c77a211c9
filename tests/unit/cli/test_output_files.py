"""Files that the user names: what cannot be written is their mistake, not a bug of ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.cli.output_files import writing
from sandbox.errors import ErrorCode
from tests.unit.conftest import refused


@pytest.mark.parametrize("place", ["missing/receipt.json", "file/receipt.json", "."])
def test_a_file_that_cannot_be_written_is_bad_input_and_named(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    output = tmp_path / place
    with refused(ErrorCode.INVALID_INPUT) as caught, writing(output):
        output.write_text("{}")
    assert str(output) in caught.value.brief
    assert caught.value.details
    assert caught.value.hint


def test_a_file_that_can_be_written_is_written(tmp_path: Path) -> None:
    with writing(tmp_path / "receipt.json"):
        (tmp_path / "receipt.json").write_text("{}")
    assert (tmp_path / "receipt.json").read_text() == "{}"
