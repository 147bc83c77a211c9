"""How manifests of a tree are read from git. What they say: tests/unit/dependencies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from sandbox.dependencies.collection import LOCK_BYTES
from sandbox.dependencies.python_manifest import MANIFESTS
from sandbox.git.blobs import read_blobs
from sandbox.git.process import Git
from sandbox.models.layers import LayerRule
from sandbox.workbench.checks import manifests
from tests.unit.conftest import Upstream

SIZE = 1000
LIMIT = 4 * SIZE


@pytest.mark.parametrize("limit", [10**9, LIMIT], ids=["control", "limited"])
def test_s218_one_object_under_all_names_is_not_held_for_each_of_them(
    upstream: Upstream, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    held = []

    def read(git: Git, oids: Sequence[str]) -> Iterator[bytes]:
        found = list(read_blobs(git, oids))
        held.append(sum(map(len, found)))
        return iter(found)

    for name in MANIFESTS:
        upstream.write(name, b"#" * SIZE)
    commit = upstream.commit()
    monkeypatch.setattr(manifests, "read_blobs", read)
    monkeypatch.setattr(manifests, "ALL_BYTES", limit)
    assert len(MANIFESTS) > 100
    find = manifests._reader(Git(upstream.git_dir), commit, MANIFESTS)
    assert all(find(name) == b"#" * SIZE for name in (MANIFESTS[0], MANIFESTS[-1]))
    assert (max(held) <= LIMIT) is (limit == LIMIT)


@pytest.mark.parametrize(
    ("members", "wanted"),
    [
        ('["crates/a", "crates/b"]', ("serde ^1.0", "tokio ^1")),
        ('["crates/a", "crates/b"]\nexclude = ["crates/a"]', ("serde ^1.0", "tokio ^1")),
        ('["crates/*"]\nexclude = ["crates/a"]', ("libc ^0",)),
    ],
    ids=["members", "named and excluded", "excluded"],
)
def test_a_crate_in_a_folder_needs_what_its_workspace_above_says(
    upstream: Upstream, members: str, wanted: tuple[str, ...]
) -> None:
    """It inherits versions from there, and cargo goes through all members. Control: one that is left out; cargo lets
    `members` win for a folder that it names.
    """
    root = f'[workspace]\nmembers = {members}\n[workspace.dependencies]\nserde = "^1.0"\n'
    upstream.write("Cargo.toml", root.encode())
    own = b'libc = "^0"\n' if len(wanted) == 1 else b"serde.workspace = true\n"
    upstream.write("crates/a/Cargo.toml", b'[package]\nname = "a"\n[dependencies]\n' + own)
    upstream.write("crates/b/Cargo.toml", b'[package]\nname = "b"\n[dev-dependencies]\ntokio = "^1"\n')
    upstream.commit()
    rule = LayerRule(ecosystem="rust", folder="crates/a")
    plan = manifests.plan_layer(Git(upstream.git_dir), upstream.oid("HEAD^{tree}"), rule)
    assert plan is not None
    assert plan.wanted == wanted
    assert plan.refused == ()


def test_a_file_is_read_also_if_those_before_it_fill_what_is_read_together(
    upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifests, "ALL_BYTES", SIZE)
    upstream.write("a/setup.cfg")
    upstream.write("PKG-INFO", b"#" * SIZE)
    upstream.write("pyproject.toml", b"[project]\n")
    upstream.write("uv.lock", b"#" * (LOCK_BYTES + 1))
    upstream.write("other.txt", b"other")
    (upstream.root / "setup.py").symlink_to("other.txt")
    read = manifests._reader(Git(upstream.git_dir), upstream.commit(), MANIFESTS)
    found = {
        name: read(name) for name in ("PKG-INFO", "pyproject.toml", "other.txt", "setup.py", "tox.ini", "none.txt")
    }
    assert found == {
        "PKG-INFO": b"#" * SIZE,
        "pyproject.toml": b"[project]\n",
        "other.txt": b"other",
        "setup.py": None,
        "tox.ini": None,
        "none.txt": None,
    }
    assert len(read("uv.lock") or b"") > LOCK_BYTES
    assert read("/**/setup.cfg") == b"a"
