"""A view of a local repository: a directory of ours that git reads or receives into instead.

Theory. git on the other side of a local path reads that repository's configuration with its includes, alternates,
shallow and skip lists, `.git` files and `commondir`. Each can name a file or repository of the host; messages quote
lines of such files, and opening a FIFO waits for ever (THREATS S14). No setting turns that off. So git gets a directory
with our configuration, the refs as we read them, and links to packs and directories of loose objects after each was
found to contain plain files only. It reads no other file. Alternates are not followed: objects of another repository
are not this one's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from sandbox.errors import ErrorCode, SandboxError
from sandbox.git.failures import damaged_remote_error
from sandbox.git.local.folders import Folder, open_folder
from sandbox.git.local.read_refs import SHOWN, LocalRefs, read_head, read_refs
from sandbox.git.local.repository_layout import SMALL_BYTES, LocalRepository, open_local_repository
from sandbox.git.process import Git
from sandbox.git.temporary_folders import VIEW_PREFIX, temporary_folder
from sandbox.lazy_dataclass import dataclass

_MAX_WORKTREES = 1000
_DETACHED_REF = "refs/sandbox/head"
"""Of the view: a push then sees that the repository has the commit of a detached HEAD, and sends no history of it."""
_FAN_OUT = re.compile(r"^[0-9a-f]{2}\Z")
_PACK_FILE = re.compile(r"^(?!tmp_)[A-Za-z0-9_][A-Za-z0-9_.-]*\.(pack|idx|rev|bitmap)\Z")
_OID_LINES = re.compile(rb"^(([0-9a-f]{40}|[0-9a-f]{64})\n)*\Z")
_BOOLEAN = re.compile(r"^(true|false|yes|no|on|off|0|1)\Z", re.IGNORECASE)
_SERVING_KEYS = ("allowfilter", "allowtipsha1inwant", "allowreachablesha1inwant", "allowanysha1inwant")
_MISSING_OBJECTS = {ErrorCode.UNSAFE_REPOSITORY, ErrorCode.REMOTE_BROKEN, ErrorCode.NOT_FOUND, ErrorCode.INTERNAL}
_CONFIG = """\
[core]
\trepositoryformatversion = {version}
\tbare = {bare}
\tbigFileThreshold = 16m
\tcommitGraph = false
\tdeltaBaseCacheLimit = 16m
\tmultiPackIndex = false
\tlogAllRefUpdates = false
[extensions]
{extensions}[gc]
\tauto = 0
[pack]
\tthreads = 2
\twindowMemory = 32m
[receive]
\tunpackLimit = 1
[uploadpack]
{serving}"""


@dataclass(frozen=True)
class LocalView:
    """A view of `repository` in `path`, with the refs at the time of reading."""

    path: Path
    repository: LocalRepository
    refs: LocalRefs
    borrows: bool  # the repository has alternates

    @property
    def url(self) -> str:
        """The address for git."""
        return f"file://{self.path}"


@contextmanager
def view_local_repository(git: Git, path: Path, max_refs: int, shown: Sequence[str] = SHOWN) -> Iterator[LocalView]:
    """A view for one command. `git` is only used to parse text. Raises: `unsafe_repository`, `quota_exceeded`.

    `shown`: places of the refs that it has.

    With alternates, an error of the body is replaced by one that names them: their objects are missing in the view.
    """
    repository = open_local_repository(git, path)
    with ExitStack() as stack:
        git_dir, common_dir = (
            stack.enter_context(open_folder(place)) for place in (repository.git_dir, repository.common_dir)
        )
        root = stack.enter_context(temporary_folder(VIEW_PREFIX))
        refs = read_refs(git_dir, common_dir, max_refs, shown)
        borrows = _link_objects(common_dir, root / "objects")
        view = LocalView(root, repository, refs, borrows)
        _write_view(view, common_dir)
        if borrows:
            _require_own_objects(git, view)
        try:
            yield view
        except SandboxError as error:
            if borrows and error.code in _MISSING_OBJECTS:
                raise _missing_objects_error(view) from error
            if repository.is_partial and error.code in _MISSING_OBJECTS:
                raise _partial_clone_error(view, error) from error
            raise


def read_refs_of_repository(git: Git, path: Path, max_refs: int, shown: Sequence[str] = SHOWN) -> LocalRefs:
    """The refs alone, without a view. Raises: as `view_local_repository`."""
    repository = open_local_repository(git, path)
    with open_folder(repository.git_dir) as git_dir, open_folder(repository.common_dir) as common_dir:
        return read_refs(git_dir, common_dir, max_refs, shown)


def _write_view(view: LocalView, common_dir: Folder) -> None:
    root, repository = view.path, view.repository
    (root / "refs").mkdir()
    (root / "config").write_text(_build_config(repository))
    (root / "HEAD").write_text(_format_head(view.refs.head))
    shown = {**view.refs.values, **({} if view.refs.head.startswith("refs/") else {_DETACHED_REF: view.refs.head})}
    lines = [f"{oid} {name}\n" for name, oid in shown.items() if len(oid) == repository.oid_length]
    (root / "packed-refs").write_text("".join(sorted(lines, key=lambda line: line.partition(" ")[2].encode())))
    shallow = common_dir.read("shallow", SMALL_BYTES)
    if shallow:
        if not _OID_LINES.match(shallow):
            raise damaged_remote_error(f"{common_dir.name}/shallow")
        (root / "shallow").write_bytes(shallow)
    _copy_worktree_heads(common_dir, root / "worktrees")


def _format_head(head: str) -> str:
    return f"ref: {head}\n" if head.startswith("refs/") else f"{head}\n"


def _build_config(repository: LocalRepository) -> str:
    """Ours. Of theirs, only booleans that say what it serves."""
    sha256 = repository.oid_length == 64
    served = (
        (key, "true" if repository.is_partial else repository.last_value(f"uploadpack.{key}")) for key in _SERVING_KEYS
    )  # of a partial clone only what it has can be asked for, by name
    return _CONFIG.format(
        version=int(sha256),
        bare="true" if repository.is_bare else "false",
        extensions="\tobjectFormat = sha256\n" if sha256 else "",
        serving="".join(f"\t{key} = {value}\n" for key, value in served if _BOOLEAN.match(value)),
    )


def _copy_worktree_heads(common_dir: Folder, target: Path) -> None:
    """git refuses a push to a branch that a linked worktree has checked out."""
    with common_dir.subfolder("worktrees") as worktrees:
        if worktrees is None:
            return
        for number, name in enumerate(worktrees.list_directories()[:_MAX_WORKTREES]):
            with worktrees.subfolder(name) as folder:
                if folder is not None and folder.read("HEAD", SMALL_BYTES):
                    _write_worktree(target / str(number), read_head(folder))


def _write_worktree(place: Path, head: str) -> None:
    place.mkdir(parents=True)
    (place / "HEAD").write_text(_format_head(head))
    (place / "commondir").write_text("../..\n")
    (place / "gitdir").write_text("/nonexistent/.git\n")


def _link_objects(common_dir: Folder, target: Path) -> bool:
    """Link packs and directories of loose objects. Returns whether the repository has alternates.

    Raises: `unsafe_repository` if git could meet a link or a special file there.
    """
    (target / "pack").mkdir(parents=True)
    with common_dir.subfolder("objects") as objects:
        if objects is None:
            raise damaged_remote_error(f"{common_dir.name}/objects")
        objects.list_files()
        for name in objects.list_directories():
            if _FAN_OUT.match(name):
                with objects.subfolder(name) as loose:
                    if loose is not None and loose.list_files():
                        (target / name).symlink_to(loose.name)
        with objects.subfolder("pack") as packs:
            for name in packs.list_files() if packs else ():
                if packs and _PACK_FILE.match(name):
                    (target / "pack" / name).symlink_to(f"{packs.name}/{name}")
        with objects.subfolder("info") as info:
            return info is not None and info.has("alternates")


def _require_own_objects(git: Git, view: LocalView) -> None:
    """git would leave out a branch without its commit. Raises: `unsafe_repository`."""
    listed = "".join(f"{oid}\n" for oid in view.refs.values.values()).encode()
    out = Git(view.path, git.executable).run("cat-file", "--batch-check", stdin=listed)
    if b" missing\n" in out:
        raise _missing_objects_error(view)


def _missing_objects_error(view: LocalView) -> SandboxError:
    git_dir = view.repository.common_dir
    return SandboxError(
        ErrorCode.UNSAFE_REPOSITORY,
        "The local repository needs objects of another repository, which are not read",
        details=f"{git_dir}/objects/info/alternates",
        hint="Make it complete: run `git repack -a -d` in it, then delete objects/info/alternates in its git directory."
        " Or use its network URL.",
    )


def _partial_clone_error(view: LocalView, error: SandboxError) -> SandboxError:
    return SandboxError(
        ErrorCode.UNSAFE_REPOSITORY,
        "The local repository is a partial clone, and lacks objects that are needed",
        details=f"{view.repository.common_dir}\n{error.details}"[:2000],
        hint="Fetch the rest: run `git fetch --refetch --no-filter` in it. In CI: no `filter` of actions/checkout.",
    )
