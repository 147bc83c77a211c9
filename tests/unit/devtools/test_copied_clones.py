"""A copy of a clone is what a clone would be."""

from __future__ import annotations

import json
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from devtools.copied_clones import copied_clones
from sandbox.git import cache_clones, transport
from tests.unit.conftest import Upstream, access_to, initialised


def remote(root: Path) -> Upstream:
    made = initialised(root)
    made.write("f", b"one\n")
    made.write("d/x", b"x\n")
    made.commit()
    made.git("tag", "v1")
    return made


def describe(clone: Path) -> dict[str, tuple[int, bytes]]:
    """Mode and content of each path. What depends on the remote's place or the time is left out."""
    found = {}
    for path in sorted(clone.rglob("*")):
        content = path.read_bytes() if path.is_file() else b""
        if path.name == "sandbox-fetched.json":
            content = json.dumps(
                {k: v for k, v in json.loads(content).items() if k not in {"began", "remote"}}
            ).encode()
        found[str(path.relative_to(clone))] = (stat.S_IMODE(path.lstat().st_mode), content)
    return found


def test_a_copy_has_the_files_and_modes_of_a_clone_and_the_name_of_its_own_remote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remotes = [remote(tmp_path / name) for name in ("one", "two")]
    accesses = [access_to(str(each.root), tmp_path / "known_hosts") for each in remotes]
    cloned, copied = tmp_path / "clones" / "cloned", tmp_path / "clones" / "copied"
    cache_clones.refresh(cloned, accesses[1])
    with copied_clones():
        cache_clones.refresh(tmp_path / "clones" / "first", accesses[0])
        with monkeypatch.context() as patched:
            patched.setattr(transport, "fetch", None)
            head = cache_clones.refresh(copied, accesses[1])
    assert head == cache_clones.refresh(cloned, accesses[1], only_if_changed=True)
    assert describe(copied) == describe(cloned)
    assert stat.S_IMODE(copied.stat().st_mode) == stat.S_IMODE(cloned.stat().st_mode)
    assert not cache_clones.is_clone_of_other_remote(copied, accesses[1].remote)
    assert cache_clones.is_clone_of_other_remote(copied, accesses[0].remote)


def test_another_state_of_the_remote_is_cloned(tmp_path: Path) -> None:
    source = remote(tmp_path / "one")
    access = access_to(str(source.root), tmp_path / "known_hosts")
    with copied_clones():
        cache_clones.refresh(tmp_path / "clones" / "first", access)
        source.write("f", b"two\n")
        commit = source.commit()
        assert cache_clones.refresh(tmp_path / "clones" / "second", access).commit == commit


def test_another_thread_clones_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: this thread copies."""
    access = access_to(str(remote(tmp_path / "one").root), tmp_path / "known_hosts")
    with copied_clones(), ThreadPoolExecutor(1) as pool:
        cache_clones.refresh(tmp_path / "clones" / "first", access)
        monkeypatch.setattr(transport, "fetch", None)
        cache_clones.refresh(tmp_path / "clones" / "second", access)
        with pytest.raises(TypeError, match="not callable"):
            pool.submit(cache_clones.refresh, tmp_path / "clones" / "third", access).result()


def test_after_the_block_each_clone_is_made_by_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    access = access_to(str(remote(tmp_path / "one").root), tmp_path / "known_hosts")
    with copied_clones():
        cache_clones.refresh(tmp_path / "clones" / "first", access)
    monkeypatch.setattr(transport, "fetch", None)
    with pytest.raises(TypeError, match="not callable"):
        cache_clones.refresh(tmp_path / "clones" / "second", access)
