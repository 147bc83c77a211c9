"""Which submodules a tree has, whatever its `.gitmodules` says."""

from __future__ import annotations

import pytest

from sandbox.errors import ErrorCode
from sandbox.git.gitmodules import list_submodules
from sandbox.git.process import Git
from tests.unit.conftest import Upstream, refused

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def tree_with(upstream: Upstream, gitmodules: str, *links: str) -> str:
    upstream.write(".gitmodules", gitmodules.encode())
    upstream.git("add", "-A")
    for path in links:
        upstream.git("update-index", "--add", "--cacheinfo", f"160000,{COMMIT},{path}")
    return upstream.git("write-tree").decode().strip()


def entry(path: str, url: str = "../lib", name: str = "") -> str:
    return f'[submodule "{name or path}"]\n\tpath = "{path}"\n\turl = {url}\n'


def test_only_gitlinks_with_an_address_are_submodules(upstream: Upstream) -> None:
    upstream.write("file", b"x")
    text = entry("sub") + entry("file") + entry("absent") + '[submodule "half"]\n\tpath = half\n'
    tree = tree_with(upstream, text, "sub", "half", "stray")
    (found,) = list_submodules(Git(upstream.git_dir), tree)
    assert (found.path, found.commit, found.url) == (b"sub", COMMIT, "../lib")


def test_a_tree_without_the_file_has_none(upstream: Upstream) -> None:
    upstream.write("file", b"x")
    upstream.commit()
    assert list_submodules(Git(upstream.git_dir), upstream.oid("HEAD^{tree}")) == ()


@pytest.mark.parametrize(
    "text",
    [
        entry("../out"), entry("a/../../out"), entry("/etc/out"), entry(".git/hooks"), entry("a/.GIT/x"), entry("a//b"),
        entry("s\\r"), entry("a" * 140_000), entry("sub") + entry("sub", name="again"), "[submodule\n", entry("."),
    ],
)  # fmt: skip
def test_a_hostile_path_is_refused(text: str, upstream: Upstream) -> None:
    tree = tree_with(upstream, text.replace("\\r", "\r"), "sub")
    with refused(ErrorCode.UNSAFE_REPOSITORY):
        list_submodules(Git(upstream.git_dir), tree)


def test_an_include_is_not_read(upstream: Upstream) -> None:
    secret = upstream.root.parent / "secret"
    secret.write_text(entry("sub", "https://from.include/x"))
    tree = tree_with(upstream, f"[include]\n\tpath = {secret}\n", "sub")
    assert list_submodules(Git(upstream.git_dir), tree) == ()
