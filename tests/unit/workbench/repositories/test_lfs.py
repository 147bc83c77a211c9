"""Files of Git LFS: laid out where the operator wants them, from the remote's server, and equal to their pointers."""

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


@pytest.mark.parametrize("workbench", ["auto", "plain"], indirect=True)
def test_a_changed_file_is_seen_kept_restored_and_not_committed(
    workbench: Workbench, project: Upstream, host: LfsHost
) -> None:
    repo_id = chosen(workbench, host)
    task_id, _ = files_of(workbench, repo_id)
    root = workbench.task(task_id).worktree_path
    assert root is not None
    (root / "logo.bin").write_bytes(b"drawn anew")
    (root / "assets/run.bin").chmod(0o644)
    (root / "new.bin").write_bytes(b"\0new")
    (root / "main.c").write_bytes(b"int other;\n")
    kinds = {change.path: change.kind for change in workbench.status(task_id).changes}
    assert kinds == {
        "assets/run.bin": ChangeKind.MODIFIED,
        "logo.bin": ChangeKind.MODIFIED,
        "main.c": ChangeKind.MODIFIED,
        "new.bin": ChangeKind.ADDED,
    }
    with refused(ErrorCode.POLICY_VIOLATION) as caught:
        workbench.commit(task_id, "a new logo")
    assert caught.value.details == "logo.bin\nnew.bin"

    drawn = workbench.snapshot(task_id)
    workbench.restore(task_id, "head")
    assert workbench.status(task_id).changes == ()
    assert on_disk(root)["logo.bin"] == ("file", LOGO)
    assert on_disk(root)["assets/run.bin"] == ("run", SOUND)
    workbench.restore(task_id, drawn.id)
    assert (root / "logo.bin").read_bytes() == b"drawn anew"

    (root / "logo.bin").write_bytes(LOGO)
    (root / "new.bin").unlink()
    done = workbench.commit(task_id, "a mode and a text")
    assert sorted(change.path for change in done.files) == ["assets/run.bin", "main.c"]
    assert host.rules.objects.keys() >= {stored_id(workbench, repo_id, done.commit, "assets/run.bin")}


def stored_id(workbench: Workbench, repo_id: str, commit: str, path: str) -> str:
    """The object id in the pointer that a commit has at a path."""
    git = workbench._services.repositories.open(repo_id)[1]
    return git.run("show", f"{commit}:{path}").decode().split("sha256:")[1].split()[0]


def test_a_sync_brings_the_files_of_a_newer_base(workbench: Workbench, project: Upstream, host: LfsHost) -> None:
    repo_id = chosen(workbench, host)
    task_id, _ = files_of(workbench, repo_id)
    newer = b"a newer logo" * 100
    project.write("logo.bin", host.rules.add(newer))
    project.commit()
    workbench.update_repository(repo_id)
    workbench.sync_task(task_id)
    root = workbench.task(task_id).worktree_path
    assert root is not None
    assert (root / "logo.bin").read_bytes() == newer
    assert workbench.status(task_id).changes == ()


@pytest.mark.parametrize(
    ("settings", "code"),
    [({"max_lfs_bytes": 20_000}, ErrorCode.QUOTA_EXCEEDED), ({}, ErrorCode.NOT_FOUND)],
    ids=["past the budget", "an object is missing"],
)
def test_what_cannot_be_had_is_said_by_name(
    settings: dict[str, int], code: ErrorCode, project: Upstream, host: LfsHost, tmp_path: Path
) -> None:
    host.rules.objects.pop(pointer_id(project.root / "assets/run.bin"))
    store_credential(tmp_path / "home", host, AUTHORITY)
    with Workbench(tmp_path / "home", environ=ENVIRON, settings={"remotes": settings}) as workbench:
        repo_id = workbench.clone(host.url).repository.id
        with refused(code) as caught:
            workbench.set_repository(repo_id, {"lfs": True})
        assert "assets/run.bin" in f"{caught.value.brief} {caught.value.details}" or settings
        assert not workbench.repository(repo_id).settings.lfs


def pointer_id(path: Path) -> str:
    return path.read_text().split("sha256:")[1].split()[0]
