"""The list of decisions names every page, and each page says what it is."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from devtools import decisions


def test_the_list_of_decisions_is_complete(capsys: pytest.CaptureFixture[str]) -> None:
    assert decisions.main(["--check"]) == 0, capsys.readouterr().out
    text = (decisions.FOLDER / "README.md").read_text()
    assert [path.name for path in decisions.FOLDER.glob("[0-9]*.md") if f"]({path.name}) |" not in text] == []


def test_a_new_page_and_one_that_is_superseded_change_the_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(shutil.copytree(decisions.FOLDER, tmp_path / "adr"))
    monkeypatch.setattr(decisions, "FOLDER", folder)
    (folder / "9999-new.md").write_text("# 9999. Something | new\n\nSuperseded by [1](0001-own-checkout.md).\n")
    assert decisions.main(["--check"]) == 1
    assert decisions.main([]) == 0
    assert decisions.main(["--check"]) == 0
    row = "| [9999](9999-new.md) | Something &#124; new | superseded | [1](0001-own-checkout.md) |"
    assert row in (folder / "README.md").read_text()


@pytest.mark.parametrize("text", ["# Something\n", "# 8. Another number\n"])
def test_a_page_without_its_number_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "0007-x.md"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"0007-x\.md"):
        decisions.read(path)
