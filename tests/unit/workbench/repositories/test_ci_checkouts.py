"""`run DIR` in checkouts as runners of a CI have them, without an engine: the clean rooms are left out."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.errors import ErrorCode
from sandbox.models import BisectQuery, RunSummary
from sandbox.workbench import VerifyOptions, Workbench
from sandbox.workbench.checks import verify
from sandbox.workbench.controller.services import Services
from tests.unit import checkouts
from tests.unit.checkouts import CHECKOUTS, Forge
from tests.unit.conftest import Upstream, refused

Checkout = Callable[[Forge, Path], Upstream]
WITH_HISTORY = (
    checkouts.github_pull_request_with_history,
    checkouts.github_filtered,
    checkouts.gitlab_with_history,
)
WITHOUT_BASE = (checkouts.github_pull_request, checkouts.github_push, checkouts.gitlab)
DELIVERED = (
    checkouts.github_pull_request,
    checkouts.github_filtered,
    checkouts.gitlab_two_deep,
    checkouts.clone_detached,
)
"""Of each kind one: with a merge that no branch has, without contents, cut off, and without a branch."""
PROJECTS = {name: {"subpath": name, "profile": "make"} for name in ("api", "web")}


@pytest.fixture
def forge(upstream: Upstream) -> Forge:
    return Forge(upstream)


@pytest.fixture
def workbench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workbench]:
    monkeypatch.setattr(verify, "run_in_rooms", lambda *_: ())
    monkeypatch.setattr(Services, "engine_facts", {})
    environ = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]}
    with Workbench(tmp_path / "home", environ=environ, allow_file=True) as found:
        yield found


def run(workbench: Workbench, place: str, ref: str = "HEAD", **options: Any) -> RunSummary:
    return workbench.run(place, ref, options=VerifyOptions(projects=PROJECTS, **options))


@pytest.mark.parametrize("state", CHECKOUTS, ids=lambda state: state.__name__)
def test_the_commit_that_is_checked_out_is_verified(
    forge: Forge, workbench: Workbench, tmp_path: Path, state: Checkout
) -> None:
    checkout = state(forge, tmp_path / "checkout")
    place, commit, tree = str(checkout.root), checkout.oid("HEAD"), checkout.oid("HEAD^{tree}")
    checkout.write("f", b"not committed\n")

    plain, named = run(workbench, place), run(workbench, place, commit)
    included = run(workbench, place, include_changes=True)

    assert (plain.commit, plain.tree) == (named.commit, named.tree) == (commit, tree)
    assert plain.uncommitted is not None
    assert [change.path for change in plain.uncommitted.changes] == ["f"]
    checkout.git("add", "f")
    assert (included.commit, included.tree) == (commit, checkout.git("write-tree").decode().strip())
    assert run(workbench, place, changed_since="HEAD").nothing_changed
    assert [finding.note for finding in workbench.collect().leftovers] == []


@pytest.mark.parametrize("state", WITH_HISTORY, ids=lambda state: state.__name__)
@pytest.mark.parametrize("base", ["origin/main", pytest.param("id", marks=pytest.mark.thorough), "short id"])
def test_what_changed_since_a_branch_of_the_remote_is_run(
    forge: Forge, workbench: Workbench, tmp_path: Path, state: Checkout, base: str
) -> None:
    checkout = state(forge, tmp_path / "checkout")
    named = {"id": forge.main, "short id": forge.main[:10]}.get(base, base)

    found = run(workbench, str(checkout.root), changed_since=named)

    assert found.commit == checkout.oid("HEAD")
    assert found.left_out == ("web.build", "web.test")
    assert not found.nothing_changed


def test_a_branch_of_the_remote_can_be_verified(forge: Forge, workbench: Workbench, tmp_path: Path) -> None:
    place = str(checkouts.github_pull_request_with_history(forge, tmp_path / "checkout").root)
    for ref in ("origin/topic", forge.topic, forge.topic[:9]):
        assert run(workbench, place, ref).commit == forge.topic
    forge.upstream.git("checkout", "--quiet", "topic")
    moved = forge.upstream.commit("moved")
    assert run(workbench, place, "origin/topic").commit == forge.topic, "what the checkout has, not its remote"
    with refused(ErrorCode.NOT_FOUND):
        run(workbench, place, moved)


@pytest.mark.parametrize("state", WITHOUT_BASE, ids=lambda state: state.__name__)
def test_a_base_that_the_checkout_lacks_is_asked_for(
    forge: Forge, workbench: Workbench, tmp_path: Path, state: Checkout
) -> None:
    place = str(state(forge, tmp_path / "checkout").root)
    for base in ("origin/main", "main", forge.main):
        with refused(ErrorCode.NOT_FOUND) as caught:
            run(workbench, place, changed_since=base)
        assert "fetch-depth: 0" in caught.value.hint
        assert "GIT_DEPTH" in caught.value.hint


def test_a_base_whose_fork_is_cut_off_is_no_answer(forge: Forge, workbench: Workbench, tmp_path: Path) -> None:
    checkout = checkouts.gitlab_two_deep(forge, tmp_path / "checkout")
    checkout.git("fetch", "--quiet", "--depth=2", "origin", "+refs/heads/main:refs/remotes/origin/main")
    with refused(ErrorCode.CONFLICT) as caught:
        run(workbench, str(checkout.root), changed_since="origin/main")
    assert "git fetch --unshallow" in caught.value.hint
    checkout.git("fetch", "--quiet", "--unshallow", "origin")
    assert run(workbench, str(checkout.root), changed_since="origin/main").left_out == ("web.build", "web.test")


def test_an_unknown_base_is_answered_with_the_names_there_are(
    forge: Forge, workbench: Workbench, tmp_path: Path
) -> None:
    checkout = checkouts.github_pull_request_with_history(forge, tmp_path / "checkout")
    with refused(ErrorCode.NOT_FOUND) as caught:
        run(workbench, str(checkout.root), changed_since="main")
    assert "origin/main" in caught.value.hint
    with refused(ErrorCode.NOT_FOUND) as caught:
        run(workbench, str(checkout.root), changed_since="origin/mian")
    assert caught.value.details == "Known: HEAD, v1\nBranches of its remotes: origin/main, origin/topic, pull/7/merge"


def test_a_clone_that_fails_leaves_nothing(forge: Forge, workbench: Workbench, tmp_path: Path) -> None:
    """Each repeated command left another clone, which `gc` would keep."""
    checkout = forge.clone(tmp_path / "checkout")
    (checkout.git_dir / "refs/heads/main").write_text(f"{checkout.oid('HEAD^{tree}')}\n")  # not a commit
    for _ in range(2):
        with refused(ErrorCode.NOT_FOUND, ErrorCode.INTERNAL, ErrorCode.UNSAFE_REPOSITORY, ErrorCode.REMOTE_BROKEN):
            run(workbench, str(checkout.root))
    clones = workbench.home / "repositories" / "clones"
    assert sorted(path.name for path in clones.iterdir()) == []
    assert workbench.collect().leftovers == ()


@pytest.mark.parametrize(
    "state",
    [pytest.param(one, marks=() if one in DELIVERED else pytest.mark.thorough) for one in CHECKOUTS],
    ids=lambda state: state.__name__,
)
def test_a_task_is_made_committed_and_pushed_there(
    forge: Forge, workbench: Workbench, tmp_path: Path, state: Checkout
) -> None:
    checkout = state(forge, tmp_path / "checkout")
    repo_id = workbench.clone(str(checkout.root)).repository.id
    base = checkout.oid("HEAD")
    task = workbench.create_task(repo_id, "a change")
    assert task.base_commit == base
    workbench.write_file(task.id, "new", "x\n", None)
    commit = workbench.commit(task.id, "A change").commit

    branch = workbench.push(task.id).branch

    assert checkout.oid(f"refs/heads/{branch}") == commit
    assert checkout.oid(f"{commit}~1") == base
    checkout.git("fsck", "--strict", "--connectivity-only")
    assert run(workbench, str(checkout.root)).commit == base, "the branch of a task is no default branch"
    workbench.write_file(task.id, "newer", "x\n", None)
    workbench.commit(task.id, "Another one")
    workbench.push(task.id)
    assert workbench.sync_task(task.id).head_commit == workbench.task(task.id).head_commit


def test_a_task_whose_checkout_lost_its_base_says_what_to_do(
    forge: Forge, workbench: Workbench, tmp_path: Path
) -> None:
    """A runner that keeps its home makes the next checkout in the same folder."""
    place = tmp_path / "checkout"
    repo_id = workbench.clone(str(checkouts.clone_one_deep(forge, place).root)).repository.id
    task = workbench.create_task(repo_id, "a change")
    workbench.write_file(task.id, "new", "x\n", None)
    workbench.commit(task.id, "A change")
    place.rename(tmp_path / "old")
    forge.upstream.write("later", b"x\n")
    forge.upstream.commit()
    again = checkouts.clone_one_deep(forge, place)

    workbench.update_repository(repo_id)
    for action in (workbench.push, workbench.sync_task):
        with refused(ErrorCode.CONFLICT, ErrorCode.PUSH_REJECTED) as caught:
            action(task.id)
        assert "git fetch --unshallow" in caught.value.hint, caught.value
    again.git("fetch", "--quiet", "--unshallow")
    workbench.update_repository(repo_id)
    assert workbench.sync_task(task.id).onto == again.oid("HEAD")
    workbench.push(task.id)
    again.git("fsck", "--strict", "--connectivity-only")


def test_a_range_to_bisect_that_is_cut_is_not_searched(forge: Forge, workbench: Workbench, tmp_path: Path) -> None:
    """topic is before the merge, but the commits of main between their fork and the merge are not all there."""
    place = tmp_path / "checkout"
    checkout = forge.fetch(place, "--depth=2", "origin", f"+{forge.merge}:refs/remotes/pull/7/merge")
    checkout.git("checkout", "--quiet", "--detach", forge.merge)
    repo_id = workbench.clone(str(place)).repository.id
    with refused(ErrorCode.CONFLICT) as caught:
        workbench.bisect(repo_id, BisectQuery(good=forge.topic, check_id="test"))
    assert "git fetch --unshallow" in caught.value.hint
