"""Limits of storage: what can be made again goes, the least recently used first, and never what exists only here."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from devtools.copied_clones import copied_clones
from sandbox.errors import ErrorCode
from sandbox.git.process import Git
from sandbox.models import LeftoverAction, Reconciliation, StorageKind
from sandbox.store.compiler_caches import CompilerCaches
from sandbox.store.home import Home, write_json
from sandbox.store.layers import LayerStore
from sandbox.workbench import Workbench
from sandbox.workbench.reconciling.evictable import (
    Evictable,
    find_candidates,
    find_compiler_caches,
    find_layers,
    find_verdicts,
)
from sandbox.workbench.reconciling.reconciler import Finding
from tests.unit.conftest import Upstream, refused
from tests.unit.store.test_layer_store import publish, resolve
from tests.unit.workbench.reconciling.test_retention import save_runs

LONG_AGO = 1_000_000.0
LARGE = 256 * 1024
TINY = 4096


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[..., Workbench]]:
    """A workbench on one home, with these settings."""
    benches: list[Workbench] = []

    def make(**settings: Any) -> Workbench:
        environ = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]}
        benches.append(Workbench(tmp_path / "home", environ=environ, settings=settings, allow_file=True))
        return benches[-1]

    yield make
    for bench in benches:
        bench.__exit__(None, None, None)


@pytest.fixture
def repo_id(opened: Callable[..., Workbench], upstream: Upstream) -> str:
    upstream.write("f", b"one\n")
    upstream.commit()
    with copied_clones():
        return opened().clone(str(upstream.root)).repository.id


def age(*paths: Path) -> None:
    for path in paths:
        os.utime(path, (LONG_AGO, LONG_AGO))


def make_folder(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "content").write_bytes(os.urandom(LARGE))
    age(folder)
    return folder


def git(home: Home, repo_id: str, *args: str) -> str:
    return Git(home.clone(repo_id)).run(*args).decode()


def kinds(done: Reconciliation) -> list[tuple[str, LeftoverAction]]:
    return [(left.kind, left.action) for left in done.leftovers]


def fill(home: Home, repo_id: str) -> dict[str, Path]:
    """One of each kind that may go, all old; the paths by kind."""
    cache = make_folder(home.compiler_caches(repo_id) / ("c" * 64))
    candidate = make_folder(home.candidates(repo_id) / ("d" * 64))
    checkout = make_folder(home.pristine(repo_id, "e" * 40))
    large_file = make_folder(home.lfs_objects(repo_id) / "ab") / "content"
    verdict = home.verdict("f" * 64)
    verdict.parent.mkdir(exist_ok=True)
    verdict.write_bytes(os.urandom(LARGE))
    runs = save_runs(home.logs(repo_id), 4, LARGE)
    age(large_file, verdict)
    return {
        "compiler cache": cache, "candidate": candidate, "checkout": checkout, "lfs objects": large_file,
        "verdicts": verdict, "logs": home.logs(repo_id) / f"{runs[0]}.stdout",
    }  # fmt: skip


def test_what_can_be_made_again_goes_before_results_of_old_runs(opened: Callable[..., Workbench], repo_id: str) -> None:
    bench = opened()
    home = Home(bench.home)
    before = bench.storage().bytes
    paths = fill(home, repo_id)
    assert bench.keep_to_limits().leftovers == (), "without a limit nothing goes"
    held = bench.storage().bytes
    assert held - before >= 9 * LARGE
    gone = []
    for goal in range(1, 8):
        for left in opened(storage={"max_bytes": held - goal * LARGE}).keep_to_limits().leftovers:
            gone.append(left.kind)
    assert sorted(gone[:3]) == ["candidate", "checkout", "compiler cache"]
    assert gone[3:6] == ["lfs objects", "verdicts", "logs"]
    assert not any(path.exists() for path in paths.values())
    newest = sorted(home.logs(repo_id).glob("*.stdout"))
    assert len(newest) == 3, "the newest runs keep their logs"
    assert len(list(home.logs(repo_id).glob("*.json"))) == 4, "and all runs their records"


def test_what_was_used_just_now_stays(opened: Callable[..., Workbench], repo_id: str) -> None:
    bench = opened(storage={"max_bytes": TINY})
    paths = fill(Home(bench.home), repo_id)
    now = time.time()
    for path in (*paths.values(), *Home(bench.home).logs(repo_id).iterdir()):
        os.utime(path, (now, now))
    (bench.home / "repositories/rooms/room-of-another").mkdir()  # it may be about to mount the compiler's cache
    done = bench.keep_to_limits()
    assert kinds(done) == [("storage", LeftoverAction.KEPT)]
    assert all(path.exists() for path in paths.values())


def test_a_checkout_below_a_worktree_stays(opened: Callable[..., Workbench], repo_id: str) -> None:
    bench = opened(storage={"max_bytes": TINY})
    home = Home(bench.home)
    task = bench.create_task(repo_id)
    checkouts = [path for path in home.pristines(repo_id).iterdir() if path.is_dir()]
    age(*checkouts)
    bench.keep_to_limits()
    assert all(path.exists() for path in checkouts)
    assert bench.read_file(task.id, "f").content == "one\n"


def test_s120_work_that_exists_only_here_stays(opened: Callable[..., Workbench], repo_id: str) -> None:
    bench = opened()
    open_task, closed = bench.create_task(repo_id), bench.create_task(repo_id)
    bench.write_file(open_task.id, "new", "unsaved\n", None)
    bench.write_file(closed.id, "f", "two\n", bench.read_file(closed.id, "f").sha256)
    bench.commit(closed.id, "a commit that was never pushed")
    bench.snapshot(open_task.id, "kept")
    bench.close_task(closed.id, delete_worktree=True)
    home = Home(bench.home)
    for path in home.repositories.rglob("*"):
        if path.is_file() and not path.is_symlink():
            age(path)
    limited = opened(storage={"max_bytes": TINY})
    done = limited.collect()
    assert ("storage", LeftoverAction.KEPT) in kinds(done)
    assert limited.read_file(open_task.id, "new").content == "unsaved\n"
    assert [one.label for one in limited.snapshots(open_task.id)] == ["kept"]
    assert "a commit that was never pushed" in git(home, repo_id, "log", "--format=%s", f"refs/heads/{closed.branch}")


def test_a_large_writer_is_refused_while_the_home_holds_too_much(
    opened: Callable[..., Workbench], repo_id: str
) -> None:
    task = opened().create_task(repo_id)
    limited = opened(storage={"max_bytes": TINY})
    limited.create_task(repo_id)  # nothing was measured yet
    limited.keep_to_limits()
    with refused(ErrorCode.QUOTA_EXCEEDED) as caught:
        limited.create_task(repo_id)
    assert caught.value.reason == "storage"
    assert "storage.max_bytes" in caught.value.details
    limited.write_file(task.id, "small", "edits go on\n", None)
    limited.close_task(task.id, delete_worktree=True, discard=True)
    raised = opened(storage={"max_bytes": 1024**3})
    raised.create_task(repo_id)


def test_a_repository_has_a_limit_of_its_own(opened: Callable[..., Workbench], repo_id: str) -> None:
    home = Home(opened().home)
    paths = fill(home, repo_id)
    other = make_folder(home.compiler_caches("other") / ("c" * 64))
    limited = opened(repositories={repo_id: {"max_bytes": TINY}})
    done = limited.keep_to_limits()
    assert {left.kind for left in done.leftovers if left.action is LeftoverAction.REMOVED} == set(paths) - {"verdicts"}
    assert other.exists()
    assert paths["verdicts"].exists(), "it belongs to no repository"
    assert [row.max_bytes for row in limited.storage().repositories if row.repo_id == repo_id] == [TINY]
    limited.create_task(repo_id)  # nothing is refused


def test_an_artifact_goes_with_the_last_run_that_names_it(opened: Callable[..., Workbench], repo_id: str) -> None:
    bench = opened(storage={"max_bytes": TINY})
    home = Home(bench.home)
    runs = save_runs(home.logs(repo_id), 5)
    home.artifacts.mkdir()
    contents = {name: home.artifacts / (name * 64) for name in "ab"}
    for path in contents.values():
        path.write_bytes(os.urandom(LARGE))
        age(path)
    for run, named in ((runs[0], "a"), (runs[1], "ab"), (runs[4], "b")):
        listed = [{"path": name, "sha256": f"sha256:{name * 64}", "size": LARGE} for name in named]
        write_json(home.logs(repo_id) / f"{run}.artifacts", {"run_id": run, "artifacts": listed, "refused": []})
    done = bench.keep_to_limits()
    assert [(left.bytes, left.name) for left in done.leftovers if left.kind == "artifacts"] == [(LARGE, repo_id)]
    assert not contents["a"].exists()
    assert contents["b"].exists(), "the newest run names it"


def test_artifacts_stay_while_the_list_of_a_kept_run_cannot_be_read(
    opened: Callable[..., Workbench], repo_id: str
) -> None:
    """It may name them, and a list goes for its contents. Control: without it they go; a damaged list of an old run is
    in no way, and goes.
    """
    bench = opened(storage={"max_bytes": TINY})
    home = Home(bench.home)
    runs = save_runs(home.logs(repo_id), 5)
    home.artifacts.mkdir()
    content = home.artifacts / ("a" * 64)
    content.write_bytes(os.urandom(LARGE))
    age(content)
    lists = {index: home.logs(repo_id) / f"{runs[index]}.artifacts" for index in (0, 1, 4)}
    listed = [{"path": "a", "sha256": f"sha256:{'a' * 64}", "size": LARGE}]
    write_json(lists[0], {"run_id": runs[0], "artifacts": listed, "refused": []})
    lists[1].write_bytes(b"")
    lists[4].write_bytes(b"")
    (left,) = [left for left in bench.keep_to_limits().leftovers if left.kind == "artifacts"]
    assert left.action is LeftoverAction.FAILED
    assert str(lists[4]) in left.note
    assert all(path.exists() for path in (content, *lists.values()))
    lists[4].unlink()
    (left,) = [left for left in bench.keep_to_limits().leftovers if left.kind == "artifacts"]
    assert (left.action, left.bytes) == (LeftoverAction.REMOVED, LARGE)
    assert not any(path.exists() for path in (content, *lists.values()))


def test_a_dry_run_says_why_and_how_much_and_removes_nothing(opened: Callable[..., Workbench], repo_id: str) -> None:
    home = Home(opened().home)
    paths = fill(home, repo_id)
    bench = opened(storage={"max_bytes": TINY}, keep={"runs": 3})
    found = bench.storage()
    assert all(path.exists() for path in paths.values())
    by_kind = {left.kind: left for left in found.reclaimable}
    assert set(paths) | {"runs", "storage"} == set(by_kind)
    assert all(by_kind[kind].bytes >= LARGE for kind in (set(paths) | {"runs"}) - {"storage"})
    assert "storage.max_bytes; no worktree is above it" in by_kind["checkout"].note
    assert "more than its limit" in by_kind["storage"].note


def test_a_home_that_takes_no_note_of_its_size_is_shown(opened: Callable[..., Workbench], repo_id: str) -> None:
    bench = opened(storage={"max_bytes": 2**40})
    shown = bench.storage()
    assert bench.last_storage() is not None
    note = Home(bench.home).repositories / "storage.json"
    note.unlink()
    note.mkdir()  # it fails as on a full disk, when its owners are wanted most
    assert [use.kind for use in bench.storage().uses] == [use.kind for use in shown.uses]


def test_each_kind_is_counted_once(opened: Callable[..., Workbench], repo_id: str) -> None:
    bench = opened()
    task = bench.create_task(repo_id)
    before = bench.storage()
    home = Home(bench.home)
    fill(home, repo_id)
    bench.write_file(task.id, "large", "x" * LARGE, None)
    bench.snapshot(task.id, "one")
    found = bench.storage()
    sizes = {(use.kind, use.repo_id): use.bytes for use in found.uses}
    assert sum(sizes.values()) == found.bytes
    for kind in (
        StorageKind.CHECKOUTS, StorageKind.COMPILER_CACHES, StorageKind.CANDIDATES, StorageKind.LFS,
        StorageKind.WORKTREES,
    ):  # fmt: skip
        assert sizes[kind, repo_id] >= LARGE, kind
    assert sizes[StorageKind.LOGS, repo_id] >= 4 * LARGE
    assert sizes[StorageKind.SNAPSHOTS, repo_id] > 0
    assert sizes[StorageKind.VERDICTS, None] >= LARGE
    assert found.bytes - before.bytes < 14 * LARGE, "the mount of a worktree is not counted again"
    assert [row.task_id for row in found.tasks] == [task.id]
    assert found.tasks[0].worktree_bytes >= LARGE
    json.loads(found.model_dump_json())


def test_an_old_clone_is_packed_when_too_much_is_held(
    opened: Callable[..., Workbench], repo_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = opened(storage={"max_bytes": TINY})
    done = [left for left in bench.keep_to_limits().leftovers if left.kind == "clone objects"]
    assert done == []
    age(Home(bench.home).clone(repo_id) / "HEAD")
    done = [left for left in bench.keep_to_limits().leftovers if left.kind == "clone objects"]
    assert [left.action for left in done] == [LeftoverAction.REMOVED]
    assert "packed: " in done[0].note


def listed(home: Home, find: Callable[[Any], Iterator[Evictable]]) -> Finding:
    """What a finder lists first, as eviction holds it until its turn comes."""
    return next(find(SimpleNamespace(home=home))).finding


def chosen_by_a_room(home: Home) -> None:
    assert CompilerCaches(home, "repo", "sha256:" + "c" * 64).find() is not None, "void"


def room_made(home: Home) -> None:
    home.clean_room("run-1").mkdir()


def launched(home: Home) -> None:
    os.utime(home.candidates("repo") / ("d" * 64))


def resolved(home: Home) -> None:
    assert LayerStore(home).find_resolved("r") is not None, "void"


def failed(home: Home) -> None:
    write_json(home.verdict("f" * 64), {"verdict": "failed"})


@pytest.mark.parametrize(
    ("find", "use"),
    [
        (find_compiler_caches, room_made),
        (find_compiler_caches, chosen_by_a_room),
        (find_candidates, launched),
        (find_layers, resolved),
        (find_verdicts, failed),
    ],
    ids=lambda value: value.__name__,
)
def test_what_was_used_since_it_was_listed_stays(
    tmp_path: Path, find: Callable[[Any], Iterator[Evictable]], use: Callable[[Home], None]
) -> None:
    """Control: it goes if it was not."""
    home = Home(tmp_path / "home")
    home.prepare()
    cache, candidate = home.compiler_caches("repo") / ("c" * 64), home.candidates("repo") / ("d" * 64)
    (cache / "filled").mkdir(parents=True)
    write_json(cache / "current.json", {"folder": "filled", "tree": "a" * 40})
    candidate.mkdir(parents=True)
    verdict = home.verdict("f" * 64)
    verdict.parent.mkdir(exist_ok=True)
    write_json(verdict, {"verdict": "passed"})
    layers = LayerStore(home)
    tree = layers.tree(publish(layers))
    resolve(layers)
    used = [cache, candidate, verdict, tree.with_name(f"{tree.name}.lock")]
    paths: dict[object, Path] = {
        find_compiler_caches: cache,
        find_candidates: candidate,
        find_verdicts: verdict,
        find_layers: tree,
    }
    age(*used)
    remedy = listed(home, find).remedy
    assert remedy is not None
    use(home)
    remedy()
    assert paths[find].exists()
    for room in home.clean_room("any").parent.iterdir():
        room.rmdir()
    age(*used)
    remedy = listed(home, find).remedy
    assert remedy is not None
    remedy()
    assert not paths[find].exists(), "void"
