"""What a working directory holds beside its commit: compared with `git status`, in bounded time, without git."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from devtools.host_speed import slowness
from sandbox.git.cache_clones import resolve_commit
from sandbox.git.index import parse_index
from sandbox.git.process import Git
from sandbox.models import ChangeKind, UncommittedChanges
from sandbox.workbench import Workbench
from sandbox.workbench.checks.uncommitted import find_uncommitted_changes
from sandbox.workbench.repositories.clone import update_cache
from sandbox.workbench.repositories.commit_facts import list_commit, load_facts
from sandbox.workspaces.base_facts import gather_facts
from sandbox.workspaces.working_directory import MAX_NAMED, compare_working_directory
from tests.unit.conftest import Upstream, initialised

Cached = Callable[[Upstream], Git]
KINDS = {"M": ChangeKind.MODIFIED, "D": ChangeKind.DELETED, "T": ChangeKind.TYPE_CHANGED, "?": ChangeKind.ADDED}


@pytest.fixture
def project(upstream: Upstream) -> Upstream:
    upstream.write("a.txt", b"one\n")
    upstream.write("run.sh", b"#!/bin/sh\n", executable=True)
    upstream.write("d/b.txt", b"two\n")
    upstream.write("d/deep/c.bin", bytes(range(256)))
    upstream.write("tracked.log", b"kept although ignored\n")
    upstream.write(".gitignore", b"*.log\n/build/\n")
    (upstream.root / "link").symlink_to("a.txt")
    upstream.commit()
    return upstream


def compare(source: Upstream, git: Git, **options: float) -> UncommittedChanges:
    listing = list_commit(git, resolve_commit(git, "HEAD", "main"))
    facts = gather_facts(git, listing.tree, listing.entries, {})
    return compare_working_directory(source.root, listing.entries, facts.ignore, **options)


def by_git(source: Upstream) -> list[tuple[str, ChangeKind]]:
    out = source.git("status", "--porcelain", "--no-renames", "-z").decode()
    return sorted((line[3:], KINDS[line[:2].strip()[0]]) for line in out.split("\0") if line)


def replaced_by_link(source: Upstream) -> None:
    (source.root / "d" / "b.txt").unlink()
    (source.root / "d" / "b.txt").symlink_to("../a.txt")


def folder_replaced_by_link(source: Upstream) -> None:
    outside = source.root.parent / "outside"
    (source.root / "d").rename(outside)
    (source.root / "d").symlink_to(outside)


def nested_repository(source: Upstream) -> None:
    source.write("vendor/lib/file", b"x")
    source.git("init", "-q", "vendor/lib")


def special_files(source: Upstream) -> None:
    os.mkfifo(source.root / "pipe")
    source.write("new", b"")


def modes_do_not_count(source: Upstream) -> None:
    source.git("config", "core.fileMode", "false")
    (source.root / "a.txt").chmod(0o755)


def another_link(source: Upstream) -> None:
    (source.root / "link").unlink()
    (source.root / "link").symlink_to("d")


def line_ends(source: Upstream) -> None:
    source.git("config", "core.autocrlf", "true")
    (source.root / "a.txt").unlink()
    source.git("checkout", "--", "a.txt")
    assert (source.root / "a.txt").read_bytes() == b"one\r\n"


def filtered(source: Upstream) -> None:
    source.git("config", "filter.up.smudge", "tr a-z A-Z")
    source.git("config", "filter.up.clean", "tr A-Z a-z")
    source.write(".git/info/attributes", b"a.txt filter=up\n")
    (source.root / "a.txt").unlink()
    source.git("checkout", "--", "a.txt")
    assert (source.root / "a.txt").read_bytes() == b"ONE\n"
    os.utime(source.git_dir / "index")  # what it was checked out with is past


def sparse(source: Upstream) -> None:
    source.git("update-index", "-q", "--refresh")  # what was copied has other times, and git would keep its files
    source.git("sparse-checkout", "set", "--no-cone", "/a.txt")
    assert not (source.root / "d").exists()


CASES: dict[str, Callable[[Upstream], object]] = {
    "nothing": lambda _: None,
    "modified": lambda s: s.write("a.txt", b"ONE\n"),
    "modified, other length": lambda s: s.write("a.txt", b"ONE and more\n"),
    "deleted": lambda s: (s.root / "d" / "b.txt").unlink(),
    "untracked": lambda s: s.write("new file", b"x"),
    "a directory of untracked files": lambda s: (s.write("new/x", b""), s.write("new/y/z", b"")),
    "untracked beside tracked": lambda s: s.write("d/new", b""),
    "ignored": lambda s: (s.write("x.log", b""), s.write("build/out", b""), s.write("new/only.log", b"")),
    "an empty directory": lambda s: (s.root / "empty").mkdir(),
    "a tracked file that is ignored": lambda s: s.write("tracked.log", b"changed\n"),
    "excluded here": lambda s: (s.write(".git/info/exclude", b"/mine\n"), s.write("mine", b""), s.write("d/mine", b"")),
    "folders that ignore themselves": lambda s: [
        (s.write(f"{folder}/.gitignore", b"# by a tool\n*\n"), s.write(f"{folder}/lib/x", b""))
        for folder in (".venv", "d/.cache", "new/deep")
    ],
    "folders that ignore some": lambda s: (
        s.write("d/.gitignore", b"*.o\n/x/\n!z.log\n"),
        [s.write(f"d/{name}", b"") for name in ("a.o", "x/y", "deeper/x/y", "deeper/b.o", "z.log")],
    ),
    "executable": lambda s: (s.root / "a.txt").chmod(0o755),
    "modes do not count": modes_do_not_count,
    "another link": another_link,
    "a link for a file": replaced_by_link,
    "a link for a directory": folder_replaced_by_link,
    "a repository of its own": nested_repository,
    "the .git of a submodule whose files are tracked": lambda s: s.write("d/.git", b"gitdir: ../.git/modules/d\n"),
    "a repository around tracked files": lambda s: (s.git("init", "-q", "d"), s.write("d/new", b"")),
    "a pipe": special_files,
    "touched": lambda s: os.utime(s.root / "a.txt", (1, 1)),
    "index of version 4": lambda s: (s.git("update-index", "--index-version", "4"), s.write("a.txt", b"ONE\n")),
    "sparse": sparse,
    "line ends": line_ends,
    "a filter": filtered,
}


@pytest.mark.parametrize("change", CASES.values(), ids=CASES)
def test_it_names_what_git_status_names(
    project: Upstream, cached: Cached, change: Callable[[Upstream], object]
) -> None:
    git = cached(project)
    os.utime(project.git_dir / "index")  # what was checked out before is not racily clean
    change(project)

    found = compare(project, git)

    assert sorted((c.path, c.kind) for c in found.changes) == by_git(project)
    assert (found.count, found.complete) == (len(found.changes), True)


def test_a_new_commit_that_nobody_staged_is_no_change(project: Upstream, cached: Cached) -> None:
    """The index is behind, so every file is read."""
    git = cached(project)
    (project.git_dir / "index").unlink()
    assert compare(project, git) == UncommittedChanges(count=0, changes=(), complete=True)


def test_all_are_counted_and_the_first_are_named(project: Upstream, cached: Cached) -> None:
    git = cached(project)
    for number in range(MAX_NAMED + 5):
        project.write(f"new-{number:02}", b"")
    project.write("a.txt", b"ONE\n")

    found = compare(project, git)

    assert found.count == MAX_NAMED + 6
    assert len(found.changes) == MAX_NAMED
    assert found.changes[0].path == "a.txt"  # changes of tracked files first


def test_past_its_time_it_says_that_there_may_be_more(project: Upstream, cached: Cached) -> None:
    git = cached(project)
    project.write("a.txt", b"ONE\n")

    found = compare(project, git, budget_s=0)

    assert not found.complete
    assert all(c.kind is not ChangeKind.DELETED for c in found.changes)


def test_ignore_rules_that_cost_too_much_hide_no_change_of_a_tracked_file(project: Upstream, cached: Cached) -> None:
    project.write(".gitignore", b"".join(b"*a*%d*b\n" % n for n in range(100_000)))
    project.commit()
    git = cached(project)
    project.write("a.txt", b"ONE\n")
    project.write("new", b"")

    found = compare(project, git)

    assert [c.path for c in found.changes] == ["a.txt"]
    assert not found.complete


def test_rules_of_folders_that_are_too_large_together_hide_no_change_of_a_tracked_file(
    project: Upstream, cached: Cached
) -> None:
    git = cached(project)
    for number in range(3):
        project.write(f"d/{number}/.gitignore", b"*\n" + b"#" * 100_000)
    project.write("a.txt", b"ONE\n")

    found = compare(project, git)

    assert [c.path for c in found.changes] == ["a.txt"]
    assert not found.complete


def test_a_directory_that_cannot_be_entered_holds_no_deleted_files(project: Upstream, cached: Cached) -> None:
    git = cached(project)
    found = compare_working_directory(
        project.root / "nowhere", list_commit(git, resolve_commit(git, "HEAD", "main")).entries, {}
    )
    assert found == UncommittedChanges(count=0, changes=(), complete=False)


@pytest.mark.parametrize("content", [b"", b"DIRC", b"DIRC" + b"\xff" * 8, b"DIRC\0\0\0\2\0\0\0\1" + b"\0" * 30])
def test_a_damaged_index_is_no_index(content: bytes) -> None:
    assert parse_index(content, 40) == {}


def test_a_damaged_name_in_an_index_of_version_4_is_no_index() -> None:
    entry = b"\0" * 60 + b"\0\0"
    assert parse_index(b"DIRC\0\0\0\4\0\0\0\1" + entry + b"\xff\xff\xff\xff\xff\x7fname\0", 40) == {}


def test_an_index_whose_names_would_fill_the_memory_is_no_index() -> None:
    """S09. In version 4 each of these names is the one before and one byte more."""
    count = 50_000
    entries = (b"\0" * 60 + b"\0\0" + b"\0a\0") * count
    started = time.monotonic()
    assert parse_index(b"DIRC\0\0\0\4" + count.to_bytes(4, "big") + entries, 40) == {}
    assert time.monotonic() - started < 5 * slowness()


def test_a_clean_submodule_is_no_change(project: Upstream, cached: Cached, tmp_path: Path) -> None:
    other = initialised(tmp_path / "other")
    other.write("inside", b"x")
    other.commit()
    project.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(other.root), "sub")
    project.commit()
    git = cached(project)
    project.write("sub/inside", b"changed there: another repository's")
    assert compare(project, git) == UncommittedChanges(count=0, changes=(), complete=True)


@pytest.mark.parametrize("where", ["checked out", "detached", "without a branch", "bare", "another branch"])
def test_only_the_commit_that_is_checked_out_is_compared(tmp_path: Path, project: Upstream, where: str) -> None:
    project.git("branch", "other")
    project.write("b", b"")
    project.commit()
    place = project.root
    if where in {"detached", "without a branch"}:
        project.git("checkout", "--quiet", "--detach")
        project.write("c", b"")
        project.commit()
    if where == "without a branch":
        project.git("branch", "--quiet", "-D", "main", "other")
    project.write("a.txt", b"ONE\n")
    if where == "bare":
        place = tmp_path / "bare.git"
        project.git("clone", "-q", "--bare", ".", str(place))
    environ = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]}
    with Workbench(tmp_path / "home", environ=environ, allow_file=True) as workbench:
        services = workbench._services
        found = update_cache(services, str(place))
        commit = found.find_commit("other" if where == "another branch" else "HEAD")
        facts = load_facts(services.home, services.policies, found.repository.id, found.git, commit)
        answer = find_uncommitted_changes(services.remotes, found, commit, facts)

    assert (answer is None) == (where in {"bare", "another branch"})
    assert answer is None or [c.path for c in answer.changes] == ["a.txt"]


def test_a_configuration_of_line_breaks_takes_no_time(tmp_path: Path) -> None:
    """The search for `core.fileMode` was quadratic in them: 35 s for 60 KB, past any budget."""
    program = (
        "import resource; from sandbox.workspaces.working_directory import _NO_MODES\n"
        "resource.setrlimit(resource.RLIMIT_CPU, (20, 20))\n"
        "assert _NO_MODES.search(b'\\n' * 250_000) is None\n"
        "assert _NO_MODES.search(b'[core]\\n\\tfilemode = false\\n')"
    )
    ended = subprocess.run([sys.executable, "-I", "-c", program], check=False, capture_output=True)
    assert ended.returncode == 0, ended.stderr
