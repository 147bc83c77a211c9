"""Move what git received in a view into the repository itself: packs first, then one branch.

As git does: files get their names when they are complete, a `.keep` file protects a new pack until the branch names it,
and `<ref>.lock` excludes other writers of the branch. Modes follow the directory, which has the repository's sharing.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from sandbox.errors import ErrorCode, SandboxError, translate_shortage
from sandbox.git.local.folders import Folder, open_folder
from sandbox.git.local.read_refs import read_refs
from sandbox.git.local.view import LocalView

_ORDER = (".keep", ".pack", ".rev", ".idx")  # a pack is there as soon as its index is


def publish_branch(view: LocalView, ref: str, commit: str, max_refs: int) -> bool:
    """Give the repository the view's new packs, and set `ref` from its value in the view to `commit`.

    Returns False if another process changed the branch. Raises: `unsafe_repository`, `quota_exceeded`, `internal`.
    """
    try:
        with open_folder(view.repository.common_dir) as common, _copy_new_packs(view, common):
            return _set_ref(view, common, ref, commit, max_refs)
    except OSError as error:
        defect = SandboxError(
            ErrorCode.INTERNAL,
            f"The local repository cannot be written: {error.strerror}",
            details=str(view.repository.common_dir),
        )
        raise translate_shortage(error) or defect from error


@contextmanager
def _copy_new_packs(view: LocalView, common: Folder) -> Iterator[None]:
    source = view.path / "objects" / "pack"
    made = [path for path in source.iterdir() if not path.is_symlink() and path.suffix in _ORDER]
    with ExitStack() as stack:
        objects = _enter(stack, common, "objects")
        packs = _enter(stack, objects, "pack")
        keeps = [path.with_suffix(".keep") for path in made if path.suffix == ".pack"]
        try:
            for keep in keeps:
                keep.touch()
            for path in sorted({*made, *keeps}, key=lambda path: _ORDER.index(path.suffix)):
                _copy_file(path, packs)
            yield
        finally:
            for keep in keeps:
                with suppress(FileNotFoundError):
                    os.unlink(keep.name, dir_fd=packs.fd)


def _enter(stack: ExitStack, parent: Folder, name: str) -> Folder:
    """A directory, created if it is missing."""
    with suppress(FileExistsError):
        os.mkdir(name, dir_fd=parent.fd)
        _share(parent, name, 0o777)
    found = stack.enter_context(parent.subfolder(name))
    if found is None:
        raise parent.unsafe_error(name, "removed by another process")
    return found


def _copy_file(path: Path, target: Folder) -> None:
    beside = f"tmp_{path.name}"
    with suppress(FileNotFoundError):
        os.unlink(beside, dir_fd=target.fd)
    with path.open("rb") as source, _create(target, beside) as fd, open(fd, "wb", closefd=False) as stream:
        shutil.copyfileobj(source, stream, 1 << 20)
    _share(target, beside, 0o444)
    os.rename(beside, path.name, src_dir_fd=target.fd, dst_dir_fd=target.fd)


@contextmanager
def _create(folder: Folder, name: str) -> Iterator[int]:
    """A new file, written durably on exit."""
    fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder.fd)
    try:
        yield fd
        os.fsync(fd)
    finally:
        os.close(fd)


def _share(folder: Folder, name: str, most: int) -> None:
    """Give a new entry the permissions of its directory, up to `most`; the umask plays no part."""
    mode = stat.S_IMODE(os.fstat(folder.fd).st_mode)
    os.chmod(name, mode & (most | (stat.S_ISGID if most & 0o111 else 0)), dir_fd=folder.fd)


def _set_ref(view: LocalView, common: Folder, ref: str, commit: str, max_refs: int) -> bool:
    *parents, name = ref.split("/")
    with ExitStack() as stack:
        folder = common
        for parent in parents:
            folder = _enter(stack, folder, parent)
        lock = f"{name}.lock"
        try:
            with _create(folder, lock) as fd:
                stack.callback(_remove_leftover, folder, lock)
                os.write(fd, f"{commit}\n".encode())
        except FileExistsError:
            return False
        with open_folder(view.repository.git_dir) as git_dir:
            if read_refs(git_dir, common, max_refs).values.get(ref) != view.refs.values.get(ref):
                return False
        _share(folder, lock, 0o666)
        os.rename(lock, name, src_dir_fd=folder.fd, dst_dir_fd=folder.fd)
        os.fsync(folder.fd)
        return True


def _remove_leftover(folder: Folder, name: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder.fd)
