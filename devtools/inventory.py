"""What lies in a home that no open task needs, found without the product's own finders: the oracle of `gc`."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sandbox.engine.connection import DockerEngine
from sandbox.store.home import Home

_TEMPORARY = (
    "**/.*.tmp",
    "repositories/.overlay-probe-*",
    "repositories/clones/.*.incoming",
    "repositories/clones/*/**/tmp_*",
    "repositories/clones/*/fast_import_crash_*",
    "repositories/clones/*/looks/*",
    "repositories/clones/*/**/*.lock",
    "repositories/**/.*.removed-*",
    "repositories/pristine/*/.*",
    "repositories/disks/.*",
    "repositories/tasks/*.guest",
    "repositories/tasks/*.making",
    "repositories/rooms/*",
    "repositories/presence/*",
    "repositories/stops/*",
    "**/.workspace-*",
    "repositories/turns/[rw]-*",
    "repositories/layers/**/.sandbox-write-*",
    "repositories/worktrees/**/.sandbox-write-*",
)


def left_behind(home: Path, engine: DockerEngine | None = None) -> list[str]:
    """One line for each thing that should not be there while no command runs; empty when all is well."""
    found = [f"file {path.relative_to(home)}" for path in _temporary(home)]
    found += [f"mount {path}" for path in _mounts(home)]
    found += [f"lock {path.name} is held" for path in _held(home)]
    found += _worktrees(home)
    found += [
        f"report folder {p.name}" for p in (home / "repositories" / "reports").glob("*") if p.name not in _open(home)
    ]
    found += [f"process {line}" for line in processes(home)]
    found += _refs(home)
    found += [
        f"spare {name} that can be taken over by none"
        for name, task in records(home).items()
        if task["status"] == "spare" and not (home / f"repositories/tasks/{name}.spare").exists()
    ]
    return found + (_containers(home, engine) if engine else [])


def records(home: Path) -> dict[str, dict[str, Any]]:
    """Task records by id."""
    return {p.stem: json.loads(p.read_bytes()) for p in (home / "repositories" / "tasks").glob("task-*.json")}


def _open(home: Path) -> dict[str, dict[str, Any]]:
    return {name: task for name, task in records(home).items() if task["status"] != "closed"}


def _temporary(home: Path) -> list[Path]:
    inside = [home / "repositories" / kind for kind in ("worktrees", "layers")]
    found = {path for pattern in _TEMPORARY for path in home.glob(pattern)}
    return sorted(p for p in found if _is_ours(p.name) or not any(p.is_relative_to(folder) for folder in inside))


def _is_ours(name: str) -> bool:
    """Among names that a task's repository may hold as well."""
    return name.startswith(".sandbox-write-") or ".removed-" in name


def _mounts(home: Path) -> list[str]:
    """Mounts below the home but those of open tasks."""
    repositories, tasks = home / "repositories", _open(home).items()
    due = {str(repositories / "worktrees" / t["repo_id"] / name) for name, t in tasks}
    due |= {str(repositories / "layers" / t["repo_id"] / name / "disk") for name, t in tasks}
    points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return sorted(p for p in points if p.startswith(f"{home}/") and p not in due)


def _held(home: Path) -> Iterator[Path]:
    for path in sorted((home / "repositories" / "locks").glob("*.lock")):
        fd = os.open(path, os.O_RDWR)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield path
        finally:
            os.close(fd)


def _worktrees(home: Path) -> list[str]:
    """Worktrees or layers of no task, and open tasks without one."""
    found = {p.name for kind in ("worktrees", "layers") for p in (home / "repositories" / kind).glob("*/*")}
    orphans = [f"worktree {name} without a task" for name in sorted(found - records(home).keys())]
    return orphans + [f"task {name} without a worktree" for name in sorted(_open(home).keys() - found)]


def processes(home: Path) -> Iterator[str]:
    """Programs with the home in their command line."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().decode(errors="replace").replace("\0", " ")
        except OSError:
            continue
        if f"{home}/" in line and path.parent.name != str(os.getpid()):
            yield line


def _refs(home: Path) -> list[str]:
    """Branches and kept states of no task; branches that are elsewhere than their task says."""
    known = records(home)
    found = []
    for clone in sorted((home / "repositories" / "clones").glob("[!.]*/")):
        argv = ["git", f"--git-dir={clone}", "for-each-ref", "--format=%(objectname) %(refname)"]
        listed = subprocess.run([*argv, "refs/heads/", "refs/sandbox/"], check=True, capture_output=True, text=True)  # noqa: S603 - fixed argv
        for line in listed.stdout.splitlines():
            oid, name = line.split()
            owner = name.split("/")[2]
            if name.startswith("refs/heads/"):
                owner = next((key for key, one in known.items() if name == f"refs/heads/{one['branch']}"), "")
            task = known.get(owner)
            if task is None:
                found.append(f"ref {name} without a task")
            elif name.startswith("refs/heads/") and oid != task["head_commit"]:
                found.append(f"ref {name} is not where its task is")
    return found


def _containers(home: Path, engine: DockerEngine) -> list[str]:
    """Containers of this home but living ones of open tasks."""
    instance = home / "instance"
    if not instance.exists():
        return []
    label = f"space.sandbox.instance={Home(home).instance_id}"
    listed = engine.api.containers(all=True, filters={"label": label})
    due = [c for c in listed if c["Labels"].get("space.sandbox.task") in _open(home) and _is_kept(c)]
    return [f"container {c['Names'][0]}" for c in listed if c not in due]


def _is_kept(container: dict[str, Any]) -> bool:
    """A task's own container, which waits for its next check."""
    return container["State"] == "running" and "space.sandbox.run" not in container["Labels"]
