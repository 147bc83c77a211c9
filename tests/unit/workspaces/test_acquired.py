"""Records of acquired workspaces: ids, and what is no id."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import WorkspaceRequest
from sandbox.store.home import Home
from sandbox.workspaces.acquired import AcquiredWorkspaces
from tests.unit.conftest import refused


@pytest.fixture
def acquired(tmp_path: Path) -> AcquiredWorkspaces:
    """Records of a new home."""
    home = Home(tmp_path / "home")
    home.prepare()
    return AcquiredWorkspaces(home, "clone")


def test_an_id_tells_apart_what_text_joined_together_would_not(acquired: AcquiredWorkspaces) -> None:
    pairs = [("", None), ("", ""), ("a", "b/c"), ("a/b", "c"), ("a,b", "c"), ('a", "b', "c"), ("ab", "c"), ("a", "bc")]
    ids = {acquired.id_of(WorkspaceRequest(tenant=tenant, hint=hint)) for tenant, hint in pairs}
    assert len(ids) == len(pairs)
    assert all(name.removeprefix("clone-").isalnum() for name in ids)


@pytest.mark.parametrize("text", ["a\x00b", "a\nb", "\x1b[31m", "x" * 5000])
def test_text_that_no_record_should_hold_is_refused(acquired: AcquiredWorkspaces, text: str) -> None:
    for request in (WorkspaceRequest(hint=text), WorkspaceRequest(tenant=text)):
        with refused(ErrorCode.INVALID_INPUT):
            acquired.id_of(request)


@pytest.mark.parametrize("name", ["", ".", "..", "clone-../x", "clone-" + "0" * 23, "local-" + "0" * 24, "clone-/etc"])
def test_no_other_text_names_a_directory(acquired: AcquiredWorkspaces, name: str) -> None:
    with refused(ErrorCode.NOT_FOUND):
        acquired.folder_of(name)


def test_a_released_id_is_known_for_a_week(acquired: AcquiredWorkspaces, tmp_path: Path) -> None:
    first, second = (acquired.save(WorkspaceRequest(hint=hint)).id for hint in ("one", "two"))
    given_up: list[str] = []
    for _ in range(2):
        acquired.release(first, lambda record: given_up.append(record.id))
    assert given_up == [first]
    mark = next(tmp_path.rglob(f"{first}.released"))
    old = time.time() - 8 * 86_400
    os.utime(mark, (old, old))
    acquired.release(second, lambda _: None)
    with refused(ErrorCode.NOT_FOUND):
        acquired.release(first, lambda _: None)


def test_an_old_id_that_another_process_forgets_meanwhile_is_in_no_way(
    acquired: AcquiredWorkspaces, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The workspace is released by then. Control: the old id is forgotten."""
    old, other = (acquired.save(WorkspaceRequest(hint=hint)).id for hint in ("old", "other"))
    acquired.release(old, lambda _: None)
    mark = next(tmp_path.rglob(f"{old}.released"))
    os.utime(mark, (1, 1))
    stat = Path.stat

    def stat_after_removal(path: Path, **options: bool) -> os.stat_result:
        if path == mark:
            path.unlink()
        return stat(path, **options)

    monkeypatch.setattr(Path, "stat", stat_after_removal)
    acquired.release(other, lambda _: None)
    monkeypatch.undo()
    assert acquired.find(other) is None
    assert not mark.exists()


def test_a_damaged_record_is_listed_with_what_can_be_done(acquired: AcquiredWorkspaces, tmp_path: Path) -> None:
    record = acquired.save(WorkspaceRequest(hint="one"))
    path = next(tmp_path.rglob(f"{record.id}.json"))
    path.write_bytes(b"{")
    (error,) = acquired.list()
    assert isinstance(error, SandboxError)
    assert error.data == {"id": record.id}
    assert "Move the file away" in error.hint


def test_what_cannot_be_given_up_stays_acquired(acquired: AcquiredWorkspaces) -> None:
    record = acquired.save(WorkspaceRequest(hint="one"), repo="r")
    with pytest.raises(ZeroDivisionError):
        acquired.release(record.id, lambda _: 1 / 0)
    assert acquired.find(record.id) == record
