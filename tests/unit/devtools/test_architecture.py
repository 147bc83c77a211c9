"""The architecture page is what the code is: its picture, its paths, its rooms and its checklists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from devtools import architecture

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
_PATH = re.compile(r"`((?:sandbox|policies|images|devtools|docs|tests|benchmarks)/[\w/.-]*)`")
_CHECKLIST = re.compile(r"(?ms)^### Adding (?:an? )?([\w ]+?)\n(.*?)(?=^##|\Z)")


def missing_paths(text: str) -> list[str]:
    """Paths of the project in a text that do not exist; those with a NAME to fill in are left out."""
    return [path for path in _PATH.findall(text) if "NAME" not in path and not (ROOT / path).exists()]


def test_the_picture_is_what_the_imports_say(capsys: pytest.CaptureFixture[str]) -> None:
    assert architecture.main(["--check"]) == 0, capsys.readouterr().out


def test_a_picture_that_differs_is_reported_and_written_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(architecture, "PICTURE", tmp_path / "x.svg")
    assert architecture.main(["--check"]) == 1
    assert architecture.main([]) == 0
    assert architecture.main(["--check"]) == 0


def test_the_picture_has_every_package_and_every_room() -> None:
    picture = architecture.picture()
    placed = {name for floor in architecture.floors() for name in floor}
    packages = {path.stem for path in (ROOT / "sandbox").glob("[a-z]*") if path.suffix in {"", ".py"}}
    assert packages == placed
    assert [name for name in [*placed, *architecture.rooms()[1:]] if f">{name}" not in picture] == []


def test_the_table_of_floors_has_every_package_and_module() -> None:
    table = PAGE.partition("## The floors")[2].partition("\n\nFour rules")[0]
    named = {name for row in re.findall(r"(?m)^\| [^|]* \| ([^|]*) \|", table) for name in re.findall(r"`(\w+)`", row)}
    assert named == {name for floor in architecture.floors() for name in floor}


def test_the_page_says_which_parts_import_inside_a_function() -> None:
    [said] = re.findall(r"Only ((?:[^.]|\.\w)*?) import\s+inside a function\.", PAGE)
    parts = {path.removeprefix("sandbox/") for path in re.findall(r"`([\w/.]+)`", said)}
    found = {
        path.relative_to(ROOT / "sandbox")
        for path in (ROOT / "sandbox").rglob("*.py")
        if "# noqa: PLC0415" in path.read_text()
    }
    assert {str(path) if str(path) in parts else path.parts[0] for path in found} == parts


def test_an_import_that_others_imply_is_left_out() -> None:
    imports = {"a": frozenset("bc"), "b": frozenset("c"), "c": frozenset()}
    assert architecture.reduce_imports(imports) == {"a": frozenset("b"), "b": frozenset("c"), "c": frozenset()}


def test_every_path_on_the_page_exists() -> None:
    assert missing_paths(PAGE) == []
    assert missing_paths("`sandbox/none.py`, `sandbox/errors.py`, `sandbox/forges/NAME.py`") == ["sandbox/none.py"]


def test_the_page_has_every_package() -> None:
    folders = {path.parent for path in (ROOT / "sandbox").rglob("__init__.py")} - {ROOT / "sandbox"}
    assert [str(path) for path in folders if f"| `{path.relative_to(ROOT)}/` |" not in PAGE] == []


def test_the_page_has_a_checklist_for_each_kind_of_addition() -> None:
    kinds = {"forge", "MCP tool", "runtime", "engine", "layout", "workspace kind", "profile", "limit", "error code"}
    kinds |= {"setting"}
    assert {kind for kind, _ in _CHECKLIST.findall(PAGE)} == kinds


@pytest.mark.parametrize(("kind", "text"), _CHECKLIST.findall(PAGE), ids=[kind for kind, _ in _CHECKLIST.findall(PAGE)])
def test_a_checklist_has_at_most_six_places_and_names_its_test(kind: str, text: str) -> None:
    places = re.findall(r"(?m)^\d+\. ", text)
    assert 1 <= len(places) <= 6, kind
    assert re.search(r"Held by `tests/[\w/.]+`", text), kind
