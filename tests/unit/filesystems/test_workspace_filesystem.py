"""fsspec's own conformance suites on a tree, and what they do not ask.

git has no empty directories, so the suites' fixture says so; with it they leave out nothing but their own steps that
make one. No test of the suites is left out.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.tests import abstract

from sandbox.errors import SandboxError
from sandbox.filesystems.mounted_filesystem import MountedFileSystem, mount_directory
from sandbox.filesystems.workspace_filesystem import TreeFileSystem
from sandbox.git.process import Git
from sandbox.git.trees.tree_value import TreeValue, open_tree
from sandbox.workspaces.content_limits import WRITE_BYTES
from sandbox.workspaces.tree_workspace import TreeState, TreeWorkspace
from tests.unit.conftest import Upstream, initialised


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Upstream:
    made = initialised(tmp_path_factory.mktemp("filesystem") / "source")
    made.write("README", b"read me\n")
    made.write("bin/run", b"#!/bin/sh\n", executable=True)
    (made.root / "link").symlink_to("README")
    made.commit()
    return made


@pytest.fixture(scope="module")
def base(source: Upstream) -> Iterator[TreeValue]:
    """With one git for all tests."""
    value = open_tree(Git(source.git_dir), source.oid("HEAD"))
    with value.store.session():
        yield value


@pytest.fixture
def workspace(base: TreeValue) -> TreeWorkspace:
    return TreeWorkspace("tree-1", TreeState(base))


@pytest.fixture
def tree(workspace: TreeWorkspace) -> TreeFileSystem:
    return TreeFileSystem(workspace=workspace, skip_instance_cache=True)


class TreeFixtures(abstract.AbstractFixtures):  # type: ignore[misc]  # fsspec has no annotations
    """A new tree for each test."""

    @pytest.fixture
    def fs(self, tree: TreeFileSystem) -> TreeFileSystem:
        return tree

    @pytest.fixture
    def fs_path(self) -> str:
        return "conformance"

    @pytest.fixture
    def fs_join(self) -> Callable[..., str]:
        return posixpath.join

    @pytest.fixture
    def supports_empty_directories(self) -> bool:
        return False


class TestCopy(abstract.AbstractCopyTests, TreeFixtures):  # type: ignore[misc]
    """cp"""


class TestGet(abstract.AbstractGetTests, TreeFixtures):  # type: ignore[misc]
    """get"""


class TestPut(abstract.AbstractPutTests, TreeFixtures):  # type: ignore[misc]
    """put"""


class TestOpen(abstract.AbstractOpenTests, TreeFixtures):  # type: ignore[misc]
    """open"""


class TestPipe(abstract.AbstractPipeTests, TreeFixtures):  # type: ignore[misc]
    """pipe"""


def test_files_have_size_mode_and_type(tree: TreeFileSystem) -> None:
    assert tree.find("") == ["README", "bin/run", "link"]
    assert tree.info("bin/run") == {
        "name": "bin/run", "type": "file", "size": 10, "mode": 0o100755, "islink": False,
    }  # fmt: skip
    assert tree.info("link")["type"] == "other"
    assert tree.glob("b*/*") == ["bin/run"]
    assert tree.cat_file("README", 0, 4) == b"read"


def test_a_copy_keeps_the_mode_and_append_keeps_the_content(tree: TreeFileSystem) -> None:
    tree.cp_file("bin/run", "bin/other")
    assert tree.info("bin/other")["mode"] == 0o100755
    with tree.open("README", "ab") as file:
        file.write(b"more")
    assert tree.cat_file("README") == b"read me\nmore"


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda fs: fs.cat_file("missing"), FileNotFoundError),
        (lambda fs: fs.cat_file("bin"), IsADirectoryError),
        (lambda fs: fs.pipe_file("bin", b""), IsADirectoryError),
        (lambda fs: fs.rm("bin"), IsADirectoryError),
        (lambda fs: fs.rmdir("bin"), OSError),
        (lambda fs: fs.cat_file("link"), PermissionError),
        (lambda fs: fs.cat_file("bin/../../x"), PermissionError),
        (lambda fs: fs.pipe_file(".git/config", b""), PermissionError),
        (lambda fs: fs.open("README", "r+b"), ValueError),
    ],
)
def test_errors_are_those_of_python(
    tree: TreeFileSystem, call: Callable[[TreeFileSystem], Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        call(tree)


def test_a_transaction_writes_at_its_end_or_not_at_all(tree: TreeFileSystem) -> None:
    with tree.transaction:
        with tree.open("kept", "wb") as file:
            file.write(b"1")
        assert not tree.exists("kept")
    assert tree.cat_file("kept") == b"1"
    tree.start_transaction()
    with tree.open("dropped", "wb") as file:
        file.write(b"1")
    tree.transaction.complete(commit=False)
    assert not tree.exists("dropped")


def test_a_file_that_grows_without_end_is_refused(tree: TreeFileSystem) -> None:
    with tree.open("big", "wb") as file:
        file.seek(WRITE_BYTES)
        with pytest.raises(SandboxError):
            file.write(b"1")


def test_urls_name_the_workspace_and_the_path() -> None:
    assert TreeFileSystem._get_kwargs_from_urls("sandbox+tree://me-project@main/src/a") == {"hint": "me-project@main"}
    assert TreeFileSystem._strip_protocol("sandbox+tree://me-project@main/src/a/") == "src/a"
    assert fsspec.get_filesystem_class("sandbox+tree") is TreeFileSystem


# --- mounts


@pytest.fixture
def mounts(tree: TreeFileSystem, tmp_path: Path) -> MountedFileSystem:
    local = mount_directory(LocalFileSystem(auto_mkdir=True), str(tmp_path))
    memory = MemoryFileSystem()
    memory.store.clear()
    return MountedFileSystem({"code": tree, "scratch": memory, "disk": local})


def test_one_table_reads_writes_and_copies_across_file_systems(mounts: MountedFileSystem, tmp_path: Path) -> None:
    assert mounts.ls("", detail=False) == ["code", "disk", "scratch"]
    mounts.cp_file("code/README", "scratch/a/b")
    mounts.cp_file("scratch/a/b", "disk/c/d")
    assert (tmp_path / "c" / "d").read_bytes() == b"read me\n"
    with mounts.open("disk/c/e", "wb") as file:
        file.write(b"text")
    mounts.mv("disk/c/e", "code/new/e")
    assert sorted(mounts.find("")) == [
        "code/README", "code/bin/run", "code/link", "code/new/e", "disk/c/d", "scratch/a/b",
    ]  # fmt: skip
    mounts.rm("code/new", recursive=True)
    assert not mounts.exists("code/new/e")


@pytest.mark.parametrize(
    ("path", "error"),
    [("disk/../../etc/passwd", PermissionError), ("other/a", FileNotFoundError), ("code/../disk/c", PermissionError)],
)
def test_no_path_leads_out_of_a_mount(mounts: MountedFileSystem, path: str, error: type[OSError]) -> None:
    with pytest.raises(error):
        mounts.cat_file(path)
    with pytest.raises(error):
        mounts.pipe_file(path, b"")
    with pytest.raises(PermissionError):
        mounts.rm("disk", recursive=True)


def test_mounts_have_one_name() -> None:
    for name in ("", "a/b", ".."):
        with pytest.raises(ValueError, match="one name"):
            MountedFileSystem({name: MemoryFileSystem()})
