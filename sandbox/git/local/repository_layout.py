"""Where the parts of a local repository are, and whether it may be read.

A `.git` file names another directory. It is followed only if that directory leads back: a linked worktree is named by
its main repository, a submodule by its own configuration. Then the owner of the target chose this directory.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from functools import lru_cache
from pathlib import Path

from sandbox.errors import ErrorCode, SandboxError
from sandbox.git.failures import classify, damaged_remote_error, scrub
from sandbox.git.local.folders import Folder, open_folder
from sandbox.git.process import Git
from sandbox.lazy_dataclass import dataclass

SMALL_BYTES = 1024**2
_TRUE = {"true", "yes", "on", "1"}
_Config = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class LocalRepository:
    """A repository of this host. `git_dir` has its HEAD; `common_dir` the rest. They differ in a linked worktree."""

    git_dir: Path
    common_dir: Path
    config: _Config

    def last_value(self, key: str) -> str:
        """The value that wins; '' if the key is absent."""
        return next((value for name, value in reversed(self.config) if name == key), "")

    @property
    def oid_length(self) -> int:
        """Digits of its object ids."""
        return 64 if self.last_value("extensions.objectformat").lower() == "sha256" else 40

    @property
    def is_partial(self) -> bool:
        """Whether it leaves objects at a remote of its own (`git clone --filter`)."""
        keys = {key for key, value in self.config if value.lower() in _TRUE}
        return any(key.startswith("remote.") and key.endswith(".promisor") for key in keys)

    @property
    def is_bare(self) -> bool:
        """Whether no branch is checked out in the repository itself."""
        value = self.last_value("core.bare").lower()
        return value in _TRUE if value else self.common_dir.name != ".git"


def open_local_repository(git: Git, path: Path) -> LocalRepository:
    """Read the layout of the repository in `path`. `git`: parses its configuration, as text.

    Raises: `unsafe_repository`.
    """
    if not os.path.lexists(path / ".git"):
        found = _open_own_directory(git, path)
    elif (path / ".git").is_file() and not (path / ".git").is_symlink():
        found = _follow_pointer(git, path)
    else:
        found = _open_own_directory(git, path / ".git")
    if (found.last_value("extensions.refstorage") or "files").lower() != "files":
        raise SandboxError(
            ErrorCode.UNSAFE_REPOSITORY,
            "The local repository stores its refs in a format that is not supported for local paths",
            hint=f"Convert it: `git -C {path} refs migrate --ref-format=files`, or use its network URL.",
        )
    return found


def _open_own_directory(git: Git, git_dir: Path) -> LocalRepository:
    """A git directory with everything in it."""
    with open_folder(git_dir) as folder:
        _require_own(folder)
        if folder.read("commondir", SMALL_BYTES) is not None:
            raise folder.unsafe_error("commondir", "the repository's parts are in another directory")
        return LocalRepository(git_dir, git_dir, _read_config(git, folder))


def _follow_pointer(git: Git, path: Path) -> LocalRepository:
    """The repository that a `.git` file names, if it leads back."""
    with open_folder(path) as folder:
        pointer = _decode_line(folder.read(".git", SMALL_BYTES))
        target = (path / pointer.removeprefix("gitdir:").strip()).resolve()
        is_named = pointer.startswith("gitdir:") and target.is_dir()
    is_linked = os.path.lexists(target / "commondir")
    found = (_open_linked_worktree if is_linked else _open_submodule)(git, path, target) if is_named else None
    if found is None:
        raise SandboxError(
            ErrorCode.UNSAFE_REPOSITORY,
            "The .git file leads to a repository that does not lead back to this directory",
            details=scrub(f"{path}/.git"),
            hint="Name the repository itself: `git rev-parse --git-common-dir` shows it. A worktree that was moved: "
            "run `git worktree repair` there first.",
        )
    return found


def _open_linked_worktree(git: Git, path: Path, target: Path) -> LocalRepository | None:
    """gitrepository-layout(5): `worktrees/<id>/gitdir` is the path of the worktree's `.git` file."""
    common = target.parent.parent
    if target.parent.name != "worktrees":
        return None
    with ExitStack() as stack:
        folder, main = (stack.enter_context(open_folder(place)) for place in (target, common))
        back, shared = (_decode_line(folder.read(name, SMALL_BYTES)) for name in ("gitdir", "commondir"))
        if not back or (target / back).resolve() != path / ".git" or (target / shared).resolve() != common:
            return None
        _require_own(folder)
        _require_own(main)
        return LocalRepository(target, common, _read_config(git, main))


def _open_submodule(git: Git, path: Path, target: Path) -> LocalRepository | None:
    """gitsubmodules(7): the configuration of `modules/<name>` has the submodule's path as `core.worktree`."""
    found = _open_own_directory(git, target)
    back = found.last_value("core.worktree")
    return found if back and (target / back).resolve() == path else None


def _require_own(folder: Folder) -> None:
    """As git does for a repository it serves. Raises: `unsafe_repository`."""
    if os.fstat(folder.fd).st_uid != os.geteuid():
        raise classify("upload-pack", 128, f"fatal: detected dubious ownership in repository at '{folder.name}'")


def _read_config(git: Git, folder: Folder) -> _Config:
    """Every key with its value, includes not followed. git parses a copy of the bytes."""
    texts = [folder.read(name, SMALL_BYTES) or b"" for name in ("config", "config.worktree")]
    parsed = _parse_config(git.executable, b"\n".join(texts))
    if parsed is None:
        raise damaged_remote_error(f"{folder.name}/config")
    return parsed


@lru_cache(maxsize=8)
def _parse_config(executable: str, text: bytes) -> _Config | None:
    """None if it is damaged. The same text is parsed once: a process is much of what an up-to-date fetch costs."""
    no_repository = Git(Path("/"), executable)
    done = no_repository.attempt(
        "config", "--file", "-", "--no-includes", "--null", "--list", stdin=text, deadline_s=10
    )
    if done.code != 0:
        return None
    records = (record.partition("\n") for record in done.stdout.decode(errors="replace").split("\0")[:-1])
    return tuple((key, value if newline else "true") for key, newline, value in records)


def _decode_line(content: bytes | None) -> str:
    return (content or b"").decode(errors="surrogateescape").strip().partition("\n")[0].replace("\0", "")
