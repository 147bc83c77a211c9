"""What is kept of base commits is only a note: damaged, old or of other profiles, it is made again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sandbox.models import ChosenSettings
from sandbox.workbench import Workbench
from sandbox.workbench.repositories import commit_facts, repository_settings
from tests.unit.conftest import Upstream

PROFILE = 'label = "x"\nimage = "base"\npriority = 99\nartifacts = [{artifacts}]\n[[detect.any]]\nfile = "{marker}"\n'


class Place:
    """One task with an ignored and an ordinary new file."""

    def __init__(self, upstream: Upstream, home: Path) -> None:
        upstream.write("f", b"one\n")
        upstream.write("other", b"x\n")
        upstream.write(".gitignore", b"*.log\n")
        upstream.commit()
        self.upstream, self.home = upstream, home
        self.task = self.workbench().create_task(self.workbench().clone(str(upstream.root)).repository.id)
        assert self.task.worktree_path is not None
        for name in ("a.log", "b.out"):
            (self.task.worktree_path / name).write_bytes(b"x")
        assert self.changed() == ["b.out"]
        notes = (home / "repositories" / "pristine").glob("*/*.json")
        (self.note,) = (path for path in notes if not path.name.endswith(".rules.json"))

    def workbench(self) -> Workbench:
        return Workbench(self.home, environ={"PATH": "/usr/bin:/bin"}, allow_file=True)

    def changed(self) -> list[str]:
        return [c.path for c in self.workbench().status(self.task.id).changes]


@pytest.fixture
def place(upstream: Upstream, tmp_path: Path) -> Place:
    return Place(upstream, tmp_path / "home")


def _with(key: str, value: object) -> Callable[[dict[str, Any]], str]:
    return lambda document: json.dumps(document | {key: value})


DAMAGE: dict[str, Callable[[dict[str, Any]], str]] = {
    "empty": lambda _: "",
    "cut": lambda document: json.dumps(document)[:-20],
    "nul": lambda _: "\0" * 500,
    "another-kind": lambda _: "[]",
    "another-version": _with("schema_version", 99),
    "unknown-field": _with("x", 1),
    "no-tree": _with("tree", "HEAD"),
    "rules-that-are-none": _with("ignore", ["*"]),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_note_is_made_again(place: Place, damage: Callable[[dict[str, Any]], str]) -> None:
    whole = place.note.read_text()
    place.note.write_text(damage(json.loads(whole)))
    assert place.changed() == ["b.out"]
    assert json.loads(place.note.read_text()) == json.loads(whole)


def test_profiles_that_change_are_asked_anew(place: Place) -> None:
    """Other build output, another marker: nothing of the old ones stays in the note."""
    profiles = place.home / "profiles"
    profiles.mkdir()
    (profiles / "mine.toml").write_text(PROFILE.format(artifacts='"*.out"', marker="f"))
    assert place.changed() == []
    (profiles / "mine.toml").write_text(PROFILE.format(artifacts='"*.log"', marker="f"))
    assert place.changed() == ["b.out"]
    (profiles / "mine.toml").write_text(PROFILE.format(artifacts='"*.out"', marker="other"))
    assert place.changed() == []
    (profiles / "mine.toml").unlink()
    assert place.changed() == ["b.out"]


def test_d14_rules_come_from_the_base_whatever_the_worktree_or_the_remote_says_later(place: Place) -> None:
    place.upstream.write(".gitignore", b"*\n")
    place.upstream.commit()
    place.workbench().clone(str(place.upstream.root))
    assert place.task.worktree_path is not None
    (place.task.worktree_path / ".gitignore").write_bytes(b"*\n")
    assert place.changed() == [".gitignore", "b.out"]
    place.workbench().commit(place.task.id, "x", allow=["."])
    (place.task.worktree_path / "c.out").write_bytes(b"x")
    assert place.changed() == ["c.out"]


def test_s206_a_profile_is_of_one_reading_of_the_settings(
    upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not in part of those before a change: facts for its folders, and in part of those after it. Control: the next
    profile is that of the new folder.
    """
    upstream.write("pyproject.toml", b"[project]\nname = 'a'\nversion = '1'\n")
    upstream.write("deep/er/go.mod", b"module a\n")
    upstream.commit()
    read = repository_settings.read_settings
    with Workbench(tmp_path / "home", environ={"PATH": "/usr/bin:/bin"}, allow_file=True) as workbench:
        repo_id = workbench.clone(str(upstream.root)).repository.id
        services = workbench._services
        _, git = services.repositories.open(repo_id)

        def read_and_change(*arguments: Any) -> ChosenSettings:
            before = read(*arguments)
            monkeypatch.setattr(commit_facts, "read_settings", read)
            workbench.set_repository(repo_id, {"subpath": "deep/er"})
            return before

        monkeypatch.setattr(commit_facts, "read_settings", read_and_change)
        profiles = [commit_facts.load_profile(services, repo_id, git, upstream.oid("HEAD")) for _ in range(2)]
    assert [(profile.name, profile.folder) for profile in profiles] == [("python", ""), ("go", "deep/er")]
