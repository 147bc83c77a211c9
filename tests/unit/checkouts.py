"""Checkouts as the runners of CI systems make them, with plain git. What each does was read in its source:

`actions/checkout` v4 (`ref-helper.ts`, `git-source-provider.ts`) and GitLab Runner (`shells/abstract.go`).
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

from tests.unit.conftest import Upstream, initialised


class Forge:
    """A repository of two projects with a request: topic has changed api, and main meanwhile web.

    `fork`, `main`, `topic`, `merge`: commits: what both have in common, the branches, and the merge of the request.
    """

    def __init__(self, upstream: Upstream) -> None:
        """Of an empty repository. It gets a copy of one that git made once: twenty processes less for each test."""
        made, commits = _make_once()
        shutil.copytree(made, upstream.root, symlinks=True, dirs_exist_ok=True)
        self.upstream = upstream
        self.fork, self.topic, self.main, self.merge = commits

    @property
    def url(self) -> str:
        """A path would be cloned by links, whatever the depth."""
        return f"file://{self.upstream.root}"

    def clone(self, place: Path, *options: str) -> Upstream:
        """`git clone`."""
        self.upstream.git("clone", "--quiet", *options, self.url, str(place))
        return Upstream(place)

    def fetch(self, place: Path, *words: str) -> Upstream:
        """`git init` and one `git fetch`."""
        made = initialised(place)
        made.git("remote", "add", "origin", self.url)
        made.git("fetch", "--quiet", "--no-tags", "--prune", "--no-recurse-submodules", *words)
        return made


@cache
def _make_once() -> tuple[Path, tuple[str, str, str, str]]:
    """A folder with the repository, and the commits `fork`, `topic`, `main` and `merge`."""
    folder = Path(tempfile.mkdtemp(prefix="checkouts-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    upstream = initialised(folder / "forge")
    upstream.git("config", "uploadpack.allowFilter", "true")
    upstream.git("config", "uploadpack.allowAnySHA1InWant", "true")
    for project in ("api", "web"):
        upstream.write(f"{project}/Makefile", b"test:\n\t@true\n")
    for number in range(3):
        upstream.write("f", f"{number}\n".encode())
        fork = upstream.commit(f"first {number}")
    upstream.git("checkout", "--quiet", "-b", "topic")
    upstream.write("api/f", b"topic\n")
    topic = upstream.commit("topic")
    upstream.git("checkout", "--quiet", "main")
    for number in range(2):
        upstream.write("web/f", f"{number}\n".encode())
        main = upstream.commit(f"later {number}")
    upstream.git("tag", "v1")
    upstream.git("checkout", "--quiet", "--detach")
    upstream.git("merge", "--quiet", "--no-ff", "--no-edit", "topic")
    merge = upstream.oid("HEAD")
    upstream.git("update-ref", "refs/pull/7/merge", merge)
    upstream.git("update-ref", "refs/pipelines/1", topic)
    upstream.git("checkout", "--quiet", "main")
    return upstream.root, (fork, topic, main, merge)


def github_pull_request(forge: Forge, place: Path) -> Upstream:
    """`actions/checkout` for the event `pull_request`: detached at the merge, no branch."""
    made = forge.fetch(place, "--depth=1", "origin", f"+{forge.merge}:refs/remotes/pull/7/merge")
    made.git("checkout", "--quiet", "--force", "refs/remotes/pull/7/merge")
    return made


def github_pull_request_with_history(forge: Forge, place: Path) -> Upstream:
    """The same with `fetch-depth: 0`."""
    made = forge.fetch(place, "origin", "+refs/heads/*:refs/remotes/origin/*", "+refs/tags/*:refs/tags/*",
                       f"+{forge.merge}:refs/remotes/pull/7/merge")  # fmt: skip
    made.git("checkout", "--quiet", "--force", "refs/remotes/pull/7/merge")
    return made


def github_push(forge: Forge, place: Path) -> Upstream:
    """`actions/checkout` for the event `push`: the branch is made here."""
    made = forge.fetch(place, "--depth=1", "origin", f"+{forge.topic}:refs/remotes/origin/topic")
    made.git("checkout", "--quiet", "--force", "-B", "topic", "refs/remotes/origin/topic")
    return made


def github_tag(forge: Forge, place: Path) -> Upstream:
    """`actions/checkout` of a tag."""
    made = forge.fetch(place, "--depth=1", "origin", f"+{forge.main}:refs/tags/v1")
    made.git("checkout", "--quiet", "--force", "refs/tags/v1")
    return made


def gitlab(forge: Forge, place: Path) -> Upstream:
    """GitLab Runner: detached at the commit, 20 commits deep."""
    refspecs = ("+refs/pipelines/1:refs/pipelines/1", "+refs/heads/topic:refs/remotes/origin/topic")
    made = forge.fetch(place, "--depth=20", "origin", *refspecs)
    made.git("checkout", "--quiet", "--force", "--detach", forge.topic)
    return made


def gitlab_two_deep(forge: Forge, place: Path) -> Upstream:
    """The same with `GIT_DEPTH: 2`."""
    refspecs = ("+refs/pipelines/1:refs/pipelines/1", "+refs/heads/topic:refs/remotes/origin/topic")
    made = forge.fetch(place, "--depth=2", "origin", *refspecs)
    made.git("checkout", "--quiet", "--force", "--detach", forge.topic)
    return made


def gitlab_with_history(forge: Forge, place: Path) -> Upstream:
    """The same with `GIT_DEPTH: 0`."""
    made = forge.fetch(place, "origin", "+refs/pipelines/1:refs/pipelines/1", "+refs/heads/*:refs/remotes/origin/*",
                       "+refs/tags/*:refs/tags/*")  # fmt: skip
    made.git("checkout", "--quiet", "--force", "--detach", forge.topic)
    return made


def clone_one_deep(forge: Forge, place: Path) -> Upstream:
    """`git clone --depth 1`."""
    return forge.clone(place, "--depth=1")


def clone_two_deep(forge: Forge, place: Path) -> Upstream:
    """`git clone --depth 2`."""
    return forge.clone(place, "--depth=2")


def clone_detached(forge: Forge, place: Path) -> Upstream:
    """A whole clone, in which someone checked out a commit and deleted the branch."""
    made = forge.clone(place)
    made.git("checkout", "--quiet", "--detach", forge.topic)
    made.git("branch", "--quiet", "-D", "main")
    made.git("tag", "-d", "v1")
    return made


def github_filtered(forge: Forge, place: Path) -> Upstream:
    """`actions/checkout` with `filter: blob:none`: the history, and of the files those that are checked out."""
    made = forge.fetch(place, "--filter=blob:none", "origin", "+refs/heads/*:refs/remotes/origin/*",
                       f"+{forge.merge}:refs/remotes/pull/7/merge")  # fmt: skip
    made.git("checkout", "--quiet", "--force", "refs/remotes/pull/7/merge")
    return made


CHECKOUTS: tuple[Callable[[Forge, Path], Upstream], ...] = (
    github_pull_request,
    github_pull_request_with_history,
    github_filtered,
    github_push,
    github_tag,
    gitlab,
    gitlab_two_deep,
    gitlab_with_history,
    clone_one_deep,
    clone_two_deep,
    clone_detached,
)
