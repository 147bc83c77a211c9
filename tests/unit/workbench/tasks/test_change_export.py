"""A result of another host: applied as one of this home, and never trusted."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from sandbox.errors import ErrorCode, SandboxError
from sandbox.git import new_commits, objects
from sandbox.git.contents import content_of
from sandbox.git.entries import REGULAR, SYMLINK, TreeChange
from sandbox.models.exported_changes import ExportedChanges
from sandbox.workbench.tasks import change_export
from tests.unit.conftest import Upstream, refused
from tests.unit.desk import Desk, on_disk
from tests.unit.workbench.tasks.test_apply import Checkout, change_all_kinds


@pytest.fixture
def person(upstream: Upstream, tmp_path: Path) -> Iterator[Checkout]:
    desk = Desk(upstream, tmp_path / "sandbox-home")
    with desk.workbench:
        yield Checkout(desk, tmp_path / "mine")


def export(desk: Desk, *, uncommitted: bool = False) -> ExportedChanges:
    """As it comes from another host."""
    made = desk.workbench.export_changes(desk.task.id, uncommitted=uncommitted)
    return ExportedChanges.model_validate_json(made.model_dump_json())


def make_document(desk: Desk, path: str, content: bytes, mode: str) -> ExportedChanges:
    """One that a host could make that runs no code of ours: it says the truth about its tree."""
    git = desk.workbench._services.repositories.open(desk.task.repo_id)[1]
    change = TreeChange(path.encode(), mode, content_of(content))
    tree = "0" * 40
    with suppress(SandboxError):  # git itself does not build some
        tree = new_commits.build_uncompared_tree(git, desk.task.base_commit, [change])
    file = {"path": path, "content": base64.b64encode(content), "mode": mode}
    fields = {"base_commit": desk.task.base_commit, "commit": None, "tree": tree, "files": [file]}
    return ExportedChanges.model_validate(fields)


@pytest.mark.parametrize("uncommitted", [False, True])
def test_it_is_written_as_a_result_of_this_home(person: Checkout, uncommitted: bool) -> None:
    desk = person.desk
    change_all_kinds(desk)
    if not uncommitted:
        desk.workbench.commit(desk.task.id, "all kinds")
        desk.write("f", b"not committed\n")
    before = on_disk(person.root)
    expected = person.apply(uncommitted=uncommitted, dry_run=True)
    exported = export(desk, uncommitted=uncommitted)
    assert desk.workbench.apply_exported(desk.task, exported, person.root, dry_run=True) == expected
    assert on_disk(person.root) == before
    desk.workbench.apply_exported(desk.task, exported, person.root)
    assert on_disk(person.root) != before
    assert all(file.already for file in person.apply(uncommitted=uncommitted).files)


@pytest.mark.parametrize(
    ("path", "content", "mode"),
    [
        (".git/hooks/post-checkout", b"#!/bin/sh\n", "100755"),
        ("../aside", b"x", REGULAR),
        ("/tmp/aside", b"x", REGULAR),
        ("d/../../aside", b"x", REGULAR),
        ("new", b"/etc/passwd", SYMLINK),
        ("new", b"../../aside", SYMLINK),
    ],
)
def test_a_path_or_link_that_leads_out_is_refused(person: Checkout, path: str, content: bytes, mode: str) -> None:
    before = on_disk(person.root)
    with refused(ErrorCode.UNSAFE_PATH):
        person.desk.workbench.apply_exported(
            person.desk.task, make_document(person.desk, path, content, mode), person.root
        )
    assert on_disk(person.root) == before


def test_another_tree_than_it_says_is_refused(person: Checkout) -> None:
    desk = person.desk
    good = make_document(desk, "new", b"x", REGULAR)
    before = on_disk(person.root)
    with refused(ErrorCode.INTERNAL):
        desk.workbench.apply_exported(desk.task, good.model_copy(update={"tree": "1" * 40}), person.root)
    assert on_disk(person.root) == before
    desk.workbench.apply_exported(desk.task, good, person.root)
    assert (person.root / "new").read_bytes() == b"x", "control: the same with its own tree"


def test_a_base_that_the_clone_lacks_is_fetched_or_named(person: Checkout, upstream: Upstream) -> None:
    desk = person.desk
    (upstream.root / "aside").write_bytes(b"later\n")
    upstream.git("add", "-A")
    upstream.git("commit", "-qm", "later")
    later = upstream.git("rev-parse", "HEAD").decode().strip()
    git = desk.workbench._services.repositories.open(desk.task.repo_id)[1]
    assert objects.peel(git, later, "commit") is None, "control: the clone is older"
    (person.root / "aside").write_bytes(b"later\n")
    file = {"path": "f", "content": None}
    tree = upstream.git("rev-parse", "HEAD^{tree}").decode().strip()
    document = ExportedChanges.model_validate({"base_commit": later, "commit": None, "tree": tree, "files": [file]})
    with refused(ErrorCode.INTERNAL):
        desk.workbench.apply_exported(desk.task, document, person.root)
    upstream.git("rm", "-q", "--cached", "f")
    without = upstream.git("write-tree").decode().strip()
    desk.workbench.apply_exported(desk.task, document.model_copy(update={"tree": without}), person.root)
    assert not (person.root / "f").exists()
    with refused(ErrorCode.NOT_FOUND):
        desk.workbench.apply_exported(desk.task, document.model_copy(update={"base_commit": "2" * 40}), person.root)


def test_no_change_and_too_much_of_it_are_said_by_the_host_that_has_the_task(
    person: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    with refused(ErrorCode.NOTHING_TO_COMMIT):
        export(person.desk)
    person.desk.write("new", b"12345")
    assert export(person.desk, uncommitted=True).files[0].content == b"12345"
    monkeypatch.setattr(change_export, "MOST_BYTES", 4)
    with refused(ErrorCode.QUOTA_EXCEEDED):
        export(person.desk, uncommitted=True)
