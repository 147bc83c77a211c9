"""Peak memory of the controller and its git commands while a repository or a guest attacks it (THREATS S09).

`python -m benchmarks.memory [MIB] [ATTACK ...]`: the size of the large files, 511 by default, and attacks by name, all
by default. Each attack runs in a process of its own, prepared as a server is, and a sampler adds the resident memory of
that process and of all its children every few milliseconds. The floor is the target: 300 MB for one request, 600 MB for
sixteen at once. No container is started.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from benchmarks._harness import judge
from benchmarks._memory_requests import REQUEST_ATTACKS
from benchmarks._memory_site import ALL, MIB, ONE, THREADS, Attack, Site, attempt, run_at_once
from devtools.delta_bombs import make_delta_bomb
from sandbox import Workbench
from sandbox.memory import prepare_server

FETCHES = 6
FETCHED_FILE = 100 * MIB  # two versions fit into the memory of a fetch
FETCHED_OBJECTS = 560_000  # the most over a local path
FETCHED_REFS = 99_000  # 100,000 are too many
PUSHED_FILE = 480 * MIB  # a commit has at most 512 MiB of changes
NEW_FILES = 450_000
MANY_FILES = 74_000  # 75,000 are too many
MANY_TASKS = 5  # no multiple of the kinds of looks: each task gets all of them
LONG_NAMES = 50_000  # 12 MiB of paths
_PAUSE_S = 0.003
_PAGE = os.sysconf("SC_PAGE_SIZE")


# --- the attacks: each prepares itself in a home, then runs in a process of its own


def prepare_deltas(site: Site) -> list[str]:
    return [site.clone("deltas", site.size, [b"x", b"y"])]


def prepare_large_file(site: Site) -> list[str]:
    return [site.clone("large", site.size, [])]


def prepare_new_file(site: Site) -> list[str]:
    task = site.new_task()
    site.write_large(task)
    return [task]


def prepare_new_files(site: Site, count: int, name: str = "file-{}") -> list[str]:
    """A task with new files of one line each, 1,000 in a directory."""
    task = site.new_task()
    root = site.root_of(task)
    for start in range(0, count, 1000):
        folder = root / f"d{start}"
        folder.mkdir()
        for number in range(start, min(start + 1000, count)):
            (folder / name.format(number)).write_text(f"{number}\n")
    return [task]


def prepare_too_many_files(site: Site) -> list[str]:
    return prepare_new_files(site, NEW_FILES)


def prepare_many_files(site: Site) -> list[str]:
    return prepare_new_files(site, MANY_FILES)


def prepare_long_names(site: Site) -> list[str]:
    return prepare_new_files(site, LONG_NAMES, "{:0>240}")


def prepare_fetch(site: Site) -> list[str]:
    """A remote whose files are differences of a large one, which was never fetched."""
    return [_make_remote(site, 0)]


def prepare_fetches(site: Site) -> list[str]:
    return [_make_remote(site, number) for number in range(FETCHES)]


def _make_remote(site: Site, number: int, size: int = 0) -> str:
    remote = site.folder / f"bomb-{number}.git"
    make_delta_bomb(remote, size or site.size * 3 // 5, [b"x%d" % ending for ending in range(6)])
    return str(remote)


def prepare_fetch_that_fits(site: Site) -> list[str]:
    """As `fetch`, but both versions of a file just fit, so that they are unpacked."""
    return [_make_remote(site, 0, min(site.size, FETCHED_FILE))]


def prepare_fetches_that_fit(site: Site) -> list[str]:
    return [_make_remote(site, number, min(site.size, FETCHED_FILE)) for number in range(FETCHES)]


def prepare_objects(site: Site) -> list[str]:
    """A remote with as many objects as fit."""
    remote = site.folder / "objects.git"
    subprocess.run(["git", "init", "-q", "--bare", "-b", "main", remote], check=True)
    with subprocess.Popen(["git", "fast-import", "--quiet", "--depth=0"], cwd=remote, stdin=subprocess.PIPE) as git:
        assert git.stdin is not None
        git.stdin.write(b"commit refs/heads/main\ncommitter a <a@example.com> 1700000000 +0000\ndata 1\nx\n")
        for number in range(FETCHED_OBJECTS):
            text = b"%d" % number
            path = b"d%d/f%d" % (number // 1000, number)
            git.stdin.write(b"M 100644 inline %s\ndata %d\n%s\n" % (path, len(text), text))
    return [str(remote)]


def prepare_refs(site: Site) -> list[str]:
    """A remote with as many branches as are accepted."""
    bomb = make_delta_bomb(site.folder / "refs.git", 100, [])
    commit = (bomb.git_dir / "refs" / "heads" / "main").read_text().strip()
    names = (f"{commit} refs/heads/branch-{number:060}\n" for number in range(FETCHED_REFS))
    (bomb.git_dir / "packed-refs").write_text("".join(names))
    return [str(bomb.git_dir)]


def prepare_worst_mix(site: Site) -> list[str]:
    """Fetches that take all they may, beside the looks and checkouts of `mix`."""
    remotes = prepare_fetches_that_fit(site)
    return [*remotes, *prepare_mix(site)[: 2 + THREADS - FETCHES - 4]]


def prepare_push(site: Site) -> list[str]:
    """A commit with a large file, and with two that are worth comparing."""
    task = site.new_task()
    site.write_large(task, PUSHED_FILE)
    root = site.root_of(task)
    for name in ("first", "second"):
        with (root / name).open("wb") as file:
            for number in range(8 * MIB // 64):
                file.write(hashlib.sha512(b"%d" % number).digest())
            file.write(name.encode())
    site.workbench.commit(task, "large files", ["large", "first", "second"])
    return [task]


def prepare_mix(site: Site) -> list[str]:
    return [*prepare_deltas(site), *prepare_large_file(site), *(prepare_new_file(site)[0] for _ in range(THREADS - 4))]


def prepare_many_mix(site: Site) -> list[str]:
    return [prepare_many_files(site)[0] for _ in range(MANY_TASKS)]


def create(workbench: Workbench, words: list[str]) -> None:
    attempt(lambda: workbench.create_task(words[0]))


def status(workbench: Workbench, words: list[str]) -> None:
    attempt(lambda: workbench.status(words[0]))


def diff(workbench: Workbench, words: list[str]) -> None:
    attempt(lambda: workbench.diff(words[0]))


def snapshot(workbench: Workbench, words: list[str]) -> None:
    attempt(lambda: workbench.snapshot(words[0]))


def fetch(workbench: Workbench, words: list[str]) -> None:
    attempt(lambda: workbench.clone(words[0]))


def fetches(workbench: Workbench, words: list[str]) -> None:
    with ThreadPoolExecutor(len(words)) as pool:
        list(pool.map(lambda url: fetch(workbench, [url]), words))


def push(workbench: Workbench, words: list[str]) -> None:
    attempt(lambda: workbench.push(words[0]))


LOOKS = (status, diff, snapshot)


def mix(workbench: Workbench, words: list[str]) -> None:
    """Sixteen requests at once: checkouts of both repositories, and looks at tasks with a new large file."""
    work = [(create, words[0]), (create, words[1]), (create, words[0]), (create, words[1])]
    run_at_once(workbench, work + [(LOOKS[number % 3], task) for number, task in enumerate(words[2:])])


def many_mix(workbench: Workbench, words: list[str]) -> None:
    """Sixteen looks at once, each at many files."""
    run_at_once(workbench, [(LOOKS[number % 3], words[number % len(words)]) for number in range(THREADS)])


def worst_mix(workbench: Workbench, words: list[str]) -> None:
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda part: part(), (lambda: fetches(workbench, words[:FETCHES]),
                                            lambda: mix(workbench, words[FETCHES:]))))  # fmt: skip


ATTACKS: dict[str, Attack] = {
    "deltas": (prepare_deltas, create, ONE),
    "checkout": (prepare_large_file, create, ONE),
    "status": (prepare_new_file, status, ONE),
    "diff": (prepare_new_file, diff, ONE),
    "snapshot": (prepare_new_file, snapshot, ONE),
    "new-files": (prepare_too_many_files, status, ONE),
    "many-status": (prepare_many_files, status, ONE),
    "many-diff": (prepare_many_files, diff, ONE),
    "many-snapshot": (prepare_many_files, snapshot, ONE),
    "names-status": (prepare_long_names, status, ONE),
    "names-diff": (prepare_long_names, diff, ONE),
    "names-snapshot": (prepare_long_names, snapshot, ONE),
    "fetch": (prepare_fetch, fetch, ONE),
    "fetch-fits": (prepare_fetch_that_fits, fetch, ONE),
    "fetch-objects": (prepare_objects, fetch, ONE),
    "fetch-refs": (prepare_refs, fetch, ONE),
    "push": (prepare_push, push, ONE),
    "fetches": (prepare_fetches, fetches, ALL),
    "fetches-fit": (prepare_fetches_that_fit, fetches, ALL),
    "mix": (prepare_mix, mix, ALL),
    "worst-mix": (prepare_worst_mix, worst_mix, ALL),
    "many-mix": (prepare_many_mix, many_mix, ALL),
    **REQUEST_ATTACKS,
}


# --- measuring


def tree_of(pid: int, parent_words: bytes = b"") -> Iterator[int]:
    """A process and all its descendants, but one that has not started its program yet: it still shares the memory of
    its parent, and has its command line.
    """
    with suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
        if words != parent_words:
            yield pid
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield from tree_of(int(child), words)


def resident_bytes(root: int) -> int:
    """Resident memory of a process and its descendants."""
    total = 0
    for pid in tree_of(root):
        with suppress(OSError):
            total += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    return total


def peak_of(command: list[str]) -> int:
    """The highest sum in bytes while a command runs. Raises: CalledProcessError."""
    process = subprocess.Popen(command)
    highest = 0
    while process.poll() is None:
        with suppress(OSError):
            highest = max(highest, resident_bytes(process.pid))
        time.sleep(_PAUSE_S)
    if process.returncode != 0:
        raise subprocess.CalledProcessError(process.returncode, command)
    return highest


def measure(name: str, size_mib: int) -> None:
    prepare, _, target = ATTACKS[name]
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as folder:
        home = Path(folder) / "home"
        generous = {"remotes": {"max_fetch_memory_bytes": 2048 * MIB}}  # what is attacked is fetched first
        with Workbench(home, allow_file=True, environ=os.environ, settings=generous) as workbench:
            words = prepare(Site(Path(folder), size_mib * MIB, workbench))
        try:
            peak = peak_of([sys.executable, "-m", "benchmarks.memory", "--attack", name, str(home), *words])
            judge(f"memory, {name}", [(peak / 10**6, target)], floor_name="the limit", target="1x", unit="MB")
        finally:
            with Workbench(home, allow_file=True, environ=os.environ) as workbench:
                for task in workbench.tasks():
                    workbench.close_task(task.id, delete_worktree=True, discard=True)


def main() -> None:
    if sys.argv[1:2] == ["--attack"]:
        name, home, *words = sys.argv[2:]
        prepare_server()
        with Workbench(Path(home), allow_file=True, environ=os.environ) as workbench:
            ATTACKS[name][1](workbench, words)
        return
    sizes = [int(word) for word in sys.argv[1:] if word.isdigit()]
    chosen = [word for word in sys.argv[1:] if word in ATTACKS] or list(ATTACKS)
    for name in chosen:
        measure(name, sizes[0] if sizes else 511)


if __name__ == "__main__":
    main()
