"""THREATS S09: small files that become large in git or in a parser. Limits are lowered so that each test is quick."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from devtools.delta_bombs import DeltaBomb, make_delta_bomb
from sandbox.checks import report
from sandbox.checks.collected import CollectedResults
from sandbox.errors import ErrorCode
from sandbox.files.names import WalkLimits
from sandbox.files.tree import WorktreeFiles
from sandbox.git import blobs, process, transport
from sandbox.git.diff import compare_trees
from sandbox.git.memory_limits import GitMemory
from sandbox.git.process import Git
from sandbox.git.push import send
from sandbox.git.transport import RemoteAccess
from sandbox.git.trees import object_reader
from sandbox.git.trees.tree_store import TreeStore
from sandbox.models import TaskOptions
from sandbox.remotes import parse_remote
from sandbox.workbench import Workbench
from sandbox.workbench.tasks.lifecycle import compare_task
from sandbox.workspaces import comparison_limits
from sandbox.workspaces.comparison_limits import ComparisonLimits
from tests.attack.arena import Arena, refused

pytestmark = [pytest.mark.must]
MIB = 1024**2
SIZE = 32 * MIB
LIMIT = 50 * MIB  # enough for one object of SIZE, not for two


@pytest.fixture
def bomb(tmp_path: Path) -> DeltaBomb:
    return make_delta_bomb(tmp_path / "bomb.git", SIZE, [b"x0", b"x1"])


PEAK = """
import resource
own = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))  # ru_maxrss survives an exec
print(max(int(own.split()[1]), resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss) // 1024)
"""


def peak_mib(program: str, *words: str) -> int:
    """Peak memory of a Python process of its own, or of its largest child."""
    done = subprocess.run([sys.executable, "-c", program + PEAK, *words], capture_output=True, check=True)
    return int(done.stdout.split()[-1])


PLAIN_READ = """
import subprocess, sys
subprocess.run(["git", "--git-dir", sys.argv[1], "cat-file", "blob", sys.argv[2]], stdout=subprocess.DEVNULL)
"""


@pytest.mark.one_git
def test_s09_deltas_on_a_large_object_are_refused(bomb: DeltaBomb, monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: plain `cat-file` takes twice the object's size, from a pack a thousand times smaller."""
    assert len(bomb.pack) < SIZE / 500
    assert peak_mib(PLAIN_READ, str(bomb.git_dir), bomb.oids[1]) > 2 * SIZE / MIB, "void"
    monkeypatch.setattr(process, "LARGE", GitMemory(LIMIT, LIMIT))
    monkeypatch.setattr(blobs, "LARGE", GitMemory(LIMIT, LIMIT))
    git = Git(bomb.git_dir)
    with refused(ErrorCode.QUOTA_EXCEEDED):
        list(blobs.read_blobs(git, bomb.oids[1:]))
    monkeypatch.setattr(object_reader, "LARGE", GitMemory(LIMIT, LIMIT))
    with refused(ErrorCode.QUOTA_EXCEEDED):
        TreeStore(git, 20).blob(bytes.fromhex(bomb.oids[1]))
    named = compare_trees(git, "4b825dc642cb6eb9a060e54bf8d69288fbee4904", bomb.tree)
    assert b"Files /dev/null and b/f001, too large" in named.text, "compared by name and size alone"
    monkeypatch.undo()
    assert sum(map(len, blobs.read_blobs(git, bomb.oids[1:]))) == 2 * SIZE + 4, "void: refused with enough memory"


BEFORE_READING = """
import sys
from pathlib import Path
from sandbox.files.checkout import check_out
from sandbox.files.tree import WorktreeFiles
from sandbox.git.contents import spool_contents
from sandbox.git.entries import TreeChange, TreeEntry
from sandbox.git.gitpython import GitPython
from sandbox.git.new_commits import build_tree
from sandbox.git.process import Git
from sandbox.git.push import send
from sandbox.git.transport import RemoteAccess
from sandbox.remotes import parse_remote
from sandbox.workspaces.added_trees import list_files
"""
OUR_CHECKOUT = f"""{BEFORE_READING}
entry = TreeEntry(b"f", "100644", sys.argv[2], None)
check_out(Path(sys.argv[1]) / "out", list_files(Git(Path(sys.argv[1])), [entry]), None)
"""
OUR_LOOK = f"""{BEFORE_READING}
git = Git(Path(sys.argv[1]))
with WorktreeFiles(git.git_dir / "tree") as files, spool_contents(git) as spool:
    with files.open_chunks("large") as (info, chunks):
        content = spool.add(chunks, info.st_size, 40)
    build_tree(git, sys.argv[2], [TreeChange(b"large", "100644", content)])
"""


@pytest.mark.one_git
def test_s09_a_large_file_is_held_neither_by_the_controller_nor_by_git(bomb: DeltaBomb) -> None:
    """A checkout, and a look at a new file of a task. Control: a file that is read whole."""
    before = peak_mib(BEFORE_READING)
    large = bomb.git_dir / "tree" / "large"
    large.parent.mkdir()
    large.write_bytes(bytes(SIZE))
    assert peak_mib(f"{BEFORE_READING}content = Path(sys.argv[1]).read_bytes()", str(large)) - before > 31, "void"
    assert peak_mib(OUR_CHECKOUT, str(bomb.git_dir), bomb.oids[0]) - before < 10
    assert (bomb.git_dir / "out" / "f").stat().st_size == SIZE
    commit = subprocess.run(["git", f"--git-dir={bomb.git_dir}", "-c", "user.name=a", "-c", "user.email=a@b.c",
                             "commit-tree", "4b825dc642cb6eb9a060e54bf8d69288fbee4904", "-m", "x"],
                            check=True, capture_output=True)  # fmt: skip
    assert peak_mib(OUR_LOOK, str(bomb.git_dir), commit.stdout.decode().strip()) - before < 10


OPEN_HOME = """
import sys
from pathlib import Path
from sandbox.files.tree import STREAM_CAP
from sandbox.store.records import find_task
from sandbox.workbench import Workbench
from sandbox.workbench.tasks.tree_tasks import open_working_tree
from sandbox.workspaces.tree_files import TreeFiles
workbench = Workbench(Path(sys.argv[1]), allow_file=True)
task = find_task(workbench._services.home, sys.argv[2])
files = TreeFiles(open_working_tree(workbench._services, task))
"""
WHOLE_READ = f"{OPEN_HOME}content = files.read('f000', STREAM_CAP)"
OUR_READS = f"""{OPEN_HOME}
found = workbench.read_file(task.id, "f000", max_bytes=1)
assert workbench.read_committed_file(task.repo_id, "f000", max_bytes=1) == found
print(found.size)
"""


@pytest.mark.one_git
def test_s09_a_large_file_without_a_worktree_is_read_in_pieces(bomb: DeltaBomb, tmp_path: Path) -> None:
    """A file of a task of kind `tree`, and of a commit. Control: the value's own read, which holds it whole."""
    with Workbench(tmp_path / "home", allow_file=True) as workbench:
        repository = workbench.clone(str(bomb.git_dir)).repository
        task = workbench.create_task(repository.id, options=TaskOptions(workspace_kind="tree"))
    words = (str(tmp_path / "home"), task.id)
    before = peak_mib(OPEN_HOME, *words)
    assert peak_mib(WHOLE_READ, *words) - before > 31, "void"
    assert peak_mib(OUR_READS, *words) - before < 10


REPORTS = {
    "names": "<testsuite>" + "".join(f"<a{i:x}/>" for i in range(150_000)) + "</testsuite>",
    "attributes": "<testsuite" + "".join(f' a{i:x}=""' for i in range(150_000)) + "/>",
    "depth": "<testsuite>" + "<a>" * 300_000 + "</a>" * 300_000 + "</testsuite>",
}
NO_PARSER = "import sys, pathlib, xml.parsers.expat, sandbox.checks.report as report\n"
PLAIN_PARSER = f"""{NO_PARSER}
parser = xml.parsers.expat.ParserCreate()
parser.StartElementHandler = lambda *_: None
parser.ParseFile(open(sys.argv[1] + "/a.xml", "rb"))
"""
OUR_PARSER = f"{NO_PARSER}assert report.read_report(pathlib.Path(sys.argv[1])) is None"


@pytest.mark.one_git
def test_s09_a_report_of_names_attributes_or_levels_is_left_out(tmp_path: Path) -> None:
    """Control: expat alone, which builds no tree, takes more than ten times the file."""
    before = peak_mib(NO_PARSER)
    for kind, text in REPORTS.items():
        (tmp_path / kind).mkdir()
        (tmp_path / kind / "a.xml").write_text(text)
        assert peak_mib(PLAIN_PARSER, str(tmp_path / kind)) - before > 20, f"void: {kind}"
        assert peak_mib(OUR_PARSER, str(tmp_path / kind)) - before < 10, kind


PLAIN_FETCH = """
import subprocess, sys
subprocess.run(["git", "init", "-q", "--bare", sys.argv[2]], check=True)
subprocess.run(["git", "--git-dir", sys.argv[2], "fetch", "-q", "file://" + sys.argv[1], "main"], check=True)
"""


@pytest.mark.one_git
def test_s09_a_remote_cannot_make_a_fetch_use_more_memory_than_its_limit(
    bomb: DeltaBomb, make_arena: Callable[..., Arena], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Control: plain `git fetch` takes twice the object's size; and so may we, once the limit allows it."""
    assert peak_mib(PLAIN_FETCH, str(bomb.git_dir), str(tmp_path / "plain")) > 2 * SIZE / MIB, "void"
    monkeypatch.setattr(transport, "FIRST_MEMORY_BYTES", LIMIT - MIB)
    strict = make_arena(settings={"remotes": {"max_fetch_memory_bytes": LIMIT}})
    with refused(ErrorCode.QUOTA_EXCEEDED) as error:
        strict.workbench.clone(str(bomb.git_dir))
    assert "max_fetch_memory_bytes" in error[0].hint
    assert not list(strict.home.rglob("tmp_pack_*"))
    spacious = make_arena()
    assert spacious.workbench.clone(str(bomb.git_dir)).repository.default_branch == "main", "void: repeated with more"


@pytest.mark.one_git
def test_s09_a_file_of_100_mib_is_fetched_as_a_difference_and_a_larger_one_refused(
    make_arena: Callable[..., Arena], tmp_path: Path
) -> None:
    """With the limits as shipped. Control: what most hosts accept is fetched. No worktree, so no layout of it."""
    arena = make_arena()
    for size, fits in ((100 * MIB, True), (110 * MIB, False)):
        bomb = make_delta_bomb(tmp_path / f"{size}.git", size, [b"x"])
        if fits:
            assert arena.workbench.clone(str(bomb.git_dir)).repository.default_branch == "main"
        else:
            with refused(ErrorCode.QUOTA_EXCEEDED):
                arena.workbench.clone(str(bomb.git_dir))


PLAIN_PUSH = """
import subprocess, sys
subprocess.run(["git", "init", "-q", "--bare", sys.argv[2]], check=True)
subprocess.run(["git", "--git-dir", sys.argv[1], "push", "-q", "file://" + sys.argv[2], "main"], check=True)
"""


@pytest.mark.one_git
def test_s09_a_push_uses_no_more_memory_than_its_limit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Control: plain `git push` takes twice the object's size; and so may we, once the limit allows it."""
    bomb = make_delta_bomb(tmp_path / "bomb.git", SIZE, [b"x0", b"x1"], has_base=False)
    assert peak_mib(PLAIN_PUSH, str(bomb.git_dir), str(tmp_path / "plain")) > 2 * SIZE / MIB, "void"
    remote = tmp_path / "remote.git"
    subprocess.run(["git", "init", "-q", "--bare", remote], check=True)
    access = RemoteAccess(parse_remote(str(remote), allow_file=True), None, tmp_path / "known_hosts", {})
    git = Git(bomb.git_dir)
    commit = git.run("rev-parse", "main").decode().strip()
    with monkeypatch.context() as strict:
        strict.setattr(send, "MEMORY_BYTES", LIMIT)
        with refused(ErrorCode.QUOTA_EXCEEDED):
            send.push(git, access, commit, "bomb", None)
    assert list((remote / "refs" / "heads").iterdir()) == []
    send.push(git, access, commit, "bomb", None)
    assert (remote / "refs" / "heads" / "bomb").read_text() == f"{commit}\n", "void: refused with enough memory"


NEW_NAMES = 300


@pytest.mark.parametrize("bound", ["changed files", "their paths", "names", "all paths"])
def test_s09_more_new_files_than_a_look_remembers_are_refused(
    arena: Arena, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    """Control: with the limits as shipped each look lists all of them. The task can still be cleaned and closed."""
    bench, task = arena.workbench, arena.task.id
    (arena.worktree / "new").mkdir()
    for number in range(NEW_NAMES):
        (arena.worktree / "new" / f"{number:09}").write_text(f"{number}\n")
    assert len(bench.status(task).changes) == len(bench.diff(task).files) == NEW_NAMES, "void"
    lower_bound(monkeypatch, bound)
    looks = (bench.status, bench.diff, bench.snapshot, lambda task: bench.commit(task, "all of it"))
    for look in looks:
        with refused(ErrorCode.QUOTA_EXCEEDED) as error:
            look(task)
        assert "clean" in error[0].hint
    with refused(ErrorCode.QUOTA_EXCEEDED):
        bench.close_task(task, delete_worktree=True)
    assert bench.clean_task(task, without=["new"]).changes == ()
    assert not (arena.worktree / "new").exists()


def test_s09_large_comparisons_are_made_one_at_a_time(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: those that count as small are made at the same time. A small one waits for no large one."""
    bench, task = arena.workbench, arena.task
    small = bench.create_task(task.repo_id)
    (arena.worktree / "new").mkdir()
    for number in range(20):
        (arena.worktree / "new" / f"{number}").write_text(f"{number}\n")
    with ThreadPoolExecutor(1) as other, compare_task(bench._services, task):
        assert len(other.submit(bench.status, task.id).result().changes) == 20, "void"
    monkeypatch.setattr(comparison_limits, "LOCAL_WAIT_S", 0.1)
    monkeypatch.setattr(comparison_limits, "SMALL", replace(comparison_limits.SMALL, changed_files=10))
    with ThreadPoolExecutor(1) as other, compare_task(bench._services, task):
        with refused(ErrorCode.TIMEOUT):
            other.submit(bench.status, task.id).result()
        assert other.submit(bench.status, small.id).result().changes == ()
        assert len(bench.status(task.id).changes) == 20  # in the same operation
    assert len(bench.diff(task.id).files) == 20


def test_s09_a_folder_of_names_is_no_report(tmp_path: Path) -> None:
    """Control: a walk without a limit of its own lists them."""
    for number in range(2 * report.FOLDER_NAMES // 1000):
        (tmp_path / f"{number}").mkdir()
        for name in range(500):
            (tmp_path / f"{number}" / f"{name}.txt").touch()
    (tmp_path / "0" / "a.xml").write_text("<testsuite tests='1'><testcase name='a'/></testsuite>")
    with WorktreeFiles(tmp_path) as files:
        assert sum(1 for _ in files.walk(lambda _: False)) > report.FOLDER_NAMES, "void"
    results = CollectedResults()
    assert report.read_report(tmp_path, results=results) is None
    assert not results.complete


def lower_bound(monkeypatch: pytest.MonkeyPatch, bound: str) -> None:
    for size in ("SMALL", "LARGE"):
        limits: ComparisonLimits = getattr(comparison_limits, size)
        match bound:
            case "changed files":
                lower = replace(limits, changed_files=NEW_NAMES - 1)
            case "their paths":
                lower = replace(limits, changed_name_bytes=13 * NEW_NAMES - 1)
            case "names":
                lower = replace(limits, names=WalkLimits(entries=NEW_NAMES // 2))
            case _:
                lower = replace(limits, names=WalkLimits(name_bytes=10 * NEW_NAMES))
        monkeypatch.setattr(comparison_limits, size, lower)
