"""The suite that users run with `sandbox doctor --attack`, entry by entry, on this host; docs/attack.md."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from devtools import newergit
from devtools.requirement import unavailable
from sandbox.attack import runner, select
from sandbox.attack.harness.egress_peers import careless
from sandbox.attack.harness.entry import AttackEntry
from sandbox.attack.harness.scratch import ScratchDirectory
from sandbox.attack.harness.site import AttackRun
from sandbox.attack.harness.start_program import build_program
from sandbox.attack.harness.verdict_samples import make_run, read_carelessly
from sandbox.attack.selection import needs_engine
from sandbox.attack.suites import (
    forged_receipts,
    hostile_archives,
    hostile_artifacts,
    local_server,
    misleading_reports,
    misleading_text,
    package_fetches,
)
from sandbox.checks import executors
from sandbox.checks.collected import CollectedResults
from sandbox.checks.comparison import CheckSide, compare_check
from sandbox.config import Settings
from sandbox.dependencies import python_steps
from sandbox.egress.destinations import AllowList
from sandbox.egress.proxy import Outside
from sandbox.engine import docker_containers, supervised
from sandbox.engine.connection import DockerEngine
from sandbox.engine.create_options import create_options
from sandbox.engine.guest_group import GuestGroup
from sandbox.engine.socket_memory import SocketWatch
from sandbox.models import (
    Artifact,
    ArtifactList,
    AttackOutcome,
    AttackResult,
    CheckComparison,
    CommitResult,
    Diff,
    FileContent,
    PatchResult,
    PushResult,
    Report,
    Status,
    TestOutcome,
    TestResult,
)
from sandbox.store.artifact_store import store_content
from sandbox.store.home import Home
from sandbox.workbench import Workbench
from sandbox.workbench.checks import compiler_caching, layers, memory_admission, run

pytestmark = pytest.mark.must
DEADLINE_S = 280.0


def tried(site: AttackRun, entry: AttackEntry) -> AttackResult:
    (result,) = runner.run_entries(site, [entry], None, DEADLINE_S)
    return result


def require_held(site: AttackRun, entry: AttackEntry) -> None:
    result = tried(site, entry)
    if result.outcome is AttackOutcome.SKIPPED:
        pytest.skip(result.seen)
    assert result.outcome is AttackOutcome.HELD, f"control: {result.control}; {result.seen}"
    assert result.control, "nobody knows what would have happened"


@pytest.mark.parametrize("entry", [x for x in select() if x.scene != "guests"], ids=lambda entry: entry.id)
def test_shipped_entry_holds(site: AttackRun, entry: AttackEntry, request: pytest.FixtureRequest) -> None:
    """Those of guests are in `test_shipped_guests.py`."""
    if needs_engine([entry]):
        request.getfixturevalue("engine")
    require_held(site, entry)


def test_shipped_entry_on_a_newer_git_holds(tmp_path: Path) -> None:
    """Hooks in the configuration exist since git 2.54: the installed one may be older."""
    try:
        newer = newergit.find()
    except newergit.NotOffered as absent:
        pytest.skip(str(absent))
    except FileNotFoundError as missing:
        unavailable(str(missing))
    settings = Settings.model_validate({"git": {"executable": str(newer)}})
    with AttackRun(settings, os.environ, scratch=ScratchDirectory(tmp_path)) as site:
        assert [tried(site, entry).outcome for entry in select(["B04"])] == [AttackOutcome.HELD]


# --- walls taken down: the suite has to say so


def careless_status(self: Workbench, task_id: str) -> Status:
    subprocess.run(["git", "-c", "safe.directory=*", "status"], cwd=self.task(task_id).worktree_path, check=False)
    return _STATUS(self, task_id)


def careless_read(self: Workbench, task_id: str, path: str, *_: object, **__: object) -> FileContent:
    root = self.task(task_id).worktree_path
    assert root is not None
    try:
        content = Path(os.path.join(root, path)).read_bytes()  # noqa: PTH118 - the careless way
    except (OSError, ValueError):
        content = b""
    text, digest = content.decode(errors="replace"), hashlib.sha256(content).hexdigest()
    lines = len(text.splitlines())
    return FileContent.model_validate({
        "path": path, "sha256": f"sha256:{digest}", "size": len(content), "content": text, "encoding": "utf-8",
        "start_line": 1, "end_line": lines, "total_lines": lines, "truncated": False,
    })  # fmt: skip


def careless_patch(self: Workbench, task_id: str, patch: bytes, _hashes: object) -> PatchResult:
    root = self.task(task_id).worktree_path
    assert root is not None
    (root / ".git").unlink(missing_ok=True)
    subprocess.run(["git", "apply", "-"], cwd=root, input=patch, check=False)
    return PatchResult(files=())


def careless_diff(self: Workbench, task_id: str, against: str = "base") -> Diff:
    task = self.task(task_id)
    assert task.worktree_path is not None
    (clone,) = task.worktree_path.parents[2].glob("clones/*")
    files = [path for path in task.worktree_path.rglob("*") if path.is_file() and path.name != ".git"]
    subprocess.run(["git", f"--git-dir={clone}", "hash-object", "-w", "--no-filters", *files], check=True)
    return _DIFF(self, task_id, against).model_copy(update={"text": "Binary files differ"})


def careless_commit(self: Workbench, task_id: str, message: str, allow: Sequence[str] = ()) -> CommitResult:
    root = self.task(task_id).worktree_path
    assert root is not None
    (root / "f.txt").write_bytes((root / "f.txt").read_bytes().replace(b"\r\n", b"\n"))
    return _COMMIT(self, task_id, message, allow)


def careless_write(self: Workbench, task_id: str, path: str, content: bytes, _hash: object) -> PatchResult:
    root = self.task(task_id).worktree_path
    assert root is not None
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_bytes(content)
    return PatchResult(files=())


def careless_push(self: Workbench, task_id: str) -> PushResult:
    """Send whatever the commit's message says."""
    task = self.task(task_id)
    return PushResult(branch=task.branch, commit=task.head_commit, forced=False)


_STATUS, _DIFF, _COMMIT = Workbench.status, Workbench.diff, Workbench.commit
CARELESS: dict[str, tuple[Callable[..., object], Sequence[str]]] = {
    "status": (careless_status, ["A01", "B05"]),
    "read_file": (careless_read, ["H01", "H02", "H03"]),
    "apply_patch": (careless_patch, ["J07", "J08", "J15", "J36"]),
    "diff": (careless_diff, ["I01", "S07"]),
    "commit": (careless_commit, ["I03"]),
    "write_file": (careless_write, ["S08", "S13"]),
    "push": (careless_push, ["S11"]),
}


@pytest.mark.parametrize("method", CARELESS)
def test_shipped_suite_sees_a_careless_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    """One use-case does what a careless product would do: every entry that is about it has to get through."""
    careless, names = CARELESS[method]
    monkeypatch.setattr(Workbench, method, careless)
    with AttackRun(Settings(), os.environ, scratch=ScratchDirectory(tmp_path)) as site:
        results = [tried(site, entry) for entry in select(names)]
    assert {r.id: r.outcome for r in results} == dict.fromkeys(names, AttackOutcome.GOT_THROUGH), results


def test_shipped_suite_sees_a_server_that_sends_what_nobody_sees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(misleading_text, "BEFORE_SERVER", "import sandbox.text; sandbox.text.neutralise = str; ")
    with AttackRun(Settings(), os.environ, scratch=ScratchDirectory(tmp_path)) as site:
        (entry,) = select(["S12"])
        assert tried(site, entry).outcome is AttackOutcome.GOT_THROUGH


def test_shipped_suite_sees_a_careless_proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The proxy of a fetch as one writes it in twenty lines: each entry about it has to get through."""
    names = ["S61", "S62", "S63", "S64", "S65"]

    @contextmanager
    def careless_proxy(path: Path, _allowed: AllowList, outside: Outside) -> Iterator[SimpleNamespace]:
        with careless(path, outside.resolve.__self__):  # type: ignore[attr-defined]  # a method of the network
            yield SimpleNamespace(path=path, accesses=())

    monkeypatch.setattr(package_fetches, "EgressProxy", careless_proxy)
    with AttackRun(Settings(), os.environ, scratch=ScratchDirectory(tmp_path)) as site:
        results = [tried(site, entry) for entry in select(names)]
    assert {r.id: r.outcome for r in results} == dict.fromkeys(names, AttackOutcome.GOT_THROUGH), results


def test_shipped_suite_sees_a_fetch_that_compares_no_hashes(
    engine: DockerEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever came under the right name and version is installed: the entry about it has to get through."""
    monkeypatch.setattr(python_steps, "find_mismatches", lambda *_: ())
    with AttackRun(Settings(), os.environ, scratch=ScratchDirectory(tmp_path)) as site:
        (entry,) = select(["S87"])
        assert tried(site, entry).outcome is AttackOutcome.GOT_THROUGH


def careless_verify(envelope: bytes, _trusted: object, _expected: object) -> SimpleNamespace:
    """Believe what it says."""
    return SimpleNamespace(passed=True, artifacts=("any",), statement=read_carelessly(envelope))


def careless_comparison(check_id: str, before: CheckSide, after: CheckSide) -> CheckComparison:
    """By the names of failing tests, the last of each name."""
    old, new = (
        {name for name, outcome in last_outcomes(side).items() if outcome is TestOutcome.FAILED}
        for side in (before, after)
    )
    found = compare_check(check_id, before, after)
    return found.model_copy(update={"reasons": ("a test fails newly",) if new - old else ()})


def last_outcomes(side: CheckSide) -> dict[str, TestOutcome]:
    return {result.test: result.outcome for result in side.results or ()}


def careless_report(folder: Path, results: CollectedResults) -> Report:
    """Take all of it, and all the time that it takes."""
    if (blanks := folder / "tests.tap").exists():
        for line in blanks.read_text().splitlines():
            misleading_reports.CARELESS.match(line)
        return Report(tests=2, failures=1, errors=0, skipped=0, failed=())
    values = json.loads((folder / "many.json").read_text())
    results.results += [TestResult(test="x", outcome=TestOutcome.FAILED)] * len(values)
    return Report(tests=1, failures=1, errors=0, skipped=0, failed=())


def careless_collection(
    home: Home, _owner: str, run_id: str, _check: object, _files: object, _admit: object
) -> ArtifactList:
    """Copy what the names lead to."""
    found = []
    for path in sorted((home.root / "repositories" / "worktrees").glob("*/*/dist/*")):
        if path.is_file():
            sha256, size = store_content(home, [path.read_bytes()])
            found.append(Artifact(path=f"dist/{path.name}", sha256=sha256, size=size))
    return ArtifactList(run_id=run_id, artifacts=tuple(found))


def careless_fetch(_self: Workbench, _url: str, _ref: str = "HEAD", question: object = None) -> SimpleNamespace:
    """The last line is the newest."""
    return SimpleNamespace(receipts=[SimpleNamespace(passed=True)], refused=(), question=question)


CARELESS_READERS: dict[str, tuple[Any, Callable[..., object], Sequence[str]]] = {
    "verify_receipt": (forged_receipts, careless_verify, ["S110", "S111", "S133"]),
    "read_entry": (forged_receipts, lambda *_: make_run(), ["S113"]),
    "fetch_receipts": (Workbench, careless_fetch, ["S112"]),
    "compare_check": (misleading_reports, careless_comparison, ["S105", "S106"]),
    "read_report": (misleading_reports, careless_report, ["S107", "S188"]),
    "describe_comparison": (
        misleading_reports,
        lambda tree: "\n".join(f"- {change.test}" for check in tree.checks for change in check.changes),
        ["S108"],
    ),
    "require_no_sparse_files": (hostile_archives, lambda *_: None, ["S166"]),
    "require_uncompressed": (hostile_archives, lambda *_: None, ["S187"]),
    "hash_zip": (hostile_archives, lambda _: "h1:any", ["S167"]),
    "collect_artifacts": (hostile_artifacts, careless_collection, ["S114"]),
}


@pytest.mark.parametrize("reader", CARELESS_READERS)
def test_shipped_suite_sees_careless_readers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader: str) -> None:
    """A reader of what a guest or a stranger wrote believes it: each entry about it has to get through."""
    place, careless_one, names = CARELESS_READERS[reader]
    monkeypatch.setattr(place, reader, careless_one)
    with AttackRun(Settings(), os.environ, scratch=ScratchDirectory(tmp_path)) as site:
        results = [tried(site, entry) for entry in select(names)]
    assert {r.id: r.outcome for r in results} == dict.fromkeys(names, AttackOutcome.GOT_THROUGH), results


def test_shipped_suite_sees_the_operators_own_rules(tmp_path: Path) -> None:
    """Policies of the user's home are what is attacked: one that allows too much is no wall."""
    policies = tmp_path / "policies"
    policies.mkdir()
    (policies / "paths.toml").write_text('[[repository]]\nmatch = ["*"]\nallow = [".gitattributes"]\n')
    with AttackRun(Settings(), os.environ, policies, ScratchDirectory(tmp_path)) as site:
        (entry,) = select(["J31"])
        assert tried(site, entry).outcome is AttackOutcome.GOT_THROUGH


SOFT = {
    "CapDrop": [], "SecurityOpt": ["seccomp=unconfined"], "ReadonlyRootfs": False, "PidsLimit": 300,
    "Memory": 1 << 30, "MemorySwap": 1 << 30, "Ulimits": [], "Tmpfs": {},
}  # fmt: skip
SOFT_ENTRIES = ["A08", "K03", "K04", "K05", "K06", "K08", "K16", "K22", "K25", "L01", "L02", "L03", "L04", "L16"]
SOFT_ENTRIES += ["S203"]


def test_s155_without_its_wall_the_shipped_attack_gets_through(
    engine: DockerEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No group has a limit, so idle containers make no room."""
    if os.geteuid() != 0:
        pytest.skip("only root makes control groups")
    for module in (run, memory_admission):
        monkeypatch.setattr(module, "find_guest_group", lambda _services: GuestGroup())
    with AttackRun(Settings(), os.environ, scratch=ScratchDirectory(tmp_path)) as site:
        (entry,) = select(["S155"])
        assert tried(site, entry).outcome is AttackOutcome.GOT_THROUGH


def test_s202_without_its_wall_the_shipped_attack_gets_through(
    engine: DockerEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SocketWatch, "check", lambda _: None)
    with AttackRun(Settings(), os.environ, scratch=ScratchDirectory(tmp_path)) as site:
        assert [tried(site, entry).outcome for entry in select(["S202"])] == [AttackOutcome.GOT_THROUGH]


def test_s204_without_its_wall_the_shipped_attack_gets_through(
    engine: DockerEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root limits pseudo terminals")
    monkeypatch.setattr(supervised, "limit_ptys", lambda _: None)
    with AttackRun(Settings(), os.environ, scratch=ScratchDirectory(tmp_path)) as site:
        assert [tried(site, entry).outcome for entry in select(["S204"])] == [AttackOutcome.GOT_THROUGH]


def test_shipped_suite_sees_a_soft_guest(engine: DockerEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guests without the walls, as a wrong policy or a wrong engine would make them."""
    hardened = create_options

    def soft(*words: Any) -> dict[str, Any]:
        options = hardened(*words)
        mounts = [m for m in options["HostConfig"]["Mounts"] if not m["Target"].endswith("/.git")]
        return {**options, "User": "0:0", "HostConfig": {**options["HostConfig"], **SOFT, "Mounts": mounts}}

    monkeypatch.setattr(executors, "create_options", soft)
    monkeypatch.setattr(docker_containers, "require_same_options", lambda *_: None)
    monkeypatch.setattr(supervised, "require_posture", lambda *_: None)
    monkeypatch.setattr(supervised, "require_no_host_root", lambda *_: None)
    with AttackRun(Settings(), os.environ, scratch=ScratchDirectory(tmp_path)) as site:
        results = [tried(site, entry) for entry in select(SOFT_ENTRIES)]
    assert {r.id: r.outcome for r in results} == dict.fromkeys(SOFT_ENTRIES, AttackOutcome.GOT_THROUGH), results


CARELESS_SERVER = """
import sandbox.daemon.guards as guards
async def accept(self, scope, receive, send):
    await self._app({**scope, guards.RIGHTS: 'token'}, receive, send)
guards.Network.__call__ = accept
"""


def test_s116_without_its_wall_the_shipped_attack_gets_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = build_program().replace("sys.exit(", f"exec({CARELESS_SERVER!r}); sys.exit(")
    monkeypatch.setattr(local_server, "build_program", lambda: program)
    with AttackRun(Settings(), os.environ, scratch=ScratchDirectory(tmp_path)) as site:
        (entry,) = select(["S116"])
        result = tried(site, entry)
    assert result.outcome is AttackOutcome.GOT_THROUGH, result


def test_s147_without_its_wall_the_shipped_attack_gets_through(
    engine: DockerEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiler_caching, "is_default_head", lambda *_: True)
    with AttackRun(Settings(), os.environ, scratch=ScratchDirectory(tmp_path)) as site:
        assert [tried(site, entry).outcome for entry in select(["S147"])] == [AttackOutcome.GOT_THROUGH]


def test_s148_without_its_wall_the_shipped_attack_gets_through(
    engine: DockerEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = layers._digest
    monkeypatch.setattr(layers, "_digest", lambda parts: real([p for p in parts if not _is_repo_id(p)]))
    with AttackRun(Settings(), os.environ, scratch=ScratchDirectory(tmp_path)) as site:
        assert [tried(site, entry).outcome for entry in select(["S148"])] == [AttackOutcome.GOT_THROUGH]


def _is_repo_id(part: object) -> bool:
    return isinstance(part, str) and part.startswith("local-")
