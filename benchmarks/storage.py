"""S37: a home under a small limit on a disk of its own, for a long time: tasks, runs, base commits, verdicts.

Nothing that exists only here is lost, the home stays below its limit, and the disk never gets full, although more is
written than it holds.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

from sandbox.files.disk_images import DiskSize, create_disk, ensure_template, mount_disk
from sandbox.files.overlay_mounts import unmount_overlay
from sandbox.models import CheckRun, Limits, Task, Usage, Verdict
from sandbox.store.home import Home
from sandbox.store.records import save_run
from sandbox.workbench import Workbench

MIB = 1024**2
_DAYS_AGO = 3 * 86_400.0


@dataclass(frozen=True)
class Scale:
    """How much happens. Each of `rounds` has a new base commit, and its share of `tasks`, which share `runs`."""

    tasks: int = 200
    runs: int = 1000
    rounds: int = 20
    base_bytes: int = 2 * MIB
    log_bytes: int = 512 * 1024
    disk_bytes: int = 448 * MIB
    max_bytes: int = 320 * MIB


@dataclass
class Work:
    """What exists only in the home: unsaved files, snapshots and commits, with their content by task."""

    unsaved: dict[str, str] = field(default_factory=dict)
    commits: dict[str, str] = field(default_factory=dict)
    snapshots: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """`written`: bytes that were written in all, about. `held`: by the home after each round."""

    written: int
    held: list[int]
    work: Work
    seconds: list[float]


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[Path]:
    """A file system of this size on a loop device. Raises: OSError where none can be mounted."""
    place, image = folder / "disk", folder / "disk.img"
    place.mkdir()
    create_disk(image, ensure_template(folder / "templates", DiskSize(size, 40_000)))
    mount_disk(image, place, is_new=True)
    try:
        yield place
    finally:
        unmount_overlay(place)


def open_home(home: Path, scale: Scale) -> Workbench:
    """A controller with the limit, and with files of tasks counted instead of on a disk of their own."""
    settings = {
        "storage": {"max_bytes": scale.max_bytes},
        "disk": {"min_free_bytes": MIB, "min_free_files": 100, "reserve_bytes": MIB, "reserve_files": 50},
        "workspaces": {"disk": "watch"},
    }
    environ = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]}
    return Workbench(home, environ=environ, settings=settings, allow_file=True)


def use_home(bench: Workbench, upstream: Path, scale: Scale, keep: Callable[[], object]) -> Outcome:
    """Work for a long time; `keep` is called after each round, as the daemon's timer does."""
    work, held, seconds, written = Work(), list[int](), list[float](), 0
    repo_id, home, number = bench.clone(str(upstream)).repository.id, Home(bench.home), count()
    for turn in range(scale.rounds):
        commit(upstream, os.urandom(scale.base_bytes))
        bench.update_repository(repo_id)
        for _ in range(scale.tasks // scale.rounds):
            task = bench.create_task(repo_id, f"task of round {turn}")
            for _ in range(scale.runs // scale.tasks):
                save_old_run(home, task, next(number), os.urandom(scale.log_bytes))
            use_task(bench, task, turn, work)
        written += 2 * scale.base_bytes + scale.runs // scale.rounds * scale.log_bytes
        make_old(home)
        began_at = time.monotonic()
        keep()
        seconds.append(time.monotonic() - began_at)
        held.append(bench.storage().bytes)
    return Outcome(written, held, work, seconds)


def use_task(bench: Workbench, task: Task, turn: int, work: Work) -> None:
    """Edit it. Half of the tasks are committed and closed, a quarter has a snapshot; no commit is ever pushed."""
    content = f"only here: {task.id}\n"
    bench.write_file(task.id, "work", content, None)
    is_committed = len(work.commits) <= len(work.unsaved)
    if is_committed:
        bench.commit(task.id, content)
        bench.close_task(task.id, delete_worktree=True)
        work.commits[task.branch] = content
    else:
        work.unsaved[task.id] = content
    if not is_committed and len(work.snapshots) < len(work.unsaved) / 2:
        bench.snapshot(task.id, f"of round {turn}")
        work.snapshots[task.id] = f"of round {turn}"


def save_old_run(home: Home, task: Task, number: int, output: bytes) -> None:
    """A run of three days ago, with its output."""
    run = CheckRun(
        run_id=f"run-{number:032x}", check_id="test", task_id=task.id, verdict=Verdict.PASSED, exit_code=0, signal=None,
        started_at=datetime.now(UTC), wall_time_s=1.0, usage=Usage(limits=Limits()), stdout_tail="", stderr_tail="",
        stdout_bytes=len(output), stderr_bytes=0, truncated=False, tree="a" * 40, clean_room=False, cached=False,
        image_digest="sha256:" + "b" * 64, runtime="runc", report=None,
    )  # fmt: skip
    home.logs(task.id).mkdir(exist_ok=True)
    (home.logs(task.id) / f"{run.run_id}.stdout").write_bytes(output)
    save_run(home, task.id, run)


def make_old(home: Home) -> None:
    """Let three days pass, for results and for what was last used."""
    then = time.time() - _DAYS_AGO
    for pattern in ("logs/*/*", "pristine/*/*"):
        for path in home.repositories.glob(pattern):
            os.utime(path, (then, then))


def commit(upstream: Path, content: bytes) -> None:
    """A commit with one large file, which does not compress, and forgets the one before."""
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    (upstream / "large").write_bytes(content)
    for words in (("add", "."), (*identity, "commit", "--quiet", "--amend", "--message=base")):
        subprocess.run(["git", "-C", upstream, *words], check=True, capture_output=True, timeout=60)


def list_lost(bench: Workbench, work: Work) -> list[str]:
    """What can no longer be read of the work that exists only here."""
    lost = [task_id for task_id, content in work.unsaved.items() if bench.read_file(task_id, "work").content != content]
    for task_id, label in work.snapshots.items():
        if label not in {one.label for one in bench.snapshots(task_id)}:
            lost.append(f"{task_id} {label}")
    (repository,) = bench.repositories()
    git_dir = Home(bench.home).clone(repository.id)
    for branch, content in work.commits.items():
        command = ["git", f"--git-dir={git_dir}", "show", f"refs/heads/{branch}:work"]
        shown = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        if shown.stdout != content:
            lost.append(branch)
    return lost


def main() -> None:
    scale = Scale()
    with tempfile.TemporaryDirectory() as folder:
        upstream = Path(folder) / "upstream"
        subprocess.run(["git", "init", "--quiet", "--initial-branch=main", upstream], check=True, timeout=60)
        identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        first = ["git", "-C", str(upstream), *identity, "commit", "--quiet", "--allow-empty", "--message=base"]
        subprocess.run(first, check=True, timeout=60)
        with small_disk(Path(folder), scale.disk_bytes) as disk, open_home(disk / "home", scale) as bench:
            found = use_home(bench, upstream, scale, bench.keep_to_limits)
            lost = list_lost(bench, found.work)
            for task_id in found.work.unsaved:
                bench.close_task(task_id, delete_worktree=True, discard=True)
    print(
        f"S37 {scale.tasks} tasks, {scale.runs} runs: {found.written / MIB:.0f} MiB written on a disk of "
        f"{scale.disk_bytes / MIB:.0f} MiB; held {max(found.held) / MIB:.0f} MiB at most, "
        f"{scale.max_bytes / MIB:.0f} MiB allowed; {len(lost)} lost; "
        f"keeping to the limit took {max(found.seconds):.2f} s at most",
        flush=True,
    )


if __name__ == "__main__":
    main()
