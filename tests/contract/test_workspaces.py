"""One suite for every kind of workspace; what only clones and several processes can show comes after it."""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox import Workbench
from sandbox.config import load_settings
from sandbox.environment_names import HOOK_FACTS
from sandbox.errors import ErrorCode, SandboxError
from sandbox.git.independent_clone import FETCH
from sandbox.git.process import Git, GitResult
from sandbox.models import WorkspaceKind, WorkspaceRecord, WorkspaceRequest
from sandbox.testing import WorkspaceContract, WorkspaceRig
from sandbox.testing.workspace_contract import BASE_FILES, EXECUTABLE_FILE, digest, refused
from sandbox.workspaces.full_checkout import PlainLayout
from sandbox.workspaces.local_workspaces import LocalWorkspaces
from sandbox.workspaces.registry import find_factory, list_kinds
from sandbox.workspaces.workspace import Workspace
from tests.unit.conftest import Upstream, initialised

_numbers = itertools.count()
Rigs = Callable[[str], WorkspaceRig]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Upstream:
    """A remote with the files of the suite."""
    found = initialised(tmp_path_factory.mktemp("source"))
    for path, content in BASE_FILES.items():
        found.write(path, content, executable=path == EXECUTABLE_FILE)
    found.commit("base")
    found.git("branch", "topic")
    return found


@pytest.fixture(scope="module")
def workbench(source: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workbench]:
    """A controller that knows the remote."""
    with Workbench(tmp_path_factory.mktemp("home") / "home", environ={}, allow_file=True) as found:
        found.clone(source.root.as_uri())
        yield found


@pytest.fixture
def rigs(workbench: Workbench, tmp_path: Path) -> Iterator[Rigs]:
    """Makes a rig of a kind; what it acquired is gone after the test."""
    made: list[WorkspaceRig] = []

    def make(kind: str) -> WorkspaceRig:
        provider = find_factory(kind)(workbench._services)
        tenant = f"tenant-{next(_numbers)}"
        repo_id = workbench.repositories()[0].id
        if kind == WorkspaceKind.LOCAL:
            (tmp_path / "local").mkdir()
            rig = WorkspaceRig(provider, str(tmp_path / "local"), tenant, starts_empty=True, shares_hints=False)
        elif kind == WorkspaceKind.EPHEMERAL:
            rig = WorkspaceRig(provider, None, tenant, starts_empty=True)
        else:
            rig = WorkspaceRig(provider, repo_id, tenant)
        made.append(rig)
        return rig

    yield make
    for rig in made:
        rig.clean_up()


class TestWorkspaces(WorkspaceContract):
    @pytest.fixture(params=["local", "worktree", "clone", "tree", "ephemeral"])
    def rig(self, request: pytest.FixtureRequest, rigs: Rigs) -> WorkspaceRig:
        """Each kind in turn."""
        return rigs(request.param)


def test_an_unknown_kind_names_the_known_ones(workbench: Workbench) -> None:
    with pytest.raises(SandboxError, match="named 'box'") as caught:
        workbench.acquire_workspace("box")
    assert (caught.value.code, caught.value.hint) == (
        ErrorCode.INVALID_INPUT,
        f"Known kinds: {', '.join(list_kinds())}.",
    )


@pytest.mark.parametrize("kind", ["worktree", "clone", "tree"])
def test_the_error_of_a_dirty_release_names_what_a_workspace_can(rigs: Rigs, kind: str) -> None:
    rig = rigs(kind)
    workspace = rig.acquire()
    workspace.write("new", b"work")
    with pytest.raises(SandboxError) as caught:
        rig.provider.release(workspace.id)
    assert caught.value.code is ErrorCode.DIRTY_WORKSPACE
    assert "pristine" in caught.value.hint
    assert "Repeat with --discard" not in caught.value.hint


def test_a_kind_without_a_diff_names_those_that_have_one(rigs: Rigs) -> None:
    with pytest.raises(SandboxError, match="has no diff") as caught:
        rigs("ephemeral").acquire().diff()
    assert caught.value.hint == "The kinds worktree, clone and tree have one."


class OtherWorkspaces(LocalWorkspaces):
    """A provider of another package, which names it as an entry point."""

    kind = "other"


def test_another_package_adds_a_kind_and_cannot_replace_ours(workbench: Workbench, tmp_path: Path) -> None:
    name = f"{OtherWorkspaces.__module__}:OtherWorkspaces"
    sys.modules[OtherWorkspaces.__module__] = sys.modules[__name__]
    folder = tmp_path / "other-1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1\n")
    (folder / "entry_points.txt").write_text(f"[space_sandbox.workspaces]\nother = {name}\nlocal = {name}\n")
    sys.path.insert(0, str(tmp_path))
    try:
        request = WorkspaceRequest(hint=str(tmp_path), tenant="guest")
        assert workbench.acquire_workspace("other", request).id.startswith("other-")
        assert workbench.acquire_workspace("local", request).id.startswith("local-")
        for found in workbench.list_workspaces():
            if found.tenant == "guest":
                workbench.release_workspace(found.id)
    finally:
        sys.path.remove(str(tmp_path))


ACQUIRE = """
import sys
from sandbox import Workbench
from sandbox.models import WorkspaceRequest
home, *words = sys.argv[1:]
with Workbench(home, environ={}, allow_file=True) as workbench:
    for kind, hint in zip(words[::2], words[1::2]):
        print(workbench.acquire_workspace(kind, WorkspaceRequest(hint=hint, tenant="processes")).id, flush=True)
"""


def test_four_processes_acquire_one_workspace_of_each_kind(workbench: Workbench, tmp_path: Path) -> None:
    """A scratch directory lives as long as a process that acquired it: its own test is below."""
    repository = workbench.repositories()[0].id
    topic = f"{repository}@topic"
    hints = {"local": str(tmp_path), "worktree": topic, "clone": f"{repository}@processes", "tree": topic}
    words = [word for row in hints.items() for word in row]
    argv = [sys.executable, "-c", ACQUIRE, str(workbench.home), *words]
    started = [subprocess.Popen(argv, stdout=subprocess.PIPE) for _ in range(4)]
    printed = {process.communicate(timeout=120)[0] for process in started}
    assert len(printed) == 1
    ids = printed.pop().decode().split()
    assert [found.partition("-")[0] for found in ids] == list(hints)
    for found in ids:
        workbench.release_workspace(found)


def test_kinds_keep_their_order_and_names() -> None:
    """They are stored and printed: a new one comes last."""
    assert [kind.value for kind in WorkspaceKind] == ["local", "worktree", "clone", "tree", "ephemeral"]


@pytest.mark.parametrize("kind", ["local", "worktree", "clone", "tree", "ephemeral"])
def test_metadata_has_standard_keys_or_a_prefix(rigs: Rigs, kind: str) -> None:
    found = rigs(kind).acquire().metadata
    assert {key for key in found if key.startswith("git.")} <= {"git.remote", "git.branch", "git.commit"}
    assert all("." in key for key in found)


def test_repacking_and_pruning_the_source_harms_no_clone_and_two_share_nothing(
    rigs: Rigs, workbench: Workbench
) -> None:
    rig = rigs("clone")
    one = rig.acquire()
    two = rig.provider.acquire(WorkspaceRequest(hint=f"{rig.hint}@second", tenant=rig.tenant))
    cache = workbench.home / "repositories/clones" / (rig.hint or "")
    (Path(one.metadata["sandbox.repository"]) / "refs/heads/main.lock").touch()  # a lock of one does not hold the other
    for argv in (["repack", "-adq"], ["prune", "--expire=now"], ["gc", "--quiet", "--prune=now"]):
        subprocess.run(["git", "--git-dir", cache, *argv], check=True, capture_output=True)
    two.write("new", b"new")
    assert two.commit("while the other is locked")
    (Path(one.metadata["sandbox.repository"]) / "refs/heads/main.lock").unlink()
    assert {path: one.read(path) for path in BASE_FILES} == BASE_FILES


def test_a_scratch_directory_is_gone_with_its_last_owner(workbench: Workbench) -> None:
    request = WorkspaceRequest(hint="scratch", tenant="owners")
    mine = workbench.acquire_workspace("ephemeral", request)
    with Workbench(workbench.home, environ={}) as second:
        theirs = second.acquire_workspace("ephemeral", request)
        theirs.write("kept", b"")
        only_theirs = second.acquire_workspace("ephemeral", WorkspaceRequest(tenant="owners"))
        assert len(second.list_workspaces("ephemeral")) == 2
    assert mine.exists("kept")
    assert [found.id for found in workbench.list_workspaces("ephemeral")] == [mine.id]
    assert only_theirs.root is not None
    assert not only_theirs.root.exists()
    workbench.release_workspace(mine.id)


class TestClones:
    """What holds for clones in addition."""

    @pytest.fixture
    def rig(self, rigs: Rigs) -> WorkspaceRig:
        """A rig of the kind."""
        return rigs("clone")

    def test_it_shares_no_object_with_the_cache_and_survives_its_loss(
        self, rig: WorkspaceRig, workbench: Workbench
    ) -> None:
        workspace = rig.acquire()
        repository = Path(workspace.metadata["sandbox.repository"])
        assert not list(repository.rglob("*alternates*"))
        files = [path for path in repository.rglob("*") if path.is_file()]
        assert {path.stat().st_nlink for path in files} == {1}
        cache = workbench.home / "repositories/clones" / workbench.repositories()[0].id
        aside = cache.with_name("aside")
        cache.rename(aside)
        try:
            assert workspace.read("readme.txt") == BASE_FILES["readme.txt"]
            subprocess.run(["git", "--git-dir", repository, "fsck", "--strict"], check=True, capture_output=True)
        finally:
            aside.rename(cache)

    def test_no_command_is_forced_or_shares_a_store(
        self, rig: WorkspaceRig, workbench: Workbench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Every argv of create, commit and release, as git gets it."""
        calls: list[tuple[str, ...]] = []
        attempt = Git.attempt

        def record(git: Git, *args: str, **options: Any) -> GitResult:
            calls.append(args)
            return attempt(git, *args, **options)

        monkeypatch.setattr(Git, "attempt", record)
        workspace = rig.acquire()
        workspace.write("new", b"")
        workspace.commit("message")
        rig.provider.release(workspace.id)
        words = [word for args in calls for word in args]
        assert not [w for w in words if w.startswith(("--force", "-f", "+", "--reference", "--shared", "--local"))]
        creating = [args for args in calls if args[0] in {"init", "fetch"}]
        assert [args[:-1] for args in creating if args[0] == "init"] == [
            ("init", "--quiet", "--bare", "--template=", "--initial-branch=none")
        ]
        cache = workbench.home / "repositories/clones" / (rig.hint or "")
        fetched, kept = [args for args in creating if args[0] == "fetch"]
        assert fetched == (
            *FETCH, "--", f"file://{cache}", "refs/remotes/origin/*:refs/remotes/origin/*", "refs/tags/*:refs/tags/*"
        )  # fmt: skip
        assert kept[:-2] == (*FETCH, "--")
        assert re.fullmatch(rf"refs/heads/main:refs/sandbox/{workspace.id}/rescued-[0-9a-f]{{12}}", kept[-1])

    @pytest.mark.parametrize(("branch", "start"), [("fresh", "new"), ("topic", "existing"), (None, "existing")])
    def test_a_branch_is_created_or_the_existing_one_is_used(
        self, rig: WorkspaceRig, branch: str | None, start: str
    ) -> None:
        hint = f"{rig.hint}@{branch}" if branch else rig.hint
        workspace = rig.provider.acquire(WorkspaceRequest(hint=hint, tenant=rig.tenant))
        assert workspace.metadata["git.branch"] == (branch or "main")
        assert workspace.metadata["sandbox.branch"] == start

    @pytest.mark.parametrize("dirt", ["untracked", "readme.txt"])
    def test_a_dirty_one_is_kept_byte_for_byte(self, rig: WorkspaceRig, dirt: str) -> None:
        workspace = rig.acquire()
        workspace.write(dirt, b"work")
        before = digest(workspace)
        with refused(ErrorCode.DIRTY_WORKSPACE):
            rig.provider.release(workspace.id)
        assert digest(workspace) == before

    def test_another_origin_is_refused_and_listed(self, rig: WorkspaceRig) -> None:
        workspace = rig.acquire()
        origin = _top(workspace) / "origin"
        before = origin.read_text()
        origin.write_text("https://forge.invalid/other/one")
        with refused(ErrorCode.ORIGIN_MISMATCH):
            rig.acquire()
        assert ["of another remote" in (r.problem or "") for r in _mine(rig)] == [True]
        assert workspace.exists("readme.txt")
        origin.write_text(before)

    def test_a_clean_one_of_another_origin_can_be_released(self, rig: WorkspaceRig) -> None:
        """As the hint says. What is changed in it is kept byte for byte."""
        workspace = rig.acquire()
        origin = _top(workspace) / "origin"
        origin.write_text("https://forge.invalid/other/one")
        workspace.write("new", b"work")
        before = digest(workspace)
        with refused(ErrorCode.DIRTY_WORKSPACE):
            rig.provider.release(workspace.id)
        assert digest(workspace) == before
        workspace.restore("pristine")
        rig.provider.release(workspace.id)
        assert not _mine(rig)
        assert rig.acquire().read("readme.txt") == BASE_FILES["readme.txt"]

    def test_commits_of_one_of_another_origin_are_kept_until_its_directory_is_deleted(self, rig: WorkspaceRig) -> None:
        """They do not go into the cache clone of a remote that they are not of. The way of the hint works."""
        workspace = rig.acquire()
        workspace.write("new", b"work")
        commit, top = workspace.commit("message"), _top(workspace)
        (top / "origin").write_text("https://forge.invalid/other/one")
        with pytest.raises(SandboxError) as caught:
            rig.provider.release(workspace.id)
        assert caught.value.code is ErrorCode.ORIGIN_MISMATCH
        assert str(top / "repository") in caught.value.hint
        assert Git(top / "repository").run("cat-file", "-t", commit) == b"commit\n"
        assert workspace.read("new") == b"work"
        shutil.rmtree(top)
        rig.provider.release(workspace.id)
        assert not _mine(rig)

    @pytest.mark.parametrize("part", ["repository/HEAD", "repository/refs/heads/main", "origin"])
    def test_a_corrupt_one_is_named_and_does_not_hide_others(self, rig: WorkspaceRig, part: str) -> None:
        workspace = rig.acquire()
        other = rig.provider.acquire(WorkspaceRequest(hint=f"{rig.hint}@second", tenant=rig.tenant))
        moved = _top(workspace) / part
        moved.rename(moved.with_name("moved"))
        with refused(ErrorCode.INTERNAL):
            rig.acquire()
        assert {r.id: "corrupt" in (r.problem or "") for r in _mine(rig)} == {workspace.id: True, other.id: False}
        moved.with_name("moved").rename(moved)

    def test_a_damaged_record_is_listed_and_a_missing_clone_is_made_again(self, rig: WorkspaceRig) -> None:
        workspace = rig.acquire()
        record = _top(workspace).with_suffix(".json")
        document = record.read_bytes()
        record.write_text("{")
        assert [r.id for r in rig.provider.list() if r.problem] == [workspace.id]
        record.write_bytes(document)
        shutil.rmtree(_top(workspace))
        assert ["is gone" in (r.problem or "") for r in _mine(rig)] == [True]
        assert rig.acquire().read("readme.txt") == BASE_FILES["readme.txt"]
        shutil.rmtree(_top(workspace))
        rig.provider.release(workspace.id)
        assert not _mine(rig), "a missing one needs no more than its record removed"

    def test_what_is_in_its_place_is_not_overwritten(self, rig: WorkspaceRig, monkeypatch: pytest.MonkeyPatch) -> None:
        workspace = rig.acquire()
        top = _top(workspace)
        rig.provider.release(workspace.id)
        top.mkdir()
        (top / "work").write_text("work")
        with refused(ErrorCode.CONFLICT):
            rig.acquire()
        assert (top / "work").read_text() == "work"
        shutil.rmtree(top)
        monkeypatch.setattr(PlainLayout, "create", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            rig.acquire()
        assert not [p for p in top.parent.iterdir() if p.is_dir() and workspace.id in p.name]
        assert not _mine(rig)

    def test_gc_removes_what_a_kill_left_and_no_clone(self, rig: WorkspaceRig, workbench: Workbench) -> None:
        kept = _top(rig.acquire())
        with Workbench(workbench.home, environ={}) as killed:
            scratch = killed.acquire_workspace("ephemeral", WorkspaceRequest(tenant=rig.tenant))
        half = [kept.with_name(f".{kept.name}.{end}") for end in ("0123abcd", "removed-0123abcd")]
        for folder in half:
            (folder / "files").mkdir(parents=True)
        found = {leftover.name for leftover in workbench.collect(dry_run=True).leftovers}
        assert {scratch.id, *(folder.name for folder in half)} <= found
        workbench.collect()
        assert scratch.root is not None
        assert [path.exists() for path in (kept, scratch.root, *half)] == [True, False, False, False]

    def test_hooks_see_what_is_created_and_can_refuse_it(self, rig: WorkspaceRig, workbench: Workbench) -> None:
        log = workbench.home / "hooks.log"
        note = 'pwd; echo "$SANDBOX_WORKSPACE_BRANCH $SANDBOX_WORKSPACE_START"; ls "$SANDBOX_WORKSPACE_ROOT"; env'
        hooks = {"pre_create": ["sh", "-c", f"echo pre >> {log}"], "post_create": ["sh", "-c", f"({note}) >> {log}"]}
        environ = {"PATH": "/usr/bin:/bin", "GITHUB_TOKEN": "of-the-controller"}
        request = WorkspaceRequest(hint=f"{rig.hint}@hooked", tenant=rig.tenant)
        with Workbench(workbench.home, environ=environ, settings={"workspaces": hooks}) as hooked:
            hooked.acquire_workspace("clone", request)
            hooked.acquire_workspace("clone", request)
        said = log.read_text()
        assert said.splitlines()[:6] == ["pre", "/", "hooked new", "readme.txt", "src", "src-more.txt"]
        assert said.count("pre\n") == 1
        assert "of-the-controller" not in said
        seen = dict(line.split("=", 1) for line in said.splitlines() if line.startswith("SANDBOX_"))
        assert seen.keys() == set(HOOK_FACTS.values())
        assert load_settings(workbench.home, seen) == load_settings(workbench.home, {}), "it may run `sandbox`"
        log.unlink()
        for name, argv in (("pre_create", ["sh", "-c", "echo why; exit 3"]), ("post_create", ["/no/such/program"])):
            settings = {"workspaces": {name: argv}}
            with (
                Workbench(workbench.home, environ={}, settings=settings) as refusing,
                refused(ErrorCode.POLICY_VIOLATION),
            ):
                refusing.acquire_workspace("clone", rig.request())
        assert [record.hint for record in _mine(rig)] == [f"{rig.hint}@hooked"]

    @pytest.mark.parametrize("hint", [None, "", "@x", "../clones@x", "REPO@-x", "REPO@a..b", "REPO@a b", "REPO@x.lock"])
    def test_a_hint_that_is_no_repository_and_branch_runs_no_git(
        self, rig: WorkspaceRig, hint: str | None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(Git, "attempt", lambda *_, **__: 1 / 0)
        named = hint.replace("REPO", rig.hint or "") if hint else hint
        with refused(ErrorCode.INVALID_INPUT, ErrorCode.NOT_FOUND):
            rig.provider.acquire(WorkspaceRequest(hint=named, tenant=rig.tenant))


def test_the_program_of_the_page_runs(workbench: Workbench, capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "workspaces.md").read_text()
    program = page.split("```python\n")[1].split("```")[0].replace("Workbench(HOME)", "Workbench(HOME, environ={})")
    exec(compile(program, "workspaces.md", "exec"), {"HOME": workbench.home, "REPO": workbench.repositories()[0].id})  # noqa: S102
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "['notes/today.txt']"
    assert (shown[1].split()[1], shown[2]) == ("topic", "b'hello\\n'")


def _top(workspace: Workspace) -> Path:
    """The directory of a clone."""
    assert workspace.root is not None
    return workspace.root.parent


def _mine(rig: WorkspaceRig) -> list[WorkspaceRecord]:
    return [record for record in rig.provider.list() if record.tenant == rig.tenant]
