"""What every workspace and every provider must do, as test methods for pytest.

Subclass `WorkspaceContract` in a test module, and give pytest the fixture `rig`, a `WorkspaceRig` of its own for each
test. What a kind has no `Capability` for is not asked of it.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import Capability, ChangeKind, EntryType, WorkspaceRequest
from sandbox.workspaces.content_limits import READ_BYTES, WRITE_BYTES
from sandbox.workspaces.current_workspace import bind_workspace, current_workspace, in_current_workspace
from sandbox.workspaces.workspace import PRISTINE, Workspace, WorkspaceProvider

BASE_FILES: Mapping[str, bytes] = {
    "readme.txt": b"one\n",
    "src/a.txt": b"a\n",
    "src/lib/util.py": b"x = 1\n",
    "src-more.txt": b"",
}
"""What a new workspace of a rig holds, unless it `starts_empty`."""

EXECUTABLE_FILE = "src/lib/util.py"
LOOK_ALIKES = ("\uff0e\uff0e/x", "src/\u2024\u2024", "a\uff0fb", ".g\u200bit/x")
"""Names that a person or a model may take for other ones: not to be written (THREATS S13)."""

UNSAFE_PATHS = (
    "..",
    "../outside",
    "src/../../outside",
    "src/..",
    "./readme.txt",
    "/etc/passwd",
    "~/.ssh/id",
    "C:/x",
    "a\x00b",
    "a\nb",
    "a//b",
    "src\\..\\x",
    ".git",
    ".GIT/config",
    "src/.git/config",
    "git~1/config",
    ".g\u200cit/config",
    ".git./config",
    "x" * 300,
)
"""Refused by every operation of every kind, before anything is opened."""

_THREADS = 32


@dataclass(frozen=True)
class WorkspaceRig:
    """A provider and a hint of it. `tenant`: of the test. `starts_empty`: the suite writes `BASE_FILES` itself.

    `shares_hints`: two tenants may acquire the same hint; otherwise the second is refused (`policy_violation`).
    """

    provider: WorkspaceProvider
    hint: str | None
    tenant: str = ""
    starts_empty: bool = False
    shares_hints: bool = True

    def request(self, *, writable: bool = True, tenant: str | None = None) -> WorkspaceRequest:
        """The request of this rig."""
        return WorkspaceRequest(hint=self.hint, tenant=self.tenant if tenant is None else tenant, writable=writable)

    def acquire(self, *, writable: bool = True) -> Workspace:
        """The workspace of this rig."""
        return self.provider.acquire(self.request(writable=writable))

    def open(self) -> Workspace:
        """The workspace, with `BASE_FILES` in it."""
        workspace = self.acquire()
        for path, content in BASE_FILES.items() if self.starts_empty else ():
            workspace.write(path, content, executable=path == EXECUTABLE_FILE)
        return workspace

    def clean_up(self) -> None:
        """Release what the test acquired, without its changes."""
        for record in self.provider.list():
            if not record.tenant.startswith(self.tenant):
                continue
            workspace = self.provider.acquire(WorkspaceRequest(hint=record.hint, tenant=record.tenant))
            if Capability.SNAPSHOT in workspace.capabilities:
                workspace.restore(PRISTINE)
            self.provider.release(record.id)


@contextmanager
def refused(*codes: ErrorCode, what: str = "") -> Iterator[None]:
    """The body is refused with one of these codes. `what`: what was tried, for the failure."""
    answer: SandboxError | None = None
    try:
        yield
    except SandboxError as error:
        answer = error
    assert answer is not None, f"{what or 'it'} was not refused"
    assert answer.code in codes, f"{what}: {answer.code}: {answer.brief}"


def each_path_operation(workspace: Workspace) -> dict[str, Callable[[str], object]]:
    """Every operation that takes a path, by name."""
    return {
        "read": workspace.read,
        "write": lambda path: workspace.write(path, b"planted"),
        "remove": lambda path: workspace.remove(path, recursive=True),
        "list": workspace.list,
        "stat": workspace.stat,
        "exists": workspace.exists,
        "walk": lambda path: list(workspace.walk(path)),
    }


def _note_current(seen: list[Workspace]) -> None:
    seen.append(current_workspace())


def digest(workspace: Workspace) -> str:
    """A digest of all paths, types, modes and contents."""
    lines = [
        (e.path, e.type.value, e.mode, workspace.read(e.path) if e.type is EntryType.FILE else b"")
        for e in workspace.walk()
    ]
    return hashlib.sha256(repr(lines).encode()).hexdigest()


def _sha256(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


class WorkspaceContract:
    """The scenarios."""

    def test_reads_what_is_there_and_says_what_is_not(self, rig: WorkspaceRig) -> None:
        workspace = rig.open()
        assert {path: workspace.read(path) for path in BASE_FILES} == BASE_FILES
        assert [(e.path, e.type) for e in workspace.list()] == [
            ("readme.txt", EntryType.FILE),
            ("src", EntryType.DIRECTORY),
            ("src-more.txt", EntryType.FILE),
        ]
        assert [e.path for e in workspace.list("src")] == ["src/a.txt", "src/lib"]
        walked = [e.path for e in workspace.walk()]
        assert walked == sorted([*BASE_FILES, "src", "src/lib"], key=str.encode)
        assert [e.path for e in workspace.walk("src/lib")] == ["src/lib/util.py"]
        stat = workspace.stat("readme.txt")
        assert (stat.path, stat.type, stat.mode, stat.size) == ("readme.txt", EntryType.FILE, 0o100644, 4)
        assert workspace.stat(EXECUTABLE_FILE).mode == 0o100755
        folder = workspace.stat("src")
        assert (folder.type, folder.mode, folder.size) == (EntryType.DIRECTORY, 0o040000, 0)
        assert [workspace.exists(path) for path in ("readme.txt", "src", "missing", "readme.txt/x", "src/no/x")] == [
            True, True, False, False, False
        ]  # fmt: skip
        for act in (workspace.read, workspace.stat, workspace.list, lambda path: list(workspace.walk(path))):
            with refused(ErrorCode.NOT_FOUND):
                act("missing/path")
        with refused(ErrorCode.INVALID_INPUT):
            workspace.read("src")
        with refused(ErrorCode.NOT_FOUND, ErrorCode.INVALID_INPUT):
            workspace.list("readme.txt")

    def test_writes_files_and_nothing_else(self, rig: WorkspaceRig) -> None:
        workspace = rig.open()
        workspace.write("new/deep/file.txt", b"new")
        workspace.write(EXECUTABLE_FILE, b"x = 2\n")
        workspace.write("readme.txt", b"two\n", executable=True)
        assert workspace.read("new/deep/file.txt") == b"new"
        modes = {path: workspace.stat(path).mode for path in ("new/deep/file.txt", EXECUTABLE_FILE, "readme.txt")}
        assert modes == {"new/deep/file.txt": 0o100644, EXECUTABLE_FILE: 0o100755, "readme.txt": 0o100755}
        before = digest(workspace)
        for path in ("src", "src/a.txt/below", "src/a.txt/far/below"):
            with refused(ErrorCode.INVALID_INPUT):
                workspace.write(path, b"no")
        assert digest(workspace) == before

    def test_takes_the_same_arguments_and_sizes_as_every_kind(self, rig: WorkspaceRig) -> None:
        workspace: Any = rig.open()
        before = digest(workspace)
        paths: tuple[Any, ...] = (5, b"readme.txt", Path("readme.txt"))
        for act in each_path_operation(workspace).values():
            for path in paths:
                with refused(ErrorCode.INVALID_INPUT, what=repr(path)):
                    act(path)
        for content in ("text", None, 5, ["text"]):
            with refused(ErrorCode.INVALID_INPUT, what=repr(content)):
                workspace.write("readme.txt", content)
        with refused(ErrorCode.QUOTA_EXCEEDED):
            workspace.write("readme.txt", bytes(WRITE_BYTES + 1))
        assert digest(workspace) == before
        largest = bytes(WRITE_BYTES)
        workspace.write("largest", largest)
        assert workspace.read("largest") == largest
        workspace.write("largest", bytearray(b"small"))
        workspace.write("largest", memoryview(b"smaller"))
        assert workspace.read("largest") == b"smaller"
        if workspace.root is not None:
            (workspace.root / "large").write_bytes(b"x" * (WRITE_BYTES + 1))
            assert len(workspace.read("large")) == WRITE_BYTES + 1
            with (workspace.root / "large").open("r+b") as file:
                file.truncate(READ_BYTES + 1)
            with refused(ErrorCode.QUOTA_EXCEEDED):
                workspace.read("large")
            (workspace.root / "large").unlink()

    def test_removes_only_what_was_named(self, rig: WorkspaceRig) -> None:
        workspace = rig.open()
        for path, code in (("missing", ErrorCode.NOT_FOUND), ("src", ErrorCode.INVALID_INPUT)):
            with refused(code):
                workspace.remove(path)
        for recursive in (False, True):
            with refused(ErrorCode.INVALID_INPUT, ErrorCode.UNSAFE_PATH):
                workspace.remove("", recursive=recursive)
        workspace.remove(EXECUTABLE_FILE)
        assert not workspace.exists("src/lib")  # the last file of a directory takes it along
        workspace.remove("src", recursive=True)
        assert [e.path for e in workspace.walk()] == ["readme.txt", "src-more.txt"]

    def test_every_operation_refuses_every_unsafe_path(self, rig: WorkspaceRig) -> None:
        workspace = rig.open()
        before = digest(workspace)
        for name, act in each_path_operation(workspace).items():
            for path in UNSAFE_PATHS:
                with refused(ErrorCode.UNSAFE_PATH, what=f"{name} {path!r}"):
                    act(path)
        for name in ("write", "remove"):
            for path in LOOK_ALIKES:
                with refused(ErrorCode.UNSAFE_PATH, what=f"{name} {path!r}"):
                    each_path_operation(workspace)[name](path)
        assert digest(workspace) == before

    def test_a_link_is_an_entry_that_is_never_followed(self, rig: WorkspaceRig, tmp_path: Path) -> None:
        workspace = rig.open()
        outside = tmp_path / "outside"
        outside.mkdir()
        (outside / "secret").write_text("secret")
        if workspace.root is None:
            return  # it has no directory that a link could be planted in
        for name, target in (("file-link", outside / "secret"), ("dir-link", outside), ("inner", Path("src"))):
            os.symlink(target, workspace.root / name)  # noqa: PTH211 - as a guest does it
        assert workspace.stat("file-link").type is EntryType.SYMLINK
        assert workspace.stat("dir-link").mode == 0o120000
        assert "dir-link/secret" not in {e.path for e in workspace.walk()}
        for name, act in each_path_operation(workspace).items():
            for path in ("dir-link/secret", "dir-link/new", "inner/a.txt"):
                with refused(ErrorCode.UNSAFE_PATH, what=f"{name} {path}"):
                    act(path)
        for act in (workspace.read, lambda path: workspace.write(path, b"planted")):
            with refused(ErrorCode.UNSAFE_PATH):
                act("file-link")
        assert {p.name: p.read_text() for p in outside.iterdir()} == {"secret": "secret"}
        for name in ("file-link", "dir-link", "inner"):
            (workspace.root / name).unlink()

    def test_a_reader_changes_nothing_and_a_closed_one_does_nothing(self, rig: WorkspaceRig) -> None:
        writer = rig.open()
        reader = rig.acquire(writable=False)
        assert (reader.id, reader.writable) == (writer.id, False)
        assert reader.read("readme.txt") == b"one\n"
        before = digest(reader)
        changes: list[Callable[[], object]] = [
            lambda: reader.write("new", b""),
            lambda: reader.remove("readme.txt"),
            lambda: reader.remove("src", recursive=True),
        ]
        if Capability.SNAPSHOT in reader.capabilities:
            changes.append(lambda: reader.restore(PRISTINE))
        if Capability.COMMIT in reader.capabilities:
            changes.append(lambda: reader.commit("message"))
        for change in changes:
            with refused(ErrorCode.POLICY_VIOLATION):
                change()
        assert digest(writer) == before
        reader.close()
        reader.close()
        assert (reader.closed, writer.closed) == (True, False)
        for act in each_path_operation(reader).values():
            with refused(ErrorCode.CONFLICT):
                act("readme.txt")
        assert writer.read("readme.txt") == b"one\n"

    def test_states_are_kept_compared_and_restored(self, rig: WorkspaceRig) -> None:
        workspace = rig.open()
        acts: dict[Capability, Callable[[], object]] = {
            Capability.DIFF: workspace.diff,
            Capability.SNAPSHOT: workspace.snapshot,
            Capability.COMMIT: lambda: workspace.commit("message"),
        }
        for act in (act for capability, act in acts.items() if capability not in workspace.capabilities):
            with refused(ErrorCode.INVALID_INPUT):
                act()
        if {Capability.DIFF, Capability.SNAPSHOT} <= workspace.capabilities:
            self._keep_and_restore(workspace)

    def _keep_and_restore(self, workspace: Workspace) -> None:
        assert (workspace.snapshot(), list(workspace.diff())) == (PRISTINE, [])
        pristine = digest(workspace)
        workspace.write("new.txt", b"new")
        workspace.write("readme.txt", b"changed\n")
        workspace.remove("src/a.txt")
        assert [(c.path, c.kind, c.sha256) for c in workspace.diff()] == [
            ("new.txt", ChangeKind.ADDED, _sha256(b"new")),
            ("readme.txt", ChangeKind.MODIFIED, _sha256(b"changed\n")),
            ("src/a.txt", ChangeKind.DELETED, None),
        ]
        changed, first = digest(workspace), workspace.snapshot()
        assert len(first) in {40, 64}
        workspace.restore(PRISTINE)
        assert (digest(workspace), list(workspace.diff())) == (pristine, [])
        workspace.remove("src/a.txt")  # the same content in another order has the same id
        workspace.write("readme.txt", b"changed\n")
        workspace.write("new.txt", b"new")
        assert workspace.snapshot() == first
        diff = list(workspace.diff())
        workspace.restore(PRISTINE)
        workspace.restore(first)
        assert (digest(workspace), list(workspace.diff())) == (changed, diff)
        with refused(ErrorCode.NOT_FOUND):
            workspace.restore("0" * 40)
        assert digest(workspace) == changed

    def test_a_commit_becomes_the_base(self, rig: WorkspaceRig) -> None:
        workspace = rig.open()
        if Capability.COMMIT not in workspace.capabilities:
            return
        with refused(ErrorCode.NOTHING_TO_COMMIT):
            workspace.commit("empty")
        before = workspace.metadata["git.commit"]
        workspace.write("src/new.txt", b"new")
        commit = workspace.commit("add a file")
        assert commit == workspace.metadata["git.commit"] != before
        assert (list(workspace.diff()), workspace.snapshot()) == ([], PRISTINE)
        assert workspace.metadata["git.branch"]
        assert "@" not in workspace.metadata["git.remote"].partition("://")[2].partition("/")[0]
        workspace.write("src/new.txt", b"newer")
        workspace.restore(PRISTINE)
        assert workspace.read("src/new.txt") == b"new"

    def test_one_hint_is_one_workspace_and_tenants_share_none(self, rig: WorkspaceRig) -> None:
        workspace = rig.open()
        workspace.write("mine", b"mine")
        again = rig.acquire()
        assert (again.id, again.root, again.read("mine")) == (workspace.id, workspace.root, b"mine")
        assert [(r.id, r.kind, r.problem) for r in rig.provider.list() if r.tenant == rig.tenant] == [
            (workspace.id, rig.provider.kind, None)
        ]
        theirs = rig.request(tenant=f"{rig.tenant}-other")
        if not rig.shares_hints:
            with refused(ErrorCode.POLICY_VIOLATION):
                rig.provider.acquire(theirs)
            return
        other = rig.provider.acquire(theirs)
        assert other.id != workspace.id
        assert other.root is None or other.root != workspace.root
        assert not other.exists("mine")
        other.write("theirs", b"")
        assert not workspace.exists("theirs")

    def test_release_is_idempotent_and_knows_its_ids(self, rig: WorkspaceRig) -> None:
        workspace = rig.acquire()
        rig.provider.release(workspace.id)
        rig.provider.release(workspace.id)
        assert workspace.id not in {record.id for record in rig.provider.list()}
        assert rig.acquire().id == workspace.id
        kind = rig.provider.kind
        for unknown in (f"{kind}-{'0' * 24}", f"{kind}-../../x", "", "\x00"):
            with refused(ErrorCode.NOT_FOUND):
                rig.provider.release(unknown)

    def test_a_released_workspace_is_used_no_more(self, rig: WorkspaceRig) -> None:
        workspace = rig.acquire()
        acts: dict[str, Callable[[], object]] = {
            name: partial(act, "readme.txt") for name, act in each_path_operation(workspace).items()
        }
        if Capability.COMMIT in workspace.capabilities:
            acts |= {"diff": workspace.diff, "snapshot": workspace.snapshot, "commit": lambda: workspace.commit("more")}
        rig.provider.release(workspace.id)
        for again in (False, True):
            if again and rig.acquire().id != workspace.id:
                break
            for name, act in acts.items():
                with refused(ErrorCode.CONFLICT, ErrorCode.NOT_FOUND, what=name):
                    act()
        workspace.close()

    def test_many_threads_acquire_one_workspace(self, rig: WorkspaceRig) -> None:
        started = threading.Barrier(_THREADS)

        def acquire(_: int) -> tuple[str, Path | None]:
            started.wait(60)
            found = rig.acquire()
            return found.id, found.root

        with ThreadPoolExecutor(_THREADS) as pool:
            assert len(set(pool.map(acquire, range(_THREADS)))) == 1
        assert len([r for r in rig.provider.list() if r.tenant == rig.tenant]) == 1

    def test_the_current_workspace_is_that_of_the_context(self, rig: WorkspaceRig) -> None:
        workspace, nested = rig.acquire(), rig.acquire(writable=False)

        async def look(bound: Workspace) -> bool:
            with bind_workspace(bound):
                await asyncio.sleep(0)
                return current_workspace() is bound and await asyncio.to_thread(current_workspace) is bound

        async def look_at_once() -> list[bool]:
            return await asyncio.gather(*(look(bound) for bound in (workspace, nested) * 3))

        assert all(asyncio.run(look_at_once()))
        default = current_workspace()
        assert (default.kind, default.root) == ("local", Path.cwd())
        with bind_workspace(workspace):
            with bind_workspace(nested):
                assert current_workspace() is nested
            assert current_workspace() is workspace
            seen: list[Workspace] = []
            thread = threading.Thread(target=in_current_workspace(_note_current), args=(seen,))
            thread.start()
            thread.join(60)
            assert seen == [workspace]
        assert current_workspace().root == default.root
