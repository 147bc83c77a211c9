"""Files of Git LFS: laid out where the operator wants them, from the remote's own server, and equal to their pointers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from devtools.forges.lfs import LfsHost, serving_lfs, store_credential
from sandbox.errors import ErrorCode
from sandbox.models import ChangeKind, RemarkKind
from sandbox.workbench import Workbench
from tests.unit.conftest import Upstream, refused
from tests.unit.desk import on_disk

ENVIRON = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}
AUTHORITY = trustme.CA()
LOGO, SOUND = b"\x89PNG" + bytes(range(256)) * 40, b"sound " * 5000


@pytest.fixture
def host(upstream: Upstream) -> Iterator[LfsHost]:
    with serving_lfs(upstream.git_dir, AUTHORITY) as found:
        yield found


@pytest.fixture
def project(upstream: Upstream, host: LfsHost) -> Upstream:
    """Two files of Git LFS, and a pointer that no attribute gives to it."""
    upstream.write(".gitattributes", b"*.bin filter=lfs diff=lfs merge=lfs -text\n")
    upstream.write("docs/.gitattributes", b"*.bin -filter\n")
    upstream.write("docs/example.bin", host.rules.add(b"only an example"))
    upstream.write("logo.bin", host.rules.add(LOGO))
    upstream.write("assets/run.bin", host.rules.add(SOUND), executable=True)
    upstream.write("small.bin", b"not a pointer\n")
    upstream.write("main.c", b"int main;\n")
    upstream.commit()
    return upstream


@pytest.fixture
def workbench(request: pytest.FixtureRequest, tmp_path: Path, host: LfsHost) -> Iterator[Workbench]:
    """On overlays where the host has them, or in the layout of an indirect parameter."""
    settings = {"workspaces": {"worktree": getattr(request, "param", "auto"), "disk": "watch"}}
    store_credential(tmp_path / "home", host, AUTHORITY)
    with Workbench(tmp_path / "home", environ=ENVIRON, settings=settings) as found:
        yield found


def chosen(workbench: Workbench, host: LfsHost) -> str:
    repo_id = workbench.clone(host.url).repository.id
    workbench.set_repository(repo_id, {"lfs": True})
    return repo_id


def files_of(workbench: Workbench, repo_id: str) -> tuple[str, dict[str, tuple[str, bytes]]]:
    task = workbench.create_task(repo_id, "work")
    assert task.worktree_path is not None
    return task.id, on_disk(task.worktree_path)


def test_pointers_stay_until_the_operator_wants_the_files(
    workbench: Workbench, project: Upstream, host: LfsHost
) -> None:
    cloned = workbench.clone(host.url)
    (remark,) = (r for r in cloned.advice if r.kind is RemarkKind.LFS)
    assert f"`sandbox repo set {cloned.repository.id} --lfs`" in remark.remedy
    _, files = files_of(workbench, cloned.repository.id)
    assert files["logo.bin"][1].startswith(b"version https://git-lfs")
    assert not host.stand_in.count("POST", ".*/info/lfs/.*")


@pytest.mark.parametrize("workbench", ["auto", "plain"], indirect=True)
def test_a_task_holds_the_files_and_they_are_no_changes(workbench: Workbench, project: Upstream, host: LfsHost) -> None:
    repo_id = chosen(workbench, host)
    task_id, files = files_of(workbench, repo_id)
    assert files["logo.bin"] == ("file", LOGO)
    assert files["assets/run.bin"] == ("run", SOUND)
    assert files["small.bin"][1] == b"not a pointer\n"
    assert files["docs/example.bin"][1].startswith(b"version "), "its attribute is unset"
    assert workbench.status(task_id).changes == ()
    assert not any(r.kind is RemarkKind.LFS for r in workbench.clone(host.url).advice)
