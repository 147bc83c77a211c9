"""Use-case: search a task's working state.

The search runs over a git tree: the head's, with the changes of the worktree applied, without files that are too
large. So a changed file cannot change again during the search. Its new objects are not kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.names import EntryKind, WalkEntry
from sandbox.git import objects
from sandbox.git.contents import content_of
from sandbox.git.entries import GITLINK, REGULAR, Content, TreeChange
from sandbox.git.grep import BinaryMatch, LineMatch, PatternTooCostly, Query, list_files, list_files_over
from sandbox.git.process import Git
from sandbox.git.scratch_objects import scratch_objects
from sandbox.git.scratch_trees import build_scratch_tree
from sandbox.lazy_module import LazyModule
from sandbox.models import SearchHit, SearchQuery, SearchResult, SearchSkipped
from sandbox.policy.path_selection import PathSelection
from sandbox.policy.paths import RepoPath, parent_folders, show_path
from sandbox.store.records import find_task
from sandbox.workbench.controller.disk_admission import Writer
from sandbox.workbench.controller.disk_demands import demand_of_objects
from sandbox.workbench.controller.services import Services
from sandbox.workbench.tasks.lifecycle import TaskComparison, compare_task
from sandbox.workbench.tasks.matching import PristineSearch, find_matches, plan_pristine_search
from sandbox.workbench.tasks.worktrees import find_pristine

if TYPE_CHECKING:
    from sandbox.git import cache_clones, partial
else:  # for the search of a commit: they bring what fetches
    cache_clones = LazyModule("sandbox.git.cache_clones")
    partial = LazyModule("sandbox.git.partial")

FILE_BYTES = 10 * 1024**2
"""Size of the largest file that is searched; also the most bytes that `file read` returns by default."""
IGNORED_BYTES = 128 * 1024**2
"""Maximum bytes of ignored files that one search reads."""
LINE_CHARACTERS = 500
PATTERN_LENGTH = 4096
MAX_RESULTS = 10_000
MAX_TIMEOUT_S = 60.0
_REGEX_CHARACTERS = frozenset("|*+?^$\\()[]{}")  # a dot alone is usual in plain text
_BYTES_BEFORE_MATCH = 100  # bytes kept of a long line before its match

StopReason = Literal["max_results", "time", "pattern"]


def search(services: Services, task_id: str, query: SearchQuery) -> SearchResult:
    """Lines that match a pattern; with a glob alone, paths that match it. Safe while a check runs in the task.

    Raises: `invalid_input`. Reaching a limit is not an error: the result has the matches found until then.
    """
    _require_valid_query(query)
    selection = PathSelection(query.glob)
    task = find_task(services.home, task_id)
    with compare_task(services, task) as opened, _build_search_tree(services, opened, query) as place:
        checkout = None if query.pattern is None else find_pristine(services.home, services.policies, task)
        return _search_tree(place, query, selection, checkout)


def search_commit(services: Services, repo_id: str, ref: str, query: SearchQuery) -> SearchResult:
    """As `search`, in a commit of the cache clone. Uses no network. Raises: also `not_found` for the ref, and for
    files that a partial clone lacks.
    """
    _require_valid_query(query)
    selection = PathSelection(query.glob)
    repository, git = services.repositories.open(repo_id)
    commit = cache_clones.resolve_commit(git, ref, repository.default_branch)
    tree = objects.tree_of(git, commit)
    if query.pattern is not None and partial.is_partial(git) and partial.list_missing_blobs(git, tree):
        raise SandboxError(
            ErrorCode.NOT_FOUND,
            f"The partial clone of {repo_id} lacks files of {commit[:12]}",
            hint=f"`sandbox repo fetch {repository.remote_url} --ref {commit}` downloads them.",
        )
    large = () if query.pattern is None else list_files_over(git, tree, FILE_BYTES)
    checkout = services.home.pristine(repo_id, tree)
    changes = [TreeChange(path, "000000", None) for path in large]
    with _build_tree(services, git, (commit, tree), changes) as (searched, found):
        place = _SearchTree(searched, found, large)
        return _search_tree(place, query, selection, checkout if query.pattern and checkout.is_dir() else None)


def _search_tree(
    place: _SearchTree, query: SearchQuery, selection: PathSelection, checkout: Path | None
) -> SearchResult:
    """`checkout`: with most of the files, if there is one."""
    place = replace(place, pristine=plan_pristine_search(place.git, place.tree, checkout))
    findings = _Findings(selection, query.max_results)
    stopped_by = _collect_matches(findings, place, query, selection.superset_patterns())
    large = sum(show_path(path) in selection for path in place.too_large)
    return SearchResult(
        hits=tuple(findings.hits),
        files=tuple(findings.files),
        truncated=stopped_by is not None,
        stopped_by=stopped_by,
        skipped=SearchSkipped(binary=findings.binary, too_large=large, ignored=place.ignored_count),
        note=_explain(query, stopped_by, has_matches=bool(findings.files)),
    )


def _explain(query: SearchQuery, stopped_by: StopReason | None, *, has_matches: bool) -> str:
    """What the caller may not expect: a pattern that was taken literally, or that was too costly."""
    if stopped_by == "pattern":
        return "the pattern takes too many steps on a line, so the search stopped there: use a simpler one"
    if has_matches or stopped_by is not None or query.regex or not _REGEX_CHARACTERS & set(query.pattern or ""):
        return ""
    return "the pattern was searched as plain text: with `regex` (`--regex`) it is a regular expression"


def _require_valid_query(query: SearchQuery) -> None:
    pattern = query.pattern
    if pattern is None and query.glob is None:
        raise _invalid_search("give a pattern, a glob or both")
    if not 1 <= query.max_results <= MAX_RESULTS:
        raise _invalid_search(f"max_results must be from 1 to {MAX_RESULTS}")
    if not 0 < query.timeout_s <= MAX_TIMEOUT_S:
        raise _invalid_search(f"timeout_s must be above 0 and at most {MAX_TIMEOUT_S:g}")
    if pattern is not None and (not 0 < len(pattern) <= PATTERN_LENGTH or set(pattern) & {"\0", "\n"}):
        raise _invalid_search(f"a pattern must have 1 to {PATTERN_LENGTH} characters on one line")
    if pattern is not None and pattern.encode(errors="replace").decode() != pattern:
        raise _invalid_search("a pattern must be text without lone surrogates")


def _invalid_search(why: str) -> SandboxError:
    return SandboxError(ErrorCode.INVALID_INPUT, f"This search is not possible: {why}")


# --- the tree to search


@dataclass(frozen=True)
class _SearchTree:
    """The tree to search, the files that are left out of it, and a checkout of its files on disk, if any."""

    git: Git
    tree: str
    too_large: tuple[bytes, ...] = ()
    ignored_count: int | None = None
    pristine: PristineSearch | None = None


@contextmanager
def _build_search_tree(services: Services, opened: TaskComparison, query: SearchQuery) -> Iterator[_SearchTree]:
    git = opened.git
    head = objects.tree_of(git, opened.task.head_commit)
    changes = {c.path: c for c in opened.changes.tree}
    ignored = _IgnoredFiles(needs_content=query.pattern is not None)
    if query.include_ignored:
        ignored.collect(opened, head, changes)
        changes |= ignored.found
    large: list[bytes] = []
    if query.pattern is not None:
        large = [path for path, c in changes.items() if c.content is not None and c.content.size > FILE_BYTES]
        large += [path for path in list_files_over(git, head, FILE_BYTES) if path not in changes]
        changes |= {path: TreeChange(path, "000000", None) for path in large}
        large += ignored.too_large
    left_out = ignored.skipped_count if query.include_ignored else None
    with _build_tree(services, git, (opened.task.head_commit, head), list(changes.values())) as (searched, tree):
        yield _SearchTree(searched, tree, tuple(large), left_out)


@contextmanager
def _build_tree(
    services: Services, git: Git, base: tuple[str, str], changes: Sequence[TreeChange]
) -> Iterator[tuple[Git, str]]:
    """The tree of `base`, a commit and its tree, with the changes, and the git that knows it; it is not kept."""
    commit, tree = base
    if not changes:
        yield git, tree
        return
    with services.disk.admit(Writer.LOOK, demand_of_objects(changes)), scratch_objects(git) as aside:
        yield aside, build_scratch_tree(aside, commit, changes)


@dataclass
class _IgnoredFiles:
    """Files of the worktree that are neither tracked nor among the changes, up to `IGNORED_BYTES`."""

    needs_content: bool
    found: dict[bytes, TreeChange] = field(default_factory=dict)
    too_large: list[bytes] = field(default_factory=list)
    skipped_count: int = 0
    _bytes: int = 0

    def collect(self, opened: TaskComparison, head: str, changed: dict[bytes, TreeChange]) -> None:
        leaves = {e.path: e for e in objects.list_tree(opened.git, head)}
        present = {p for p in leaves if p not in changed} | {p for p, c in changed.items() if c.content is not None}
        links = {path for path, e in leaves.items() if e.mode == GITLINK}
        folders = parent_folders(present)
        for entry in opened.files.walk(lambda path: path in links):
            # Since the changes were read, a guest may have replaced a file by a directory, or a directory by a file.
            fits = entry.path not in folders and not parent_folders({entry.path}) & present
            if entry.kind is EntryKind.FILE and entry.path not in leaves and entry.path not in changed and fits:
                self._add(opened, entry)

    def _add(self, opened: TaskComparison, entry: WalkEntry) -> None:
        if self.needs_content and entry.size > FILE_BYTES:
            self.too_large.append(entry.path)
        elif (content := self._read(opened, entry)) is None:
            self.skipped_count += 1
        else:
            self._bytes += content.size
            self.found[entry.path] = TreeChange(entry.path, REGULAR, content)

    def _read(self, opened: TaskComparison, entry: WalkEntry) -> Content | None:
        """None for a file above the budget, for one that is no longer a file, and for one that cannot be read."""
        if not self.needs_content:
            return content_of(b"", len(opened.task.head_commit))
        if self._bytes + entry.size > IGNORED_BYTES:
            return None
        try:
            with opened.files.open_chunks(RepoPath(show_path(entry.path)), FILE_BYTES) as (info, chunks):
                return opened.spool.add(chunks, info.st_size, len(opened.task.head_commit))
        except SandboxError as error:
            if error.code in {ErrorCode.NOT_FOUND, ErrorCode.UNSAFE_PATH, ErrorCode.QUOTA_EXCEEDED}:
                return None
            raise


# --- the matches


class _Findings:
    """Collects the matches that the selection accepts, until there are more than `limit`."""

    def __init__(self, selection: PathSelection, limit: int) -> None:
        self._selection = selection
        self._left = limit
        self.hits: list[SearchHit] = []
        self.files: dict[str, None] = {}
        self.binary = 0

    def add_path(self, raw: bytes) -> bool:
        """Add a path; False when it exceeds the limit."""
        path = show_path(raw)
        return path not in self._selection or self._accept(path)

    def add_match(self, match: LineMatch | BinaryMatch) -> bool:
        """Add a match; False when it exceeds the limit."""
        path = show_path(match.path)
        if path not in self._selection:
            return True
        if not self._accept(path):
            return False
        if isinstance(match, BinaryMatch):
            self.binary += 1
        else:
            text, cut = excerpt(match.text, match.column)
            self.hits.append(SearchHit(path=path, line=match.line, text=text, cut=cut))
        return True

    def _accept(self, path: str) -> bool:
        self._left -= 1
        if self._left >= 0:
            self.files[path] = None
        return self._left >= 0


def _collect_matches(
    findings: _Findings, place: _SearchTree, query: SearchQuery, narrowed: Sequence[str]
) -> StopReason | None:
    """Collect matches until a limit is reached; return that limit."""
    try:
        if query.pattern is None:
            with closing(list_files(place.git, place.tree, query.timeout_s)) as paths:
                return None if all(map(findings.add_path, paths)) else "max_results"
        pattern = Query(query.pattern, query.regex, query.ignore_case)
        with closing(find_matches(place.git, place.tree, place.pristine, pattern, narrowed, query.timeout_s)) as hits:
            return None if all(map(findings.add_match, hits)) else "max_results"
    except PatternTooCostly:
        return "pattern"
    except SandboxError as error:
        if error.code is not ErrorCode.TIMEOUT:
            raise
        return "time"


def excerpt(raw: bytes, column: int) -> tuple[str, bool]:
    """A line as text, at most `LINE_CHARACTERS` around byte `column` (1-based); and whether the line was cut."""
    line = raw.removesuffix(b"\r")
    if len(line) <= 4 * LINE_CHARACTERS:
        text = line.decode("utf-8", errors="replace")
        if len(text) <= LINE_CHARACTERS:
            return text, False
    start = column - 1 - _BYTES_BEFORE_MATCH if column > LINE_CHARACTERS - _BYTES_BEFORE_MATCH else 0
    while start and line[start] & 0xC0 == 0x80 and start < column:  # a UTF-8 continuation byte
        start += 1
    text = line[start : start + 4 * LINE_CHARACTERS].decode("utf-8", errors="replace")
    return text[:LINE_CHARACTERS], True
