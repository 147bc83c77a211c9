"""Mistakes of old programs in a history do not refuse a repository; everything else that git's fsck refuses does."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox.errors import ErrorCode
from sandbox.git import cache_clones
from sandbox.git.objects import blob_id, commit_time
from sandbox.git.process import Git
from sandbox.git.transport import RemoteAccess
from sandbox.git.trees.tree_format import parse_tree
from sandbox.workbench import Workbench
from tests.unit.conftest import Upstream, access_to, refused

MOMENT = 1313584730
PLAIN = f"a <a@b> {MOMENT} +0000"


class Literal:
    """Stores objects as they are given, and moves `main` to commits."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self.file = self.store("blob", b"one\n")
        self.empty = self.store("tree", b"")

    def store(self, kind: str, content: bytes) -> str:
        command = ["git", f"--git-dir={self._upstream.git_dir}", "hash-object", "-t", kind, "-w", "--stdin"]
        return subprocess.run(
            [*command, "--literally"], input=content, check=True, capture_output=True
        ).stdout.decode()[:-1]

    def tree(self, *entries: tuple[bytes, bytes, str]) -> str:
        return self.store("tree", b"".join(b"%b %b\0%b" % (mode, name, bytes.fromhex(o)) for mode, name, o in entries))

    def publish(self, author: str = PLAIN, committer: str = PLAIN, tree: str = "", more: str = "") -> str:
        tree = tree or self.tree((b"100644", b"f", self.file))
        body = f"tree {tree}\nauthor {author}\n{more}committer {committer}\n\nold\n"
        commit = self.store("commit", body.encode())
        self._upstream.git("update-ref", "refs/heads/main", commit)
        return commit


HARMLESS: dict[str, Callable[[Literal], str]] = {
    "badTimezone": lambda made: made.publish(f"a <a@b> {MOMENT} +051800", f"a <a@b> {MOMENT} +051800"),
    "badTimezone-short": lambda made: made.publish(PLAIN, f"a <a@b> {MOMENT} -700"),
    "badTimezone-name": lambda made: made.publish(PLAIN, f"a <a@b> {MOMENT} UTC"),
    "missingSpaceBeforeDate": lambda made: made.publish(PLAIN, f"a <a@b>{MOMENT} +0000"),
    "zeroPaddedFilemode": lambda made: made.publish(
        tree=made.tree((b"100644", b"f", made.file), (b"040000", b"lib", made.tree((b"0100644", b"f", made.file))))
    ),
}
OTHER = "1" * 40
DANGEROUS: dict[str, Callable[[Literal], str]] = {
    "hasDotgit": lambda made: made.publish(tree=made.tree((b"100644", b".git", made.file))),
    "hasDotgit-padded": lambda made: made.publish(tree=made.tree((b"0100644", b".git", made.file))),
    "hasDot": lambda made: made.publish(tree=made.tree((b"40000", b".", made.empty))),
    "hasDotdot": lambda made: made.publish(tree=made.tree((b"40000", b"..", made.empty))),
    "fullPathname": lambda made: made.publish(tree=made.tree((b"100644", b"a/b", made.file))),
    "nullSha1": lambda made: made.publish(tree=made.tree((b"160000", b"f", "0" * 40))),
    "duplicateEntries": lambda made: made.publish(
        tree=made.tree((b"100644", b"f", made.file), (b"100644", b"f", made.file))
    ),
    "treeNotSorted": lambda made: made.publish(
        tree=made.tree((b"100644", b"g", made.file), (b"100644", b"f", made.file))
    ),
    "gitmodulesUrl": lambda made: made.publish(
        tree=made.tree((b"100644", b".gitmodules", made.store("blob", b'[submodule "a"]\n\tpath = a\n\turl = -u./x\n')))
    ),
    "gitmodulesName": lambda made: made.publish(
        tree=made.tree((b"100644", b".gitmodules", made.store("blob", b'[submodule "../a"]\n\tpath = a\n\turl = b\n')))
    ),
    "gitmodulesSymlink": lambda made: made.publish(tree=made.tree((b"120000", b".gitmodules", made.file))),
    "badDate": lambda made: made.publish(PLAIN, "a <a@b> yesterday +0000"),
    "badDateOverflow": lambda made: made.publish(PLAIN, f"a <a@b> {'9' * 30} +0000"),
    "zeroPaddedDate": lambda made: made.publish(PLAIN, f"a <a@b> 0{MOMENT} +0000"),
    "missingEmail": lambda made: made.publish(f"a {MOMENT} +0000"),
    "multipleAuthors": lambda made: made.publish(more=f"author {PLAIN}\n"),
    "nulInHeader": lambda made: made.publish(more="x \0y\n"),
}


@pytest.fixture
def made(upstream: Upstream) -> Literal:
    return Literal(upstream)


@pytest.fixture
def reach(upstream: Upstream, tmp_path: Path) -> RemoteAccess:
    return access_to(str(upstream.root), tmp_path / "known_hosts")


@pytest.mark.parametrize("name", HARMLESS)
def test_a_mistake_of_an_old_program_is_fetched_and_its_date_is_read(
    name: str, made: Literal, reach: RemoteAccess, tmp_path: Path
) -> None:
    commit = HARMLESS[name](made)
    cache_clones.refresh(tmp_path / "clones" / "id", reach)
    git = Git(tmp_path / "clones" / "id")
    assert commit_time(git, commit) == MOMENT
    assert cache_clones.is_intact(git)


@pytest.mark.parametrize("name", DANGEROUS)
def test_what_fsck_refuses_besides_is_refused(name: str, made: Literal, reach: RemoteAccess, tmp_path: Path) -> None:
    """Control: the tests above, with the same steps."""
    DANGEROUS[name](made)
    with refused(ErrorCode.UNSAFE_REPOSITORY) as caught:
        cache_clones.refresh(tmp_path / "clones" / "id", reach)
    assert name.partition("-")[0] in caught.value.details
    assert not (tmp_path / "clones" / "id").exists()


@pytest.mark.parametrize("name", HARMLESS)
def test_a_task_works_on_it(name: str, made: Literal, upstream: Upstream, tmp_path: Path) -> None:
    HARMLESS[name](made)
    with Workbench(tmp_path / "home", allow_file=True, environ={}) as workbench:
        repository = workbench.clone(str(upstream.root)).repository
        task = workbench.create_task(repository.id)
        workbench.write_file(task.id, "lib/new", "new\n", None)
        assert [change.path for change in workbench.status(task.id).changes] == ["lib/new"]
        commit = workbench.commit(task.id, "new").commit
        clone = tmp_path / "home" / "repositories" / "clones" / repository.id
        listed = Git(clone).run("ls-tree", "-r", "--name-only", commit).decode().split()
    assert sorted({"f", "lib/new"} - set(listed)) == []
    assert workbench.task(task.id).head_commit == commit


@pytest.mark.parametrize("text", ["", "yesterday", f"{'9' * 30} +0000", f" {MOMENT}"])
def test_a_date_that_git_cannot_read_is_the_first_moment(text: str, made: Literal, upstream: Upstream) -> None:
    """git takes it so. The fsck of git 2.39 does not look at a date that is not behind a space."""
    assert commit_time(Git(upstream.git_dir), made.publish(PLAIN, f"a <a@b>{text}")) == 0


@pytest.mark.parametrize("mode", [b"040000", b"0100644", b"000000100644"], ids=bytes.decode)
def test_a_padded_mode_is_read_as_what_it_is(mode: bytes) -> None:
    oid = bytes.fromhex(blob_id(b"x"))
    assert parse_tree(b"%b f\0%b" % (mode, oid), 20)[b"f"].mode == int(mode, 8)


@pytest.mark.parametrize(
    "mode", [b"1100644", b"+100644", b"0o100644", b"10_0644", b"0" * 40 + b"100644"], ids=bytes.decode
)
def test_what_is_no_mode_is_refused(mode: bytes) -> None:
    with refused(ErrorCode.UNSAFE_REPOSITORY):
        parse_tree(b"%b f\0%b" % (mode, bytes(20)), 20)
