"""Repositories whose object ids are SHA-256: everything that works on the others works on them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.errors import ErrorCode
from sandbox.files.overlay_mounts import find_overlay_obstacle
from sandbox.models import SearchQuery
from tests.unit.conftest import Upstream, refused, run
from tests.unit.desk import Desk, on_disk


def initialised_as(root: Path, kind: str) -> Upstream:
    root.mkdir()
    run(["git", "init", "--quiet", "--initial-branch=main", f"--object-format={kind}"], cwd=root)
    return Upstream(root)


@pytest.fixture(params=["overlay", "plain"])
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Desk]:
    if request.param == "overlay" and (reason := find_overlay_obstacle(tmp_path)):
        pytest.skip(f"no overlay mounts here: {reason}")
    home = tmp_path / "sandbox-home"
    home.mkdir()
    (home / "config.toml").write_text(f'[workspaces]\nworktree = "{request.param}"\n')
    desk = Desk(initialised_as(tmp_path / "upstream", "sha256"), home)
    with desk.workbench:
        yield desk


def test_a_task_lives_on_them(desk: Desk) -> None:
    bench, task = desk.workbench, desk.task.id
    assert len(desk.task.base_commit) == 64
    desk.write("f", b"changed\n")
    desk.write("new", b"new\n")
    assert [c.path for c in bench.status(task).changes] == ["f", "new"]
    assert "+changed" in bench.diff(task).text
    hits = bench.search(task, SearchQuery(pattern="x")).hits + bench.search(task, SearchQuery(pattern="changed")).hits
    assert {h.path for h in hits} == {"d/e/x", "f"}
    taken = bench.snapshot(task)
    before = on_disk(desk.root)
    bench.write_file(task, "more", b"more\n", None)
    (desk.root / "f").unlink()
    bench.restore(task, taken.id)
    assert on_disk(desk.root) == before
    made = bench.commit(task, "a change")
    assert len(made.commit) == len(made.tree) == 64
    desk.write("f", b"changed again\n")
    bench.commit(task, "another")
    fork = bench.fork_task(task, taken.id)
    assert on_disk(desk.worktree(fork)) == before
    assert bench.push(task).commit == bench.task(task).head_commit
    assert desk.upstream.oid(f"refs/heads/{desk.task.branch}") == bench.task(task).head_commit
    bench.close_task(task, delete_worktree=True)


def test_the_clone_follows_its_remote(desk: Desk, tmp_path: Path) -> None:
    url = str(desk.upstream.root)
    desk.upstream.write("f", b"two\n")
    desk.upstream.commit()
    assert desk.workbench.fetch(url).commit_sha == desk.upstream.oid("HEAD")
    clone = desk.home / "repositories" / "clones" / desk.repo_id
    ours = (clone / "config").read_bytes()
    record = clone / "sandbox-fetched.json"  # our own, of the last fetch
    assert json.loads(record.read_bytes())["schema_version"] == 1
    record.unlink()
    desk.workbench.clone(url)
    assert (clone / "config").read_bytes() == ours
    desk.workbench.close_task(desk.task.id)
    shutil.rmtree(desk.upstream.root)
    anew = initialised_as(tmp_path / "upstream", "sha1")
    anew.write("f", b"one\n")
    anew.commit()
    with refused(ErrorCode.ORIGIN_MISMATCH):
        desk.workbench.clone(url)
