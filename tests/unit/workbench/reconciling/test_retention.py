"""`gc` and what is kept of finished work: limits by number, size and age, and never the only copy of anything."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from devtools.copied_clones import copied_clones
from sandbox.errors import ErrorCode, SandboxError
from sandbox.git import maintenance
from sandbox.git.process import Git
from sandbox.models import Leftover, LeftoverAction, Task
from sandbox.models.artifact_lists import Artifact, ArtifactList
from sandbox.models.layers import Layer, Resolution
from sandbox.store import artifact_store
from sandbox.store import home as home_files
from sandbox.store.home import Home, write_json
from sandbox.store.journal_chain import sha256, walk_chain
from sandbox.store.layers import LAYERS_LOCK, LayerStore
from sandbox.store.records import save_task
from sandbox.workbench import Workbench
from sandbox.workbench.controller import audit
from sandbox.workbench.reconciling import clone_objects
from sandbox.workbench.reconciling.old_caches import find_old_caches
from sandbox.workbench.reconciling.reconciler import Reconciler
from tests.unit.conftest import Upstream, refused

KINDS = {"runs", "logs", "verdicts", "closed task", "journal", "old journal", "clone objects", "clone", "cache"}
OWNER, RUN = "task-1e214dfa", "run-0123456789ab"


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[..., Workbench]]:
    """A workbench on one home, with these `keep.*` settings."""
    benches: list[Workbench] = []

    def make(**keep: Any) -> Workbench:
        environ = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]}
        benches.append(Workbench(tmp_path / "home", environ=environ, settings={"keep": keep}, allow_file=True))
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


@pytest.fixture
def store_home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    home.prepare()
    return home


def found(bench: Workbench, *, dry_run: bool = False) -> list[Leftover]:
    return [left for left in bench.collect(dry_run=dry_run).leftovers if left.kind in KINDS]


def names(bench: Workbench, **options: bool) -> list[tuple[str, str, LeftoverAction]]:
    return [(left.kind, left.name, left.action) for left in found(bench, **options)]


def save_runs(folder: Path, count: int, size: int = 10) -> list[str]:
    """Runs with logs, oldest first; `gc` reads names and times only."""
    folder.mkdir(exist_ok=True)
    ids = [f"run-{number:032x}" for number in range(count)]
    for number, name in enumerate(ids):
        (folder / f"{name}.stdout").write_bytes(b"x" * size)
        write_json(folder / f"{name}.json", {})
        os.utime(folder / f"{name}.json", (1000 + number, 1000 + number))
    return ids


def close_long_ago(bench: Workbench, task: Task, *, delete: bool = True) -> None:
    closed = bench.close_task(task.id, delete_worktree=delete, discard=delete)
    before = datetime.now(UTC) - timedelta(days=100)
    save_task(Home(bench.home), closed.model_copy(update={"closed_at": before}))


def test_a_home_with_the_default_settings_has_nothing_to_remove(opened: Callable[..., Workbench], repo_id: str) -> None:
    bench = opened()
    bench.close_task(bench.create_task(repo_id).id, delete_worktree=True, discard=True)
    save_runs(Home(bench.home).logs(repo_id), 3)
    assert found(bench) == []


def test_the_oldest_runs_go_first_and_a_log_without_a_record_stays(
    opened: Callable[..., Workbench], repo_id: str
) -> None:
    bench = opened(runs=2)
    folder = Home(bench.home).logs(repo_id)
    ids = save_runs(folder, 5)
    (folder / f"run-{'f' * 32}.stdout").write_bytes(b"of a run that goes on")
    assert names(bench, dry_run=True) == [("runs", repo_id, LeftoverAction.REMOVED)]
    assert len(list(folder.iterdir())) == 11
    assert names(bench) == [("runs", repo_id, LeftoverAction.REMOVED)]
    assert {p.stem for p in folder.iterdir()} == {*ids[3:], f"run-{'f' * 32}"}
    assert found(bench) == []


def test_the_oldest_logs_go_first_and_their_records_stay(opened: Callable[..., Workbench], repo_id: str) -> None:
    bench = opened(logs_bytes=250)
    folder = Home(bench.home).logs(repo_id)
    ids = save_runs(folder, 5, size=100)
    beside = {f"{name}{suffix}" for name in ids for suffix in (".artifacts", ".binding", ".tests", ".usage")}
    for name in beside:
        write_json(folder / name, {"run_id": name.partition(".")[0], "artifacts": [], "padding": "x" * 100})
    (folder / f"{ids[0]}.service-db").write_bytes(b"x")
    assert names(bench) == [("logs", repo_id, LeftoverAction.REMOVED)]
    assert {p.name for p in folder.iterdir()} == {
        *beside, *(f"{name}.json" for name in ids), *(f"{name}.stdout" for name in ids[3:]),
    }  # fmt: skip
    assert found(bench) == []


def test_the_oldest_verdicts_go_first(opened: Callable[..., Workbench], repo_id: str) -> None:
    bench = opened(verdicts=2)
    folder = Home(bench.home).verdict("any").parent
    folder.mkdir()
    for number in range(4):
        write_json(folder / f"{number:064x}.json", {})
        os.utime(folder / f"{number:064x}.json", (1000 + number, 1000 + number))
    assert names(bench) == [("verdicts", "2 of 4", LeftoverAction.REMOVED)]
    assert sorted(p.stem for p in folder.iterdir()) == [f"{2:064x}", f"{3:064x}"]


def test_a_large_journal_is_named_and_never_cut(opened: Callable[..., Workbench], repo_id: str) -> None:
    bench = opened(journal_bytes=10)
    task = bench.create_task(repo_id)
    before = Home(bench.home).journal(task.id).read_bytes()
    assert ("journal", task.id, LeftoverAction.KEPT) in names(bench)
    assert Home(bench.home).journal(task.id).read_bytes() == before
    assert bench.audit_verify().intact


def test_a_closed_task_goes_with_its_refs_and_logs_and_leaves_its_journal(
    opened: Callable[..., Workbench], repo_id: str
) -> None:
    bench = opened(closed_tasks_days=30)
    home = Home(bench.home)
    task, recent, live = (bench.create_task(repo_id) for _ in range(3))
    save_runs(home.logs(task.id), 1)
    record_answer(home, task.id)
    close_long_ago(bench, task)
    bench.close_task(recent.id, delete_worktree=True, discard=True)
    assert names(bench) == [("closed task", task.id, LeftoverAction.REMOVED)]
    with refused(ErrorCode.NOT_FOUND):
        bench.task(task.id)
    left = [p.relative_to(home.root) for p in home.root.rglob(f"*{task.id}*")]
    assert left == [home.journal(task.id).relative_to(home.root)]
    assert {t.id for t in bench.tasks()} == {recent.id, live.id}
    assert bench.audit_verify().intact
    assert found(bench) == []


def forget_long_ago(bench: Workbench, repo_id: str) -> Path:
    """The journal of a task that was forgotten, as if its last entry was old."""
    task = bench.create_task(repo_id)
    bench.snapshot(task.id)
    close_long_ago(bench, task)
    assert ("closed task", task.id, LeftoverAction.REMOVED) in names(bench)
    path = Home(bench.home).journal(task.id)
    os.utime(path, (1000, 1000))
    return path


def test_s156_an_old_journal_goes_and_what_it_said_can_still_be_proven(
    opened: Callable[..., Workbench], repo_id: str
) -> None:
    """Controls: a copy with another entry has another digest; one that is deleted without a note is missing."""
    bench = opened(closed_tasks_days=30, journals_days=100)
    recent = forget_long_ago(bench, repo_id)
    os.utime(recent)
    path = forget_long_ago(bench, repo_id)
    copy = path.read_bytes()
    assert names(bench) == [("old journal", path.stem, LeftoverAction.REMOVED)]
    assert (path.exists(), recent.exists(), found(bench)) == (False, True, [])
    report = bench.audit_verify()
    assert report.intact
    (state,) = (state for state in report.journals if state.name == path.stem)
    assert (state.removed, state.entries) == (True, 0)
    assert state.head == sha256(copy.splitlines()[-1])
    assert [link.broken for link in walk_chain(copy.splitlines(keepends=True))] == [None] * state.seq
    edited = copy.replace(b'"operation":"create"', b'"operation":"CREATE"')
    assert edited != copy
    assert any(link.broken for link in walk_chain(edited.splitlines(keepends=True))), "void"
    recent.unlink()
    assert not bench.audit_verify().intact


def test_s156_a_journal_that_goes_while_all_are_verified_is_not_missing(
    opened: Callable[..., Workbench], repo_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The home's journal was read before its removal was noted there. Control: one without a note is missing."""
    bench = opened(closed_tasks_days=30, journals_days=100)
    path = forget_long_ago(bench, repo_id)
    list_journals, removed = audit._list_journals, list[object]()

    def list_after_removal(home: Home) -> list[Path]:
        monkeypatch.setattr(audit, "_list_journals", list_journals)
        removed.extend(names(bench))
        return list_journals(home)

    monkeypatch.setattr(audit, "_list_journals", list_after_removal)
    report = bench.audit_verify()
    assert removed == [("old journal", path.stem, LeftoverAction.REMOVED)]
    assert report.intact
    assert [state.removed for state in report.journals if state.name == path.stem] == [True]
    forget_long_ago(bench, repo_id).unlink()
    assert not bench.audit_verify().intact


def test_s156_a_damaged_journal_is_kept(opened: Callable[..., Workbench], repo_id: str) -> None:
    """It is evidence. Also while the home's journal is damaged, in which a note would prove nothing."""
    bench = opened(closed_tasks_days=30, journals_days=100)
    path = forget_long_ago(bench, repo_id)
    of_home = Home(bench.home).journal("home")
    for damaged in (path, of_home):
        before = damaged.read_bytes()
        damaged.write_bytes(before.replace(b'"duration_s":', b'"duration_s":1', 1))
        os.utime(path, (1000, 1000))
        assert names(bench) == [("old journal", path.stem, LeftoverAction.KEPT)]
        damaged.write_bytes(before + damaged.read_bytes()[len(before) + 1 :])
        os.utime(path, (1000, 1000))
    assert path.exists()


def test_s156_a_kill_between_note_and_removal_loses_nothing(opened: Callable[..., Workbench], repo_id: str) -> None:
    bench = opened(closed_tasks_days=30, journals_days=100)
    path = forget_long_ago(bench, repo_id)
    copy = path.read_bytes()
    names(bench)
    path.write_bytes(copy)
    (state,) = (state for state in bench.audit_verify().journals if state.name == path.stem)
    assert (state.broken, state.removed) == (None, False)
    path.write_bytes(b"".join(copy.splitlines(keepends=True)[:-1]))  # what comes back is compared with the note
    assert not bench.audit_verify().intact


def record_answer(home: Home, task_id: str) -> Path:
    folder = home.repositories / "operations" / task_id
    (folder / "1").mkdir(parents=True)
    (folder / "1" / "edit.json").write_text("{}")
    return folder


def test_old_answers_go_if_their_task_is_not_here(opened: Callable[..., Workbench], repo_id: str) -> None:
    """It ended, or went on on another host. Controls: a recent answer, and one of a task that is here."""
    bench = opened(closed_tasks_days=30)
    home = Home(bench.home)
    recent, old, ours = (f"task-{number:08d}-0000-4000-8000-000000000000" for number in range(3))
    for task_id in (recent, old, ours):
        folder = record_answer(home, task_id)
        for path in [folder, *folder.rglob("*")] if task_id != recent else ():
            os.utime(path, (1000, 1000))
    task = bench.create_task(repo_id)
    (home.repositories / "operations" / ours).rename(home.repositories / "operations" / task.id)
    assert [left.name for left in bench.collect().leftovers if left.kind == "answers"] == [old]
    assert {path.name for path in (home.repositories / "operations").iterdir()} == {recent, task.id}
    assert not list((home.repositories / "locks").glob(f"*{old}*"))


def test_a_closed_task_with_work_that_exists_only_here_is_kept(opened: Callable[..., Workbench], repo_id: str) -> None:
    bench = opened(closed_tasks_days=30)
    committed, snapshot, uncommitted = (bench.create_task(repo_id, name) for name in "abc")
    for task in (committed, snapshot, uncommitted):
        bench.write_file(task.id, "new", task.id.encode(), None)
    bench.commit(committed.id, "work")
    bench.snapshot(snapshot.id)
    for task in (committed, snapshot):
        close_long_ago(bench, task)
    close_long_ago(bench, uncommitted, delete=False)
    assert found(bench) == []
    assert len(bench.tasks()) == 3
    assert bench.snapshots(snapshot.id)


def test_a_pushed_closed_task_is_no_longer_needed(
    opened: Callable[..., Workbench], repo_id: str, upstream: Upstream
) -> None:
    bench = opened(closed_tasks_days=30)
    task = bench.create_task(repo_id)
    bench.write_file(task.id, "new", b"x", None)
    bench.snapshot(task.id, "before the commit")
    bench.commit(task.id, "work")
    clone = Home(bench.home).clone(repo_id)
    upstream.git("fetch", "--quiet", str(clone), f"refs/heads/{bench.task(task.id).branch}:refs/heads/theirs")
    bench.clone(str(upstream.root))
    close_long_ago(bench, task)
    assert names(bench) == [("closed task", task.id, LeftoverAction.REMOVED)]


def test_a_closed_task_is_kept_while_its_clone_cannot_be_read_and_goes_with_its_repository(
    opened: Callable[..., Workbench], repo_id: str
) -> None:
    bench = opened(closed_tasks_days=30)
    task = bench.create_task(repo_id)
    close_long_ago(bench, task)
    clone = Home(bench.home).clone(repo_id)
    aside = clone.rename(clone.with_name("away"))
    assert ("closed task", task.id, LeftoverAction.REMOVED) not in names(bench)
    aside.rename(clone)
    (clone / "HEAD").write_text("damaged")
    assert ("closed task", task.id, LeftoverAction.REMOVED) not in names(bench)
    (clone / "HEAD").write_text("ref: refs/heads/none\n")
    bench.remove_repository(repo_id, discard=True)
    assert names(bench) == [("closed task", task.id, LeftoverAction.REMOVED)]


def test_with_zero_nothing_is_removed(opened: Callable[..., Workbench], repo_id: str) -> None:
    zero = {"closed_tasks_days": 0, "runs": 0, "logs_bytes": 0, "verdicts": 0, "journal_bytes": 0, "repack_days": 0}
    path = forget_long_ago(opened(closed_tasks_days=30), repo_id)
    bench = opened(**zero, quarantine_days=0, journals_days=0)
    assert path.exists()
    close_long_ago(bench, bench.create_task(repo_id))
    save_runs(Home(bench.home).logs(repo_id), 5)
    assert found(bench) == []


def test_a_clone_that_was_set_aside_goes_when_the_new_one_has_all_its_commits(
    opened: Callable[..., Workbench], repo_id: str
) -> None:
    bench = opened(quarantine_days=30)
    clone = Home(bench.home).clone(repo_id)
    aside = [clone.with_name(f".{repo_id}.corrupt-{number}") for number in (1, 2)]
    for path in aside:
        os.system(f"cp -r '{clone}' '{path}'")  # noqa: S605 - paths of this test
    task = bench.create_task(repo_id)
    bench.write_file(task.id, "new", b"x", None)
    lost = bench.commit(task.id, "only in the old clone").commit
    os.system(f"cp -r '{clone}/objects' '{aside[1]}'")  # noqa: S605 - as above
    (aside[1] / "refs/heads/lost").write_text(f"{lost}\n")
    (aside[0] / "refs/heads/known").write_text(f"{bench.task(task.id).base_commit}\n")
    bench.close_task(task.id, delete_worktree=True, discard=True)
    Git(clone).run("update-ref", "-d", f"refs/heads/{task.branch}")
    assert names(bench) == [
        ("clone", aside[0].name, LeftoverAction.REMOVED),
        ("clone", aside[1].name, LeftoverAction.KEPT),
    ]
    assert [path.exists() for path in aside] == [False, True]


def test_gc_packs_a_clone_and_says_how_small_it_is(
    opened: Callable[..., Workbench], repo_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = opened()
    monkeypatch.setattr(maintenance, "MANY_PACKS", 0)
    (left,) = found(bench)
    assert (left.kind, left.action, left.note.startswith("packed: ")) == ("clone objects", LeftoverAction.REMOVED, True)
    assert bench.create_task(repo_id).head_commit


def test_a_fetch_beside_the_packing_waits_for_it_and_loses_nothing(
    opened: Callable[..., Workbench], repo_id: str, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control: without the lock of the repository the fetch would end while the clone is packed."""
    bench, url = opened(), str(upstream.root)
    upstream.write("f", b"two\n")
    wanted = upstream.commit()
    monkeypatch.setattr(maintenance, "MANY_PACKS", 0)
    with ThreadPoolExecutor(1) as pool:
        fetches: list[Future[object]] = []

        def repack_beside_a_fetch(git: Git, max_bytes: int) -> int:
            fetches.append(pool.submit(opened().fetch, url))
            assert not wait(fetches, timeout=0.5).done
            return maintenance.repack(git, max_bytes)

        monkeypatch.setattr(clone_objects, "repack", repack_beside_a_fetch)
        assert [left.action for left in found(bench)] == [LeftoverAction.REMOVED]
        fetches[0].result(timeout=60)
    git = Git(Home(bench.home).clone(repo_id))
    git.run("fsck", "--strict", "--connectivity-only", wanted)


def test_gc_leaves_a_clone_that_is_fetched_for_the_next_time(
    opened: Callable[..., Workbench], repo_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = opened()
    monkeypatch.setattr(maintenance, "MANY_PACKS", 0)
    with Home(bench.home).locked(f"repository-{repo_id}"):  # as a fetch does
        assert [left.action for left in found(bench)] == [LeftoverAction.BUSY]
    assert [left.action for left in found(bench)] == [LeftoverAction.REMOVED]


def test_gc_does_not_pack_on_a_full_disk_and_does_not_fail(
    opened: Callable[..., Workbench], repo_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = opened()
    monkeypatch.setattr(maintenance, "MANY_PACKS", 0)
    config = bench.home / "config.toml"
    config.write_text(f"[disk]\nreserve_bytes = {1 << 60}\n")
    (left,) = found(opened())
    assert (left.kind, left.action) == ("clone objects", LeftoverAction.KEPT)
    assert "disk" in left.note
    config.unlink()


def test_a_dry_run_removes_nothing(opened: Callable[..., Workbench], repo_id: str) -> None:
    bench = opened(closed_tasks_days=30)
    task = bench.create_task(repo_id)
    close_long_ago(bench, task)
    assert names(bench, dry_run=True) == [("closed task", task.id, LeftoverAction.REMOVED)]
    assert json.loads(Home(bench.home).task(task.id).read_bytes())["id"] == task.id


def test_what_can_be_computed_again_goes_when_it_is_old(opened: Callable[..., Workbench], repo_id: str) -> None:
    """One file for each commit or tree would stay for good. Controls: younger ones, and those of an open task, stay."""
    bench = opened()
    task = bench.create_task(repo_id)
    home = bench._services.home
    dependencies = home.repositories / "dependencies"
    old = [home.facts(repo_id, "a" * 40), home.rules(repo_id, "a" * 40)]
    old += [dependencies / folder / f"{'b' * 64}.json" for folder in ("sources", "resolutions", "failures")]
    young = [home.facts(repo_id, "c" * 40), *(path.with_name(f"{'d' * 64}.json") for path in old[2:])]
    for path in (*old, *young):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    in_use = home.facts(repo_id, task.base_commit)
    assert in_use.is_file(), "void"
    for path in (*old, in_use):
        os.utime(path, (1, 1))
    assert [left.bytes for left in found(bench, dry_run=True) if left.kind == "cache"] == [4, 2, 2, 2]
    assert all(path.exists() for path in old)
    bench.collect()
    assert [path for path in (*old, *young, in_use) if path.exists()] == [*young, in_use]
    assert [left for left in found(bench) if left.kind == "cache"] == []


@pytest.mark.parametrize("meanwhile", ["resolution", "layer", "nothing"])
def test_a_choice_of_packages_that_a_build_saves_meanwhile_stays(
    opened: Callable[..., Workbench], repo_id: str, meanwhile: str
) -> None:
    """Or whose layer it publishes. Control: without a build the choice goes."""
    services = opened()._services
    store = LayerStore(services.home)
    fields = {"selection": "", "refused": (), "accesses": (), "resolved_at": datetime.now(UTC)}
    resolution = Resolution(request="e" * 64, layer="f" * 64, **fields)
    store.save_resolution(resolution)
    path = services.home.repositories / f"dependencies/resolutions/{resolution.request}.json"
    os.utime(path, (1, 1))
    (finding,) = find_old_caches(Reconciler(services))
    assert finding.locks == (LAYERS_LOCK,)
    assert finding.remedy is not None
    if meanwhile == "resolution":
        store.save_resolution(resolution)
    elif meanwhile == "layer":
        built = services.home.repositories / "built"
        built.mkdir()
        layer = Layer(
            key="f" * 64, ecosystem="python", packages=(), image_digest="sha256:1", platform="linux", runtime="runc",
            folder="one", bytes=10, files=1, built_at=datetime.now(UTC), wall_time_s=1.0,
        )  # fmt: skip
        store.publish_unless_known(layer, built)
    with services.home.locked(LAYERS_LOCK):
        finding.remedy()
    assert path.exists() is (meanwhile != "nothing")


def test_a_choice_of_packages_is_saved_under_the_lock_that_its_removal_holds(store_home: Home) -> None:
    """Else it could be removed between the look at its age and its removal."""
    resolution = Resolution(
        request="e" * 64, layer="f" * 64, selection="", refused=(), accesses=(), resolved_at=datetime.now(UTC)
    )
    with ThreadPoolExecutor(1) as pool:
        with store_home.locked(LAYERS_LOCK):
            saving = pool.submit(LayerStore(store_home).save_resolution, resolution)
            assert not wait([saving], 0.2).done
        saving.result(10.0)


def test_an_artifact_that_a_run_stores_again_stays(tmp_path: Path) -> None:
    """It was found unused before. Control: one that is not stored again goes."""
    home = Home(tmp_path)
    home.artifacts.parent.mkdir()
    for content in (b"again", b"unused"):
        sha256_id, _ = artifact_store.store_content(home, [content])
        os.utime(home.artifacts / sha256_id.removeprefix("sha256:"), (1000, 1000))
    found = artifact_store.find_unused(home)
    assert len(found) == 2
    again, _ = artifact_store.store_content(home, [b"again"])
    artifact_store.remove_unused(found)
    assert [path.name for path in home.artifacts.iterdir()] == [again.removeprefix("sha256:")]


@pytest.fixture
def named_content(store_home: Home) -> Path:
    """A content, not new, that the list of a run names."""
    sha256_id, size = artifact_store.store_content(store_home, [b"precious"])
    content = store_home.artifacts / sha256_id.removeprefix("sha256:")
    os.utime(content, (1000, 1000))
    store_home.logs(OWNER).mkdir()
    artifact = Artifact(path="a.bin", sha256=sha256_id, size=size, executable=False)
    artifact_store.save_list(store_home, OWNER, ArtifactList(run_id=RUN, artifacts=(artifact,), refused=()))
    return content


@pytest.mark.parametrize("what", ["list", "folder"])
def test_contents_stay_while_what_names_them_cannot_be_read(
    store_home: Home, named_content: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Control: without the list the content is unused."""
    logs = store_home.logs(OWNER)
    broken = logs if what == "folder" else logs / f"{RUN}.artifacts"

    def failing(call: Callable[[Path], Any]) -> Callable[[Path], Any]:
        def fail(path: Path) -> Any:
            if path == broken:
                raise OSError(errno.EIO, "I/O error", str(path))
            return call(path)

        return fail

    with monkeypatch.context() as disk:
        disk.setattr(home_files, "_read_trusted", failing(home_files._read_trusted))
        disk.setattr(Path, "iterdir", failing(Path.iterdir))
        with pytest.raises((SandboxError, OSError), match="I/O error"):
            artifact_store.find_unused(store_home)
    assert artifact_store.find_unused(store_home) == []
    (logs / f"{RUN}.artifacts").unlink()
    assert artifact_store.find_unused(store_home) == [named_content]


@pytest.mark.parametrize("damage", [b"", b"{}", b'{"schema_version": 2}', b'{"schema_version": 1, "artifacts": 5}'])
def test_contents_stay_while_a_list_is_damaged_and_gc_says_so(
    opened: Callable[..., Workbench], store_home: Home, named_content: Path, damage: bytes
) -> None:
    """Control: it goes when the list was moved away, as the error for it advises."""
    damaged = store_home.logs(OWNER) / f"{RUN}.artifacts"
    damaged.write_bytes(damage)
    with opened() as bench:
        (left,) = [left for left in bench.collect().leftovers if left.kind == "artifacts"]
        assert (left.name, left.action) == ("contents", LeftoverAction.KEPT)
        assert str(damaged) in left.note
        assert named_content.exists()
        damaged.unlink()
        (left,) = [left for left in bench.collect().leftovers if left.kind == "artifacts"]
        assert left.action is LeftoverAction.REMOVED
        assert not named_content.exists()
