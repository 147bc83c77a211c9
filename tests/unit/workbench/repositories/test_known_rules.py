"""The kept ignore rules of a base commit hold as long as all that they depend on does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sandbox.workbench import Workbench
from sandbox.workbench.repositories import repository_settings
from tests.unit.conftest import Upstream
from tests.unit.desk import Desk

PROFILE = """
label = "own"
image = "build"
priority = 9999
artifacts = [{artifacts}]
[[detect.any]]
file = "f"
[[check]]
id = "true"
label = "true"
argv = ["true"]
"""


@pytest.fixture
def desk(upstream: Upstream, tmp_path: Path) -> Desk:
    made = Desk(upstream, tmp_path / "sandbox-home")
    made.write("made.out", b"x")
    made.write("other.dat", b"x")
    return made


@pytest.fixture
def choices(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Each choice of profiles that was made."""
    made: list[str] = []
    choose = repository_settings.choose_artifacts

    def count(*words: Any) -> Any:
        made.append("chosen")
        return choose(*words)

    monkeypatch.setattr(repository_settings, "choose_artifacts", count)
    return made


def seen(desk: Desk) -> set[str]:
    """The files that the task has beside those of its commit, by a new controller."""
    with Workbench(desk.home, allow_file=True) as workbench:
        return {change.path for change in workbench.status(desk.task.id).changes} & {"made.out", "other.dat"}


def use_profile(desk: Desk, *artifacts: str) -> None:
    (desk.home / "profiles").mkdir(exist_ok=True)
    text = PROFILE.format(artifacts=", ".join(map(repr, artifacts)))
    (desk.home / "profiles/own.toml").write_text(text)


def test_kept_rules_answer_without_a_choice_until_a_profile_changes(desk: Desk, choices: list[str]) -> None:
    assert seen(desk) == {"made.out", "other.dat"}
    first = len(choices)
    assert first > 0, "void: no rules were chosen"
    assert seen(desk) == {"made.out", "other.dat"}
    assert len(choices) == first, "nothing was chosen again"
    use_profile(desk, "*.out")
    assert seen(desk) == {"other.dat"}
    use_profile(desk, "*.out", "*.dat")
    assert seen(desk) == set()
    (desk.home / "profiles/own.toml").unlink()
    assert seen(desk) == {"made.out", "other.dat"}


def test_settings_of_the_repository_count(desk: Desk, choices: list[str]) -> None:
    use_profile(desk, "*.out")
    assert seen(desk) == {"other.dat"}
    with Workbench(desk.home, allow_file=True) as workbench:
        workbench.set_repository(desk.repo_id, {"profile": "generic"})
    assert seen(desk) == {"made.out", "other.dat"}


def test_nothing_is_kept_where_more_than_files_decides(desk: Desk, choices: list[str]) -> None:
    """A repository whose suggestions were ever trusted, and one with projects in the configuration file."""
    seen(desk)
    (desk.home / "repositories/trust" / desk.repo_id).mkdir(parents=True)
    for _ in range(2):
        before = len(choices)
        seen(desk)
        assert len(choices) > before


@pytest.mark.parametrize("text", ["", "[]", "{", '{"schema_version": 1, "key": "x", "artifacts": ["*"]}'])
def test_a_damaged_or_foreign_file_is_not_believed(desk: Desk, text: str) -> None:
    seen(desk)
    (path,) = (desk.home / "repositories/pristine").rglob("*.rules.json")
    kept = path.read_text()
    path.write_text(text)
    assert seen(desk) == {"made.out", "other.dat"}
    assert json.loads(path.read_text())["artifacts"] == json.loads(kept)["artifacts"]
