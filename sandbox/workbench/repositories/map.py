"""Use-case: the map of a repository or task. What is known of a blob is kept, so that an edit costs the edit."""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path

from sandbox.context import ctags, vendored
from sandbox.context.edited_map import compare_tree, rank_edited
from sandbox.context.map import (
    MAX_TOKENS,
    MAX_WORDS,
    build_map,
    choose_best,
    count_mentions,
    describe_best,
    is_code,
    score_symbols,
)
from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.checkout import check_out, remove_tree
from sandbox.git.blobs import read_blobs
from sandbox.git.entries import GITLINK, SYMLINK, TreeEntry
from sandbox.git.objects import list_tree, tree_of
from sandbox.git.process import Git
from sandbox.git.tree_lookup import find_files
from sandbox.images import resolve_image
from sandbox.models import RepoMap
from sandbox.models.definitions import DefinitionRule
from sandbox.policy.paths import show_path
from sandbox.store.mapped_tree import (
    MappedTree,
    Symbol,
    TreeSummary,
    build_mapped_tree,
    load_mapped_tree,
    save_mapped_tree,
)
from sandbox.store.symbol_index import (
    MAX_KEPT,
    RankedSymbols,
    SymbolIndex,
    load_index,
    load_map,
    save_index,
    save_map,
)
from sandbox.workbench.controller.disk_admission import Writer
from sandbox.workbench.controller.disk_demands import demand_of_checkout
from sandbox.workbench.controller.guest_accounts import lease_account
from sandbox.workbench.controller.guest_memory import find_guest_group
from sandbox.workbench.controller.runtimes import choose_runtime
from sandbox.workbench.controller.services import Services
from sandbox.workbench.controller.startup import ensure_recovered
from sandbox.workbench.repositories.clone import ensure_pristine_checkout
from sandbox.workbench.repositories.commit_facts import load_profile
from sandbox.workspaces.added_trees import list_files

MENTION_BYTES = 16 * 1024**2
MENTION_FILE_BYTES = 256 * 1024
SYMBOL_FILE_BYTES = 1024**2
"""A larger file is generated, or data: ctags is not asked about it."""

FEW_FILES = 100
"""So many files or fewer are written for ctags alone."""

MAX_BLOBS = 60_000
"""With more blobs, only those of the tree that was asked for are kept."""

_RULES = "2"  # of what is kept; another number makes all maps anew
_OUTSIDE_BYTES = 8 * 1024**2


@dataclass(frozen=True)
class _MapRequest:
    """A tree to map. `attributes`: text of the base commit's .gitattributes."""

    repo_id: str
    git: Git
    tree: str
    attributes: str
    globs: Sequence[str]
    definitions: Sequence[DefinitionRule]

    @property
    def version(self) -> str:
        """What the symbols of a blob depend on, beside its content."""
        return _digest([_RULES, *(rule.model_dump_json() for rule in self.definitions)])

    @property
    def key(self) -> str:
        """What the ranked symbols depend on."""
        return _digest([self.version, self.tree, self.attributes, *self.globs])


def map_symbols(services: Services, owner_id: str, token_budget: int, globs: Sequence[str]) -> RepoMap:
    """The most important symbols of a repository's default branch or a task's last commit, within a token budget."""
    if not 1 <= token_budget <= MAX_TOKENS:
        raise SandboxError(ErrorCode.INVALID_INPUT, f"A token budget must be from 1 to {MAX_TOKENS}")
    ensure_recovered(services)
    owner = services.repositories.find_owner_commit(owner_id, allow_closed=True)
    repo_id, git = owner.repository.id, owner.git
    request = _MapRequest(
        repo_id=repo_id,
        git=git,
        tree=tree_of(git, owner.commit),
        attributes=_read_attributes(git, owner.base_commit),
        globs=globs,
        definitions=_find_definitions(services, repo_id, git, owner.base_commit),
    )
    found = load_map(services.home, repo_id, request.key)
    return build_map(found or _rank(services, request), token_budget)


def _find_definitions(services: Services, repo_id: str, git: Git, commit: str) -> tuple[DefinitionRule, ...]:
    """Those of the profile in use. A profile that cannot be used says so when a check runs; the map goes on."""
    try:
        return load_profile(services, repo_id, git, commit).definitions
    except SandboxError as error:
        if error.code is not ErrorCode.INVALID_INPUT:
            raise
        return ()


@dataclass(frozen=True)
class _FilesToMap:
    """Files of a tree by path. `entries`: all of them. `others`: paths of code of others. `wanted`: those to show.
    `counted`: blobs in which words are counted.
    """

    entries: Mapping[str, TreeEntry]
    others: set[str]
    wanted: Mapping[str, TreeEntry]
    counted: Sequence[str]

    @cached_property
    def keys(self) -> dict[str, str]:
        """The wanted files with what decides their symbols."""
        return {path: _key(path, entry) for path, entry in self.wanted.items()}


def _rank(services: Services, request: _MapRequest) -> RankedSymbols:
    """Find and rank the symbols, and keep them, unless ctags printed too much."""
    files = _list_files_to_map(request)
    base = load_mapped_tree(services.home, request.repo_id, request.version)
    ranked = None
    if base is not None and not request.globs:
        ranked = _rank_edited(services, request, files, base)
    if ranked is None:
        ranked = _rank_all(services, request, files, base)
    entries = files.entries
    found = RankedSymbols(
        ranked=ranked.symbols,
        files_total=len(_select(entries, request.globs) if request.globs else entries),
        vendored={} if request.globs else dict(vendored.describe_folders(files.others)),
    )
    if ranked.complete:
        save_map(services.home, request.repo_id, request.key, found)
    return found


@dataclass(frozen=True)
class _Ranking:
    """`symbols`: as in `RankedSymbols`. Not `complete`: ctags printed too much."""

    symbols: list[tuple[str, int, str]]
    complete: bool


def _list_files_to_map(request: _MapRequest) -> _FilesToMap:
    entries = {show_path(e.path): e for e in list_tree(request.git, request.tree)}
    files = {path: e for path, e in entries.items() if e.mode not in {SYMLINK, GITLINK}}
    others = _find_others(request, files)
    own = {path: e for path, e in files.items() if path not in others}
    asked = _select(files, request.globs) if request.globs else own
    wanted = {path: e for path, e in asked.items() if is_code(path) and 0 < (e.size or 0) <= SYMBOL_FILE_BYTES}
    chosen = set(_choose_blobs(own.values()))
    counted = list(dict.fromkeys(e.oid for e in own.values() if e.oid in chosen))  # git reads neighbours faster
    return _FilesToMap(entries, others, wanted, counted)


def _rank_edited(services: Services, request: _MapRequest, files: _FilesToMap, base: MappedTree) -> _Ranking | None:
    """From what differs from a tree that was ranked. None if that is too much."""
    edit = compare_tree(base, files.keys, frozenset(files.counted))
    if not edit.is_small:
        return None
    index = load_index(services.home, request.repo_id, request.version)
    missing = {key: path for path, key in edit.changed.items() if key not in index.blobs}
    with ThreadPoolExecutor(1, "words") as pool:  # while ctags runs in its guest
        counting = pool.submit(_count_growth, request.git, edit.added, edit.removed)
        symbols, complete = _find_symbols(services, request, files.entries, missing)
        growth = counting.result()
    known = {**index.blobs, **symbols}
    if complete and symbols:
        save_index(services.home, request.repo_id, _build_index(request, known, set(edit.changed.values())))
    ranked = None if growth is None else rank_edited(base, edit, known, growth)
    return None if ranked is None else _Ranking(ranked, complete)


def _rank_all(services: Services, request: _MapRequest, files: _FilesToMap, base: MappedTree | None) -> _Ranking:
    """From all symbols. Keeps them, and those of other trees beside them."""
    index = load_index(services.home, request.repo_id, request.version)
    kept = {**index.blobs, **(base.read_blobs() if base else {})}
    missing = {key: path for path, key in files.keys.items() if key not in kept}
    with ThreadPoolExecutor(1, "words") as pool:  # while ctags runs in its guest
        counting = pool.submit(_count_words, request.git, base, files.counted)
        symbols, complete = _find_symbols(services, request, files.entries, missing)
        counts = counting.result()
    known = {**kept, **symbols}
    best = choose_best(score_symbols(((path, known.get(key, [])) for path, key in files.keys.items()), counts))
    used = set(files.keys.values())
    if complete and request.globs:
        save_index(services.home, request.repo_id, _build_index(request, {**index.blobs, **symbols}, used))
    elif complete:
        summary = TreeSummary.model_construct(  # not validated again: that takes longer than to write it
            version=request.version,
            files=files.keys,
            counted=frozenset(files.counted),
            counts=counts,
            best=best,
            is_whole=sum(len(known.get(key, ())) for key in files.keys.values()) == len(best),
        )
        save_mapped_tree(services.home, request.repo_id, build_mapped_tree(summary, known))
        others = {key: found for key, found in known.items() if key not in used}
        if others or index.blobs:
            save_index(services.home, request.repo_id, _build_index(request, others, set()))
    return _Ranking(describe_best(best)[0], complete)


def _build_index(request: _MapRequest, blobs: dict[str, list[Symbol]], used: set[str]) -> SymbolIndex:
    """`used`: keys to keep if there are too many."""
    if len(blobs) > MAX_BLOBS or sum(map(len, blobs.values())) > MAX_KEPT:
        blobs = {key: found for key, found in blobs.items() if key in used}
    return SymbolIndex.model_construct(version=request.version, blobs=blobs)


def _select(files: Mapping[str, TreeEntry], globs: Sequence[str]) -> dict[str, TreeEntry]:
    return {path: entry for path, entry in files.items() if any(fnmatchcase(path, glob) for glob in globs)}


def _find_others(request: _MapRequest, files: Mapping[str, TreeEntry]) -> set[str]:
    """The files that are code of others; none if all are."""
    found = vendored.find_vendored(files, request.attributes)
    own = [path for path in files if path not in found and is_code(path)]
    top = vendored.find_large_top(own)
    if top is not None:
        outside = [e for path, e in files.items() if path not in found and not path.startswith(f"{top}/")]
        texts = read_blobs(request.git, _choose_blobs(outside, _OUTSIDE_BYTES))
        if not vendored.is_mentioned(top, own, texts):
            found |= {path for path in files if path.startswith(f"{top}/")}
    return found if any(is_code(path) and path not in found for path in files) else set()


def _find_symbols(
    services: Services, request: _MapRequest, entries: Mapping[str, TreeEntry], missing: Mapping[str, str]
) -> tuple[dict[str, list[Symbol]], bool]:
    """Run ctags on the missing files, if any: paths by key. Returns the symbols by key, and whether they are all.

    Few files are written for it. For many the checkout of the tree is used, which tasks need anyway: to write and to
    delete thousands of files takes longer than ctags.
    """
    if not missing:
        return {}, True
    name = f"sandbox-map-{services.presence.new_id()}"
    room = services.home.clean_room(name)
    try:
        room.mkdir(mode=0o755)
        (room / "report").mkdir(mode=0o755)
        (room / "report").chmod(0o755)  # whatever the umask: the guest reads its list there, as another user
        if len(missing) <= FEW_FILES:
            places = {f"{number}/{_plain_name(path)}": path for number, path in enumerate(missing.values())}
            tree = _write_files(services, request.git, room / "files", {at: entries[p] for at, p in places.items()})
        else:
            places = {path: path for path in missing.values()}
            tree = ensure_pristine_checkout(
                services, request.repo_id, request.git, lambda: list(entries.values()), request.tree
            )
        with lease_account(services, name) as account:
            run = ctags.CtagsRun(
                name=name,
                engine=services.guest_engine,
                policy=services.policies.container,
                image_digest=resolve_image(services.image_build_context, "base"),
                runtime=choose_runtime(services),
                account=account,
                instance=services.home.instance_id,
                cgroup_parent=find_guest_group(services).parent,
                tree=tree,
                report=room / "report",
                definitions=request.definitions,
            )
            found = ctags.read_symbols(run, places)
    finally:
        remove_tree(room)
    by_path = {places[at]: symbols for at, symbols in found.by_path.items()}
    return {key: by_path.get(path, []) for key, path in missing.items()}, found.complete


def _write_files(services: Services, git: Git, folder: Path, files: Mapping[str, TreeEntry]) -> Path:
    entries = [replace(entry, path=path.encode()) for path, entry in files.items()]
    with services.disk.admit(Writer.CHECKOUT, demand_of_checkout(entries)):
        check_out(folder, list_files(git, entries), None)
    return folder


def _plain_name(path: str) -> str:
    """The name by which ctags knows the language, without characters that mean something to anyone."""
    return re.sub(r"^[-.]|[^A-Za-z0-9._+-]", "_", posixpath.basename(path)[-100:])


def _count_words(git: Git, base: MappedTree | None, wanted: Sequence[str]) -> dict[str, int]:
    """In how many of these blobs each word occurs: from what is kept and the blobs that differ, if they are few."""
    counts = None if base is None else _update_words(git, base.summary, frozenset(wanted))
    return dict(count_mentions(read_blobs(git, wanted))) if counts is None else counts


def _update_words(git: Git, before: TreeSummary, wanted: frozenset[str]) -> dict[str, int] | None:
    """None if it is cheaper to count everything, or if that may leave out words: many edits, each with words of its
    own, would add up past `MAX_WORDS`.
    """
    new, gone = wanted - before.counted, before.counted - wanted
    if len(new) + len(gone) >= len(wanted) // 2 or len(before.counts) >= MAX_WORDS:
        return None
    growth = _count_growth(git, new, gone)
    if growth is None or len(before.counts) + len(growth) >= MAX_WORDS:
        return None
    counts = Counter(before.counts)
    counts.update(growth)
    return {word: count for word, count in counts.items() if count > 0}


def _count_growth(git: Git, added: Collection[str], removed: Collection[str]) -> dict[str, int] | None:
    """By how many blobs with a word one set has more. None if a blob is gone, like the task it was of, or if one set
    may have words that were not counted.
    """
    try:
        growth = count_mentions(read_blobs(git, sorted(added)))
        lost = count_mentions(read_blobs(git, sorted(removed)))
    except SandboxError as error:
        if error.code is not ErrorCode.NOT_FOUND:
            raise
        return None
    if max(len(growth), len(lost)) >= MAX_WORDS:
        return None
    growth.subtract(lost)
    return dict(growth)


def _choose_blobs(entries: Iterable[TreeEntry], most: int = MENTION_BYTES) -> list[str]:
    """Blobs in which to count words: files up to 256 KiB, small ones first, in total up to `most` bytes."""
    chosen, left = dict[str, None](), most
    for entry in sorted(entries, key=lambda e: (e.size or 0, e.oid)):
        if entry.size is None or entry.size > min(left, MENTION_FILE_BYTES):
            continue
        if entry.oid not in chosen:
            chosen[entry.oid] = None
            left -= entry.size
    return list(chosen)


def _key(path: str, entry: TreeEntry) -> str:
    """What decides the symbols of a file: its content, and the name by which its language is known."""
    return f"{entry.oid}/{posixpath.basename(path).lower()}"


def _read_attributes(git: Git, commit: str) -> str:
    """The text of the commit's top .gitattributes; empty if there is none, or one that is too large."""
    entry = find_files(git, commit, [b".gitattributes"]).get(b".gitattributes")
    if entry is None or entry.mode == SYMLINK or not 0 < (entry.size or 0) <= vendored.ATTRIBUTES_BYTES:
        return ""
    return next(iter(read_blobs(git, [entry.oid]))).decode("utf-8", errors="replace")


def _digest(parts: Sequence[str]) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]
