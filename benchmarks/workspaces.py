"""S38 to S42: what a workspace costs by kind: write, read, list, diff, snapshot, fork, commit.

The floors of `tree` are plain git plumbing (a private index), pygit2 and dulwich, on the same repository in the same
run. For pygit2 both of its ways are measured: an index, which is what a checkout-free edit usually takes, and a
TreeBuilder for each directory of the path, which is the least work that it can do. `pip install pygit2 dulwich` brings
both libraries; without them their rows are left out.
"""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks._harness import Rounds, compare
from benchmarks._repositories import make
from sandbox import Workbench
from sandbox.git.process import Git
from sandbox.git.refs import resolve_ref
from sandbox.git.trees.tree_value import TreeValue, open_tree
from sandbox.models import WorkspaceRequest
from sandbox.workspaces.workspace import Workspace


def _load(name: str) -> Any:
    """A library of the comparison; None if it is not installed."""
    return importlib.import_module(name) if importlib.util.find_spec(name.partition(".")[0]) else None


pygit2, dulwich_store = _load("pygit2"), _load("dulwich.object_store")
dulwich_objects, dulwich_repo = _load("dulwich.objects"), _load("dulwich.repo")
IDENTITY = {
    f"GIT_{role}_{part}": value
    for role in ("AUTHOR", "COMMITTER")
    for part, value in (("NAME", "b"), ("EMAIL", "b@localhost"), ("DATE", "1700000000 +0000"))
}
ENVIRONMENT = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", **IDENTITY}
TARGET = "0.1x"
_FEW = Rounds(most=15)


@dataclass(frozen=True)
class Site:
    """One bare repository, a file of it, and contents that no round saw before."""

    repository: Path
    commit: str
    path: str
    numbers: Iterator[int]

    def content(self) -> bytes:
        return b"a new content, number %d\n" % next(self.numbers)

    def git(self, *args: str, stdin: bytes = b"", **env: str) -> bytes:
        """Plain git on the repository."""
        return subprocess.run(
            ["git", f"--git-dir={self.repository}", *args],
            input=stdin,
            stdout=subprocess.PIPE,
            check=True,
            env={**ENVIRONMENT, **env},
        ).stdout


class Plumbing:
    """git with a private index, as a script without a checkout would use it."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.index = str(site.repository / "bench-index")

    def write_and_snapshot(self) -> None:
        self.site.git("read-tree", self.site.commit, GIT_INDEX_FILE=self.index)
        oid = self.site.git("hash-object", "-w", "--stdin", stdin=self.site.content()).decode().strip()
        self.site.git("update-index", "--cacheinfo", f"100644,{oid},{self.site.path}", GIT_INDEX_FILE=self.index)
        self.tree = self.site.git("write-tree", GIT_INDEX_FILE=self.index).decode().strip()

    def read(self) -> None:
        self.site.git("cat-file", "blob", f"{self.site.commit}:{self.site.path}")

    def list(self) -> None:
        self.site.git("ls-tree", "-r", "-l", "-t", "-z", self.site.commit)

    def diff(self) -> None:
        self.site.git("diff-tree", "-r", "-z", self.site.commit, self.tree)

    def commit(self) -> None:
        self.write_and_snapshot()
        self.site.git("commit-tree", self.tree, "-p", self.site.commit, "-m", "x")


class Pygit2:
    """libgit2."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.repo = pygit2.Repository(str(site.repository))
        self.base = self.repo[site.commit].tree

    def write_by_index(self) -> None:
        index = pygit2.Index()
        index.read_tree(self.base)
        index.add(pygit2.IndexEntry(self.site.path, self.repo.create_blob(self.site.content()), 0o100644))
        self.tree = index.write_tree(self.repo)

    def write_by_builders(self) -> None:
        *folders, name = self.site.path.split("/")
        trees = [self.base]
        for folder in folders:
            trees.append(trees[-1][folder])
        oid, mode = self.repo.create_blob(self.site.content()), 0o100644
        for tree, inside in zip(reversed(trees), [name, *reversed(folders)], strict=True):
            builder = self.repo.TreeBuilder(tree)
            builder.insert(inside, oid, mode)
            oid, mode = builder.write(), 0o040000
        self.tree = oid

    def read(self) -> None:
        _ = self.base[self.site.path].data

    def list(self) -> None:
        todo = [self.base]
        while todo:
            for entry in todo.pop():
                if isinstance(entry, pygit2.Tree):
                    todo.append(entry)
                else:
                    _ = entry.size

    def diff(self) -> None:
        _ = [delta.new_file.path for delta in self.base.diff_to_tree(self.repo[self.tree]).deltas]

    def commit(self) -> None:
        self.write_by_index()
        who = pygit2.Signature("b", "b@localhost", 0, 0)
        self.repo.create_commit(None, who, who, "x", self.tree, [self.site.commit])


class Dulwich:
    """git in Python."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.repo = dulwich_repo.Repo(str(site.repository))
        self.store = self.repo.object_store
        self.base = self.repo[site.commit.encode()].tree

    def close(self) -> None:
        self.repo.close()

    def write_and_snapshot(self) -> None:
        blob = dulwich_objects.Blob.from_string(self.site.content())
        self.store.add_object(blob)
        changed = [(self.site.path.encode(), 0o100644, blob.id)]
        self.tree: Any = dulwich_store.commit_tree_changes(self.store, self.store[self.base], changed)

    def read(self) -> None:
        _, oid = dulwich_store.tree_lookup_path(self.store.__getitem__, self.base, self.site.path.encode())
        _ = self.store[oid].data

    def list(self) -> None:
        _ = [len(self.store[e.sha].data) for e in dulwich_store.iter_tree_contents(self.store, self.base)]

    def diff(self) -> None:
        tree = self.tree.id if hasattr(self.tree, "id") else self.tree
        _ = list(self.store.tree_changes(self.base, tree))

    def commit(self) -> None:
        self.write_and_snapshot()
        made = dulwich_objects.Commit()
        made.tree = self.tree.id if hasattr(self.tree, "id") else self.tree
        made.parents = [self.site.commit.encode()]
        made.author = made.committer = b"b <b@localhost>"
        made.author_time = made.commit_time = made.author_timezone = made.commit_timezone = 0
        made.message = b"x"
        self.store.add_object(made)


class Trees:
    """The product: the value itself. A new value for each measurement, with the directories of the path read before."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.value: TreeValue = open_tree(Git(site.repository), site.commit)
        self.value.stat(site.path)
        self.changed = self.value.write(site.path, site.content())
        self.changed.snapshot()

    def write(self) -> None:
        self.value.write(self.site.path, self.site.content())

    def write_and_snapshot(self) -> None:
        self.value.write(self.site.path, self.site.content()).snapshot()

    def read(self) -> None:
        self.value.read(self.site.path)

    def list(self) -> None:
        _ = list(self.value.walk())

    def diff(self) -> None:
        self.changed.diff()

    def commit(self) -> None:
        self.value.write(self.site.path, self.site.content()).commit("x\n", IDENTITY)


def measure_values(site: Site, size: str) -> None:
    """The value against its floors; its directories and sizes are cached, as are those of the libraries."""
    with ExitStack() as exits:
        _measure_values(site, size, exits)


def _measure_values(site: Site, size: str, exits: ExitStack) -> None:
    ours, plain = Trees(site), Plumbing(site)
    others: list[tuple[str, str, Any, dict[str, str]]] = [("git plumbing", "", plain, {})]
    if pygit2 is not None:
        by_index = {"write_and_snapshot": "write_by_index"}
        others += [("pygit2, index", TARGET, Pygit2(site), by_index)]
        others += [("dulwich", "", exits.enter_context(closing(Dulwich(site))), {})]
    for action, name in (
        ("write_and_snapshot", "S38 tree: write and snapshot"),
        ("read", "S39 tree: read a file"),
        ("list", "S40 tree: list all files with sizes"),
        ("diff", "S41 tree: diff of one change"),
        ("commit", "S42 tree: write and commit"),
    ):
        with ours.value.store.session() if action == "read" else ExitStack():
            for floor_name, target, other, names in others:
                other_action: Callable[[], object] = getattr(other, names.get(action, action))
                if action == "diff":
                    getattr(other, names.get("write_and_snapshot", "write_and_snapshot"))()
                aim = target if action == "write_and_snapshot" and size == "large" else ""
                compare(
                    f"{name}, {size}",
                    getattr(ours, action),
                    other_action,
                    floor_name=floor_name,
                    target=aim,
                    rounds=_FEW,
                )
    if pygit2 is not None:
        libgit = Pygit2(site)
        fewest = "pygit2, TreeBuilders"
        compare(
            f"S38 tree: write and snapshot ({fewest}), {size}", ours.write_and_snapshot, libgit.write_by_builders,
            floor_name=fewest, target="", rounds=_FEW,
        )  # fmt: skip
        compare(
            f"S38 tree: write, {size}", ours.write, libgit.write_by_builders, floor_name=fewest, target="", rounds=_FEW
        )


KIND_ACTIONS: tuple[tuple[str, Callable[[Workspace, Site], object]], ...] = (
    ("S38 write", lambda workspace, site: workspace.write(site.path, site.content())),
    ("S39 read", lambda workspace, site: workspace.read(site.path)),
    ("S40 list", lambda workspace, site: list(workspace.walk())),
    ("S41 diff", lambda workspace, site: workspace.diff()),
    ("S38 snapshot", lambda workspace, site: workspace.snapshot()),
    ("S42 write and commit", lambda workspace, site: _commit(workspace, site)),
)


def _commit(workspace: Workspace, site: Site) -> str:
    workspace.write(site.path, site.content())
    return workspace.commit("x")


def measure_kinds(home: Path, site: Site, size: str) -> None:
    """The same through the workspaces of each kind that has a history, against that of kind tree."""
    with Workbench(home, allow_file=True, environ={}) as bench:
        repo = bench.clone(str(site.repository)).repository.id
        tree = bench.acquire_workspace("tree", WorkspaceRequest(hint=repo))
        for kind in ("worktree", "clone"):
            other = bench.acquire_workspace(kind, WorkspaceRequest(hint=repo))
            for name, act in KIND_ACTIONS:
                compare(
                    f"{name} in a workspace beside {kind}, {size}",
                    partial(act, tree, site),
                    partial(act, other, site),
                    floor_name=f"kind {kind}",
                    target="",
                    rounds=Rounds(most=5),
                )
            other.close()
            bench.release_workspace(other.id)  # its mount goes
        tree.close()


def main() -> None:
    for size in sys.argv[1:] or ["small"]:
        with tempfile.TemporaryDirectory() as name:
            repository = make(Path(name) / "plain", size)
            commit = resolve_ref(Git(repository), "refs/heads/main")
            assert commit is not None
            site = Site(repository, commit, "d1/e1/f1.txt", itertools.count())
            measure_values(site, size)
            measure_kinds(Path(name) / "home", site, size)


if __name__ == "__main__":
    main()
