"""THREATS S14: a local repository whose parts lead to other files and repositories of the host.

Control: plain git quotes a line of the secret, serves the other repository's commit, or waits.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from devtools.home_files import read_home_files
from devtools.host_speed import slowness
from sandbox.attack.harness.scene import FILES, hash_of
from sandbox.errors import ErrorCode, SandboxError
from tests.attack.arena import Arena, outcome, variants
from tests.attack.test_e_local_paths import PATCH, committed

pytestmark = pytest.mark.must

SECRET = "line-of-a-host-file"
WAIT_S = 3.0
LIMIT_S = 30.0  # far below any deadline of git


@pytest.fixture
def secret(arena: Arena) -> Path:
    path = arena.outside / "shadow"
    path.write_text(f"{SECRET}:x\nsecond {SECRET}\n")
    return path


@pytest.fixture
def other(arena: Arena) -> Path:
    """Another repository of the host, with a commit that the remote does not have."""
    place = arena.root / "other.git"
    shutil.copytree(arena.remote, place, symlinks=True)
    arena.seed(place, {"private.txt": SECRET.encode()}, branch="private")
    return place


def plain_git(arena: Arena, *args: str) -> str:
    """Everything that plain git prints; `waits` if it does not end."""
    environ = {"PATH": os.environ["PATH"], "HOME": str(arena.root), "GIT_CONFIG_NOSYSTEM": "1"}
    process = subprocess.Popen(
        [arena.git_program, *args], cwd=arena.root, env=environ, text=True, errors="replace",
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    try:
        return process.communicate(timeout=WAIT_S)[0]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        process.communicate()
        return "waits"


def plain_clone(arena: Arena) -> str:
    place = arena.root / f"clone-{len(list(arena.root.iterdir()))}"
    said = plain_git(arena, "clone", "-q", f"file://{arena.remote}", str(place))
    if (place / ".git").is_dir():
        said += plain_git(arena, "-C", str(place), "log", "--all", "-p")
    shutil.rmtree(place, ignore_errors=True)
    return said


def spoken(error: SandboxError | None) -> str:
    return f"{error.brief}\n{error.details}\n{error.hint}" if error else ""


def kept(home: Path) -> Iterator[Path]:
    """Files below the home that hold the secret: logs, journals, records and objects that were unpacked."""
    for path, content in read_home_files(home):
        if SECRET.encode() in content:
            yield path


def require_silent(arena: Arena, step: Callable[[], object]) -> SandboxError | None:
    """The step ends in time, and the secret is nowhere."""
    started = time.monotonic()
    error = outcome(step)
    assert time.monotonic() - started < LIMIT_S * slowness()
    assert SECRET not in spoken(error)
    assert list(kept(arena.home)) == []
    assert error is None or error.code is not ErrorCode.INTERNAL, spoken(error)
    return error


def require_unfetched(arena: Arena, oid: str) -> None:
    for cache in (arena.home / "repositories" / "clones").glob("*"):
        assert arena.git("cat-file", "-e", oid, cwd=arena.root, git_dir=cache).code != 0


LINKS = ("packed-refs", "shallow", "HEAD", "config", "refs/heads/leak")


@pytest.mark.parametrize("name", LINKS)
def test_s14_a_link_to_a_file_is_not_read(arena: Arena, secret: Path, name: str) -> None:
    place = arena.remote / name
    place.unlink(missing_ok=True)
    place.symlink_to(secret)
    if name in {"packed-refs", "shallow"}:
        assert SECRET in plain_clone(arena), "void"

    error = require_silent(arena, lambda: arena.workbench.clone(str(arena.remote)))

    assert error is not None
    assert error.code is ErrorCode.UNSAFE_REPOSITORY


def test_s14_an_include_is_not_read(arena: Arena) -> None:
    """Control: git takes a setting from the included file: it serves no tag."""
    arena.require_git("tag", "v1", "main", cwd=arena.root, git_dir=arena.remote)
    (arena.outside / "included").write_text("[uploadpack]\n\thideRefs = refs/tags\n")
    arena.require_git("config", "include.path", str(arena.outside / "included"), cwd=arena.root, git_dir=arena.remote)
    assert "refs/tags/v1" not in plain_git(arena, "ls-remote", f"file://{arena.remote}"), "void"

    arena.new_task()

    assert "refs/tags/v1" in arena.require_git("show-ref", cwd=arena.root, git_dir=arena.cache)


def test_s14_a_skip_list_is_not_read(arena: Arena, secret: Path) -> None:
    """A push: git reads the list before it receives objects."""
    branch = committed(arena)
    for key, value in (("receive.fsckObjects", "true"), ("receive.fsck.skipList", str(secret))):
        arena.require_git("config", key, value, cwd=arena.root, git_dir=arena.remote)
    assert SECRET in plain_git(
        arena, f"--git-dir={arena.cache}", "push", f"file://{arena.remote}", f"refs/heads/{branch}:refs/heads/void"
    ), "void"

    assert require_silent(arena, lambda: arena.workbench.push(arena.task.id)) is None

    pushed = arena.require_git("rev-parse", branch, cwd=arena.root, git_dir=arena.remote)
    assert pushed == arena.workbench.task(arena.task.id).head_commit


def borrow(arena: Arena, other: Path) -> None:
    (arena.remote / "objects" / "info" / "alternates").write_text(f"{other}/objects\n")
    name_private(arena, other)


def link_objects(arena: Arena, other: Path) -> None:
    shutil.rmtree(arena.remote / "objects")
    (arena.remote / "objects").symlink_to(other / "objects")
    name_private(arena, other)


def link_packs(arena: Arena, other: Path) -> None:
    arena.require_git("repack", "-adq", cwd=arena.root, git_dir=other)
    for path in (other / "objects" / "pack").iterdir():
        (arena.remote / "objects" / "pack" / path.name).symlink_to(path)
    name_private(arena, other)


def link_loose(arena: Arena, other: Path) -> None:
    for pack in (other / "objects" / "pack").glob("*.pack"):
        aside = pack.rename(arena.root / pack.name)  # git unpacks what it does not have
        arena.require_git("unpack-objects", "-q", cwd=arena.root, git_dir=other, stdin=aside.read_bytes())
    for path in (other / "objects").glob("??/*"):
        mine = arena.remote / "objects" / path.parent.name / path.name
        mine.parent.mkdir(exist_ok=True)
        if not mine.exists():
            mine.symlink_to(path)
    name_private(arena, other)


def common_directory(arena: Arena, other: Path) -> None:
    shutil.rmtree(arena.remote / "objects")
    shutil.rmtree(arena.remote / "refs")
    (arena.remote / "commondir").write_text(f"{other}\n")


def git_file(arena: Arena, other: Path) -> None:
    shutil.rmtree(arena.remote)
    arena.remote.mkdir()
    (arena.remote / ".git").write_text(f"gitdir: {other}\n")


def worktree_of_another(arena: Arena, other: Path) -> None:
    """The file of a real linked worktree, in a directory that its repository does not name."""
    arena.require_git("worktree", "add", "-q", str(arena.root / "linked"), "private", cwd=arena.root, git_dir=other)
    shutil.rmtree(arena.remote)
    arena.remote.mkdir()
    shutil.copy(arena.root / "linked" / ".git", arena.remote / ".git")


def name_private(arena: Arena, other: Path) -> None:
    oid = arena.require_git("rev-parse", "private", cwd=arena.root, git_dir=other)
    (arena.remote / "refs" / "heads" / "stolen").write_text(f"{oid}\n")


@pytest.mark.parametrize(
    "lead", [borrow, link_objects, link_packs, link_loose, common_directory, git_file, worktree_of_another],
    ids=lambda lead: lead.__name__,
)  # fmt: skip
def test_s14_another_repository_is_not_served(arena: Arena, other: Path, lead: Callable[[Arena, Path], None]) -> None:
    private = arena.require_git("rev-parse", "private", cwd=arena.root, git_dir=other)
    lead(arena, other)
    assert SECRET in plain_clone(arena), "void"

    error = require_silent(arena, lambda: arena.workbench.clone(str(arena.remote)))

    assert error is not None
    assert error.code is ErrorCode.UNSAFE_REPOSITORY
    assert error.hint
    require_unfetched(arena, private)


@pytest.mark.parametrize("lead", [common_directory, git_file], ids=lambda lead: lead.__name__)
def test_s14_a_push_reaches_no_other_repository(arena: Arena, other: Path, lead: Callable[[Arena, Path], None]) -> None:
    branch = committed(arena)
    lead(arena, other)
    plain_git(
        arena, f"--git-dir={arena.cache}", "push", f"file://{arena.remote}", f"refs/heads/{branch}:refs/heads/void"
    )
    control = arena.git("rev-parse", "--verify", "refs/heads/void", cwd=arena.root, git_dir=other)
    assert control.code == 0, "void"

    error = require_silent(arena, lambda: arena.workbench.push(arena.task.id))

    assert error is not None
    assert arena.git("rev-parse", "--verify", f"refs/heads/{branch}", cwd=arena.root, git_dir=other).code != 0


PIPES = (
    "HEAD", "config", "packed-refs", "shallow", "commondir", "info/grafts", "objects/info/alternates",
    "objects/info/commit-graph", "refs/heads/x", "refs/tags/x", "objects/pack/pack-1.idx", "hooks/pre-receive",
)  # fmt: skip
IGNORED = {"info/grafts", "objects/info/commit-graph", "objects/info/alternates", "hooks/pre-receive"}
"""git never gets to see these."""
OF_EACH_KIND = (
    "HEAD",
    "config",
    "packed-refs",
    "commondir",
    "objects/info/alternates",
    "refs/heads/x",
    "objects/pack/pack-1.idx",
)


@pytest.mark.parametrize("name", variants(PIPES, *OF_EACH_KIND))
def test_s14_a_pipe_makes_nothing_wait(arena: Arena, name: str) -> None:
    """Control: plain git waits for a writer, but not for a hook (no push), half a pack, or, since 2.40, a ref."""
    branch = committed(arena)
    place = arena.remote / name
    place.parent.mkdir(parents=True, exist_ok=True)
    place.unlink(missing_ok=True)
    os.mkfifo(place)
    skipped_by_newer = name.startswith("refs/") and arena.git_version > (2, 39)
    if name not in {"hooks/pre-receive", "objects/pack/pack-1.idx"} and not skipped_by_newer:
        assert "waits" in plain_clone(arena), "void"

    errors = [
        require_silent(arena, lambda: arena.workbench.clone(str(arena.remote))),
        require_silent(arena, lambda: arena.workbench.push(arena.task.id)),
    ]

    if name in IGNORED:
        assert errors == [None, None]
        assert arena.require_git("show-ref", branch, cwd=arena.root, git_dir=arena.cache)
    else:
        assert [error and error.code for error in errors] == [ErrorCode.UNSAFE_REPOSITORY] * 2


def test_s14_ordinary_repositories_work(arena: Arena) -> None:
    """A clone, a linked worktree, a submodule: fetched, pushed to, and read again by plain git."""
    main, linked, parent = (arena.root / name for name in ("main", "linked", "parent"))
    arena.require_git("clone", "-q", str(arena.remote), str(main), cwd=arena.root)
    arena.require_git("worktree", "add", "-q", "-b", "side", str(linked), cwd=main)
    arena.require_git("init", "-q", str(parent), cwd=arena.root)
    added = ("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(arena.remote), "sub")
    arena.require_git(*added, cwd=parent)
    for place in (main, linked, parent / "sub"):
        task = arena.workbench.create_task(arena.workbench.clone(str(place)).repository.id)
        arena.workbench.apply_patch(task.id, PATCH, {"g.txt": hash_of(FILES["g.txt"])})
        commit = arena.workbench.commit(task.id, "work").commit
        arena.workbench.push(task.id)
        assert arena.require_git("rev-parse", task.branch, cwd=place) == commit
        assert arena.git("fsck", "--strict", cwd=place).code == 0
