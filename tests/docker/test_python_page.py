"""The program in docs/python.md runs as it stands."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "python.md"


@pytest.mark.usefixtures("build_image")
def test_the_examples_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "Makefile").write_text("build:\n\ttrue\ntest:\n\tcat words\n")
    (source / "words").write_text("hello\n")
    for argv in (["init", "--quiet", "--initial-branch=main"], ["add", "--all"], ["commit", "--quiet", "-m", "first"]):
        subprocess.run(["git", "-c", "user.name=x", "-c", "user.email=x@x", *argv], cwd=source, check=True)
    names: dict[str, Any] = {"HOME": tmp_path / "home", "URL": str(source)}
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) >= 4
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)  # noqa: S102 - our own page, and the point of the test
    said = capsys.readouterr().out
    assert "test passed" in said
    assert "hello, world" in said
