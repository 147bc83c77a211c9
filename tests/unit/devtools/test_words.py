"""The budget of names and prose: what is counted, and that the package stays below it."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from devtools import words

pytestmark = pytest.mark.xdist_group("words")  # the package is read once

SOURCE = """
class Place: ...
class _Place: ...
class Other:
    @property
    def shown(self): "Whoever looks, nothing is told."
    def refused(self): ...
    def need(self): ...
    def require_clean(self): ...
class Workbench:
    def run(self): "Run it. Raises: `conflict`."
    def verify(self): "Verify it."
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    for folder in ("one", "two"):
        (tmp_path / "sandbox" / folder).mkdir(parents=True)
        (tmp_path / "sandbox" / folder / "same.py").write_text(SOURCE if folder == "one" else "")
        (tmp_path / "sandbox" / folder / "__init__.py").touch()
    return tmp_path / "sandbox"


@pytest.fixture(scope="module")
def ours() -> words.Names:
    """The package itself, read once; without concepts."""
    return words.read_package(words.ROOT / "sandbox")


def test_each_count_sees_what_it_counts(package: Path) -> None:
    found = words.read_package(package)
    assert [name for name, _ in found.participles()] == ["refused"]
    assert [name for name, _ in found.shared_classes()] == ["Place", "_Place"]
    assert found.shared_files() == ["sandbox/one/same.py", "sandbox/two/same.py"]
    assert [word.lower() for word, _ in found.riddles] == ["whoever", "nothing", "told"]
    assert found.raises == [("run", True), ("verify", False)]


def test_the_package_is_within_its_budget(
    ours: words.Names, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def read_once(root: Path, concepts: Iterable[str]) -> words.Names:
        assert root == words.ROOT / "sandbox"
        return replace(ours, concepts=frozenset(concepts))

    monkeypatch.setattr(words, "read_package", read_once)
    assert words.main(["--check"]) == 0, capsys.readouterr().out


def test_a_count_above_its_budget_is_named(package: Path) -> None:
    budget = dict.fromkeys(words.read_package(package).figures(), 0.0)
    assert len(words.above(words.read_package(package).figures(), budget)) == len(budget)


def test_the_budget_names_every_count_and_no_count_is_far_below_it(ours: words.Names) -> None:
    settings = tomllib.loads(words.BUDGET.read_text())
    figures = replace(ours, concepts=frozenset(settings["concepts"])).figures()
    budget = settings["budget"]
    assert budget.keys() == figures.keys()
    slack = {name: limit - figures[name] for name, limit in budget.items()}
    assert {name: rest for name, rest in slack.items() if rest > max(1.0, 0.1 * budget[name])} == {}, "lower the budget"


def test_a_file_name_that_is_a_concept_may_be_shared(package: Path) -> None:
    assert words.read_package(package, ["same"]).shared_files() == []


def test_every_concept_is_shared_by_several_files(ours: words.Names) -> None:
    concepts = tomllib.loads(words.BUDGET.read_text())["concepts"]
    files = ours.shared_files()
    assert sorted(set(concepts) - {Path(path).stem for path in files}) == []
