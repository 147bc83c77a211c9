"""The reference is what the code says, and the documentation builds."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from devtools import reference
from sandbox.agent.tools import TOOLS

ROOT = Path(__file__).parents[3]


pytestmark = pytest.mark.xdist_group("reference")  # the pages are made once


@pytest.fixture(scope="module")
def made() -> dict[str, str]:
    return reference.pages()


@pytest.fixture(autouse=True)
def made_once(made: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "pages", lambda: made)


def test_the_reference_is_what_the_code_says(capsys: pytest.CaptureFixture[str]) -> None:
    assert reference.main(["--check"]) == 0, capsys.readouterr().out


def test_a_page_that_differs_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(reference.FOLDER, tmp_path / "reference")
    monkeypatch.setattr(reference, "FOLDER", tmp_path / "reference")
    (tmp_path / "reference" / "tools.md").write_text("older")
    assert reference.main(["--check"]) == 1
    assert reference.main([]) == 0
    assert reference.main(["--check"]) == 0


def test_a_stroke_in_a_table_ends_no_cell_and_shows_no_backslash() -> None:
    made = reference.table(("a", "b"), [("`x|y <z>` and `w`", "one|\ntwo")])
    assert made.splitlines()[-1] == "| <code>x&#124;y &lt;z&gt;</code> and `w` | one&#124; two |"


def test_every_tool_has_a_section() -> None:
    text = (reference.FOLDER / "tools.md").read_text()
    assert all(f"## `{name}`" in text for name in TOOLS)


def test_the_documentation_builds_without_a_warning(tmp_path: Path) -> None:
    for name in ("docs", "zensical.toml"):
        source = ROOT / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, tmp_path / name)
    zensical = Path(sys.executable).with_name("zensical")
    built = subprocess.run([zensical, "build", "--strict"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert built.returncode == 0, built.stdout + built.stderr
    site = tmp_path / "build" / "site"
    made = [site / path.relative_to(ROOT / "docs").with_suffix("") for path in (ROOT / "docs").rglob("*.md")]
    folders = [path.parent if path.name in {"index", "README"} else path for path in made]
    assert [str(folder) for folder in folders if not (folder / "index.html").is_file()] == []


def test_each_signature_is_python() -> None:
    """`prompt: str = ,` is none: a default of text needs its quotes."""
    found = re.findall(r"```python\n(?:\w+)(\(.*?)\n```", reference.pages()["python.md"], re.DOTALL)
    assert len(found) > 100
    for signature in found:
        ast.parse(f"def f{signature}: ...")
    assert any("prompt: str = ''" in signature for signature in found)
    assert any("scope: ApprovalScope = ApprovalScope.ONCE" in signature for signature in found)


def test_a_field_names_the_model_that_it_holds() -> None:
    page = reference.pages()["models.md"]
    run = page.partition("## `CheckRun`")[2].partition("\n## ")[0]
    assert "| `failures` | list of [`FailedTest`](models.md#failedtest) |" in run
    assert "| `report` | [`Report`](models.md#report) or null |" in run
