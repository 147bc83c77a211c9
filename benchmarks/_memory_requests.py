"""Attacks of `benchmarks.memory` on single requests: patches, test reports, journals, searches and reads of files."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks._memory_site import ALL, MIB, ONE, THREADS, Attack, Site, Words, attempt
from sandbox import Workbench
from sandbox.checks.report import read_report
from sandbox.models import SearchQuery, TaskOptions

EXPECTED_FILES = 150  # of 10 MiB each
EXPECTED_FITS = 6  # the files of one edit have at most 64 MiB together
REPORTED_TESTS = 200_000  # a report has at most 250,000 elements and 10 MiB
JOURNAL_ENTRIES = 300_000
SEARCHED_FILES = 40  # of 10 MiB; larger ones are not searched
LARGE_NAME = "f000"  # of `make_delta_bomb`
_LINE = b"x" * 1023 + b"\n"


def prepare_hashes(site: Site, count: int = EXPECTED_FILES) -> Words:
    """A task with files of 10 MiB, how many they are, and their hash."""
    task = site.new_task()
    content = _LINE * (10 * MIB // len(_LINE))
    for number in range(count):
        (site.root_of(task) / f"file-{number}").write_bytes(content)
    return [task, str(count), f"sha256:{hashlib.sha256(content).hexdigest()}"]


def prepare_hashes_that_fit(site: Site) -> Words:
    return prepare_hashes(site, EXPECTED_FITS)


def prepare_report(site: Site) -> Words:
    """Two reports of as many tests as are read."""
    folder = site.folder / "report"
    folder.mkdir()
    cases = "".join(f'<testcase name="test_{number:06}"/>' for number in range(REPORTED_TESTS))
    for name in ("a.xml", "b.xml"):
        (folder / name).write_text(f'<testsuite tests="{REPORTED_TESTS}">{cases}</testsuite>')
    return [str(folder)]


def prepare_journal(site: Site) -> Words:
    """The journal of a task with the same entry again and again."""
    task = site.new_task()
    journal = next(site.folder.glob(f"home/**/{task}.jsonl"))
    line = journal.read_bytes().splitlines(keepends=True)[-1]
    with journal.open("ab") as file:
        for _ in range(JOURNAL_ENTRIES // 1000):
            file.write(line * 1000)
    return [task]


def prepare_search(site: Site) -> Words:
    """New files in which every character of every line matches."""
    task = site.new_task()
    for number in range(SEARCHED_FILES):
        (site.root_of(task) / f"file-{number}").write_bytes(_LINE * (10 * MIB // len(_LINE) - number))
    return [task]


def prepare_large_file(site: Site) -> Words:
    task = site.new_task()
    site.write_large(task)
    return [task]


def prepare_tree_task(site: Site) -> Words:
    """A task without a worktree, of a repository with a large file."""
    repository = site.clone("large", site.size, [])
    task = site.workbench.create_task(repository, options=TaskOptions(workspace_kind="tree"))
    return [task.id, repository]


def prepare_read_mix(site: Site) -> Words:
    return [*prepare_large_file(site), *prepare_tree_task(site)]


def hashes(workbench: Workbench, words: Words) -> None:
    """A patch of the first line of each file."""
    names = [f"file-{number}" for number in range(int(words[1]))]
    patch = b"".join(b"--- a/%b\n+++ b/%b\n@@ -1 +1 @@\n-%b+y\n" % (n, n, _LINE) for n in map(str.encode, names))
    attempt(lambda: workbench.apply_patch(words[0], patch, dict.fromkeys(names, words[2])))


def report(_: Workbench, words: Words) -> None:
    assert read_report(Path(words[0])) is not None


def journal(workbench: Workbench, words: Words) -> None:
    assert len(workbench.log(words[0])) == 10_000


def search(workbench: Workbench, words: Words) -> None:
    query = SearchQuery(pattern="x+", regex=True, max_results=10_000, timeout_s=60)
    attempt(lambda: workbench.search(words[0], query))


def read(workbench: Workbench, words: Words) -> None:
    attempt(lambda: workbench.read_file(words[0], "large"))


def read_tree(workbench: Workbench, words: Words) -> None:
    attempt(lambda: workbench.read_file(words[0], LARGE_NAME))


def read_commit(workbench: Workbench, words: Words) -> None:
    attempt(lambda: workbench.read_committed_file(words[1], LARGE_NAME))


def read_mix(workbench: Workbench, words: Words) -> None:
    """Sixteen reads at once, of each kind."""
    kinds = ((read, words), (read_tree, words[1:]), (read_commit, words[1:]))
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(lambda number: kinds[number % 3][0](workbench, kinds[number % 3][1]), range(THREADS)))


REQUEST_ATTACKS: dict[str, Attack] = {
    "hashes": (prepare_hashes, hashes, ONE),
    "hashes-fit": (prepare_hashes_that_fit, hashes, ONE),
    "junit": (prepare_report, report, ONE),
    "journal": (prepare_journal, journal, ONE),
    "search": (prepare_search, search, ONE),
    "read": (prepare_large_file, read, ONE),
    "read-tree": (prepare_tree_task, read_tree, ONE),
    "read-commit": (prepare_tree_task, read_commit, ONE),
    "read-mix": (prepare_read_mix, read_mix, ALL),
}
