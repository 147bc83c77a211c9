"""First steps with a repository: clone, context envelope, fetch (also by 100 callers at once) and map.

The floor is plain git with the same transfer or listing; for the map, ctags alone in a container of the same image and
limits, without output. The remote is a local directory, so that no network time hides our overhead.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import docker
from docker.types import Mount

from benchmarks._harness import ROUNDS, Rounds, compare, judge, timed
from benchmarks._repositories import make, place_bundled, source
from sandbox import Workbench
from sandbox.context.envelope import build_envelope
from sandbox.git.blobs import read_blobs
from sandbox.git.objects import list_tree, tree_of
from sandbox.git.process import Git

CALLERS = 100
MOST = {"big": 3}
"""Maximum rounds where one takes most of a minute."""


def measure(size: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        remote = make(folder / "remote.git", size, source)
        _clone(size, folder, remote)
        with Workbench(folder / "home", allow_file=True, environ=os.environ) as workbench:
            repo_id = workbench.clone(str(remote)).repository.id
            cached = folder / "home" / "repositories" / "clones" / repo_id
            _envelope(size, cached)
            _fetch(size, workbench, remote, cached)
            _maps(size, workbench, repo_id, workbench.fetch(str(remote)).local_path)
        bundled = make(folder / "bundled.git", size, source, place_bundled)
        with Workbench(folder / "home", allow_file=True, environ=os.environ) as workbench:
            repo_id = workbench.clone(str(bundled)).repository.id
            _first_map(
                f"{size}, six of seven files of others", workbench, repo_id, workbench.fetch(str(bundled)).local_path
            )


def _clone(size: str, folder: Path, remote: Path) -> None:
    numbers = itertools.count()

    def clone() -> None:
        with Workbench(folder / f"new{next(numbers)}", allow_file=True, environ=os.environ) as workbench:
            workbench.clone(str(remote))

    def plain() -> None:
        target = str(folder / f"new{next(numbers)}.git")
        subprocess.run(["git", "clone", "-q", "--bare", f"file://{remote}", target], check=True)

    def tidy() -> None:
        for made in folder.glob("new*"):
            shutil.rmtree(made)

    compare(
        f"clone and envelope, {size}", clone, plain,
        floor_name="git clone --bare", target="-", rounds=Rounds(MOST.get(size, 15), tidy),
    )  # fmt: skip


def _envelope(size: str, cached: Path) -> None:
    git, commit = Git(cached), _commit(cached)

    def product() -> None:
        build_envelope(list_tree(git, tree_of(git, commit)), lambda oids: list(read_blobs(git, oids)))

    def floor() -> None:
        _git(cached, "ls-tree", "-r", "-l", commit)
        _git(cached, "cat-file", "blob", f"{commit}:README.md")

    compare(f"envelope of a commit, {size}", product, floor, floor_name="git ls-tree -r -l, cat-file", target="-")


def _fetch(size: str, workbench: Workbench, remote: Path, cached: Path) -> None:
    def one() -> None:
        workbench.fetch(str(remote))

    def plain() -> None:
        _git(cached, "fetch", "-q", f"file://{remote}")

    def crowd() -> None:
        with ThreadPoolExecutor(CALLERS) as pool:
            list(pool.map(lambda _: one(), range(CALLERS)))

    def plain_crowd() -> None:
        with ThreadPoolExecutor(CALLERS) as pool:
            list(pool.map(lambda _: plain(), range(CALLERS)))

    compare(f"fetch again and envelope, {size}", one, plain, floor_name="git fetch, nothing new", target="2x")
    rounds = Rounds(MOST.get(size, 15))
    name = f"{CALLERS} concurrent fetches, {size}"
    compare(name, crowd, one, floor_name="one fetch", target="2x", rounds=rounds)
    compare(
        f"{name}, beside git", crowd, plain_crowd,
        floor_name=f"{CALLERS} times git fetch, nothing new", target="-", rounds=rounds,
    )  # fmt: skip


def _maps(size: str, workbench: Workbench, repo_id: str, tree: Path) -> None:
    _first_map(size, workbench, repo_id, tree)
    cached = workbench.home / "repositories" / "clones" / repo_id
    workbench.map(repo_id)

    def list_files() -> None:
        _git(cached, "ls-tree", "-r", "-l", _commit(cached))

    compare(
        f"map again, {size}", lambda: workbench.map(repo_id), list_files,
        floor_name="git ls-tree -r -l", target="100 ms",
    )  # fmt: skip
    numbers = itertools.count()

    def edited() -> str:
        task = workbench.create_task(repo_id, "edit", fetch=False).id
        text = f"def added_{next(numbers)}():\n    pass\n"
        workbench.write_file(task, "d0/added.py", text, None)
        workbench.commit(task, "edit")
        return task

    pairs = []
    for _ in range(ROUNDS):
        task = edited()
        pairs.append((timed(lambda: workbench.map(task)), timed(list_files)))  # noqa: B023 - called at once
        workbench.close_task(task, delete_worktree=True, discard=True)
    judge(f"map after an edit, {size}", pairs, floor_name="git ls-tree -r -l", target="-")


def _first_map(size: str, workbench: Workbench, repo_id: str, tree: Path) -> None:
    """Nothing is kept of the repository."""
    kept = workbench.home / "repositories" / "pristine" / repo_id

    def first() -> None:
        for path in kept.glob("*.index"):
            path.unlink()
        workbench.map(repo_id)

    api = docker.APIClient(timeout=300)
    host = api.create_host_config(
        network_mode="none",
        mem_limit=1024**3,
        nano_cpus=10**9,
        mounts=[Mount("/workspace", str(tree), type="bind", read_only=True)],
    )
    argv = ["ctags", "--options=NONE", "--recurse", "--links=no", "--sort=no", "-f", "/dev/null", "."]

    def floor() -> None:
        made = api.create_container("space-sandbox/base:latest", argv, host_config=host, working_dir="/workspace")
        try:
            api.start(made["Id"])
            assert api.wait(made["Id"])["StatusCode"] == 0
        finally:
            api.remove_container(made["Id"], force=True)

    compare(
        f"map, {size}", first, floor,
        floor_name="ctags in a container", target="1.5x", rounds=Rounds(MOST.get(size, 15)),
    )  # fmt: skip
    api.close()


def _commit(cached: Path) -> str:
    found = subprocess.run(
        ["git", f"--git-dir={cached}", "rev-parse", "refs/remotes/origin/main"], check=True, capture_output=True
    )
    return found.stdout.decode().strip()


def _git(git_dir: Path, *arguments: str) -> None:
    subprocess.run(["git", f"--git-dir={git_dir}", *arguments], check=True, stdout=subprocess.DEVNULL)


def main() -> None:
    for size in sys.argv[1:] or ["small"]:
        measure(size)


if __name__ == "__main__":
    main()
