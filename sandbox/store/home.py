"""The home directory of a controller: its paths, its locks, and atomic writes."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sandbox.errors import ErrorCode, SandboxError
from sandbox.lazy_dataclass import dataclass
from sandbox.lazy_module import LazyModule
from sandbox.store.lockfile import create_locked

if TYPE_CHECKING:
    import hashlib
    import secrets

    import filelock
    import platformdirs
    import pydantic

    from sandbox import document_errors, guest_labels, home_owner
else:  # loaded at first use (docs/adr/0080)
    hashlib = LazyModule("hashlib")
    secrets = LazyModule("secrets")
    filelock = LazyModule("filelock")
    platformdirs = LazyModule("platformdirs")
    pydantic = LazyModule("pydantic")
    document_errors = LazyModule("sandbox.document_errors")
    guest_labels = LazyModule("sandbox.guest_labels")
    home_owner = LazyModule("sandbox.home_owner")

_RecordT = TypeVar("_RecordT", bound="pydantic.BaseModel")

LOCK_TIMEOUT_S = 900.0
SCHEMA_VERSION = 1
REPOSITORY_FOLDERS = (
    "clones", "pristine", "layers", "worktrees", "logs", "trust", "lfs", "compilers", "candidates", "flaky",
)  # fmt: skip
"""In each of these a repository has its own folder, which is renamed before it is deleted."""
GUEST_FOLDERS = ("pristine", "layers", "worktrees", "rooms", "reports")
"""Guests see folders in these."""
_ID_DIGITS = 16
_CHUNK_BYTES = 1024**2
_LONGEST_LOCK_NAME = 240
_READABLE = 0o444  # a guest, another user, reads these files through a mount of each
# What a home may contain before our folders exist: what an operator prepares, or keeps when deleting the state.
_ALLOWED_BEFORE_PREPARE = {
    "config.toml",
    "credentials.toml",
    "images",
    "keys",
    "known_hosts",
    "policies",
    "profiles",
    "repositories",
}
_ALLOWED_BEFORE_PREPARE |= {"gitmask", "hosts", "init", "instance", "mcp-token", "metrics-token"}
_ALLOWED_BEFORE_PREPARE |= {"quarantine", "releases", "serve"}


def default_home(environ: Mapping[str, str]) -> Path:
    """`$SANDBOX_HOME`, else the platform's user data directory."""
    if configured := environ.get("SANDBOX_HOME"):
        return resolve_home(configured)
    try:
        return platformdirs.user_data_path("space").absolute()
    except RuntimeError as error:
        raise _no_home_error("you") from error


def resolve_home(text: Path | str) -> Path:
    """The absolute path of a home given by the user. Raises: `invalid_input` for a `~` of an unknown user."""
    try:
        return Path(text).expanduser().absolute()
    except RuntimeError as error:
        raise _no_home_error(str(text)[:200]) from error


def _no_home_error(user: str) -> SandboxError:
    """HOME is not set, or the user does not exist."""
    return SandboxError(
        ErrorCode.INVALID_INPUT,
        f"There is no home directory for {user}",
        hint="Set a directory for the sandbox with --home or SANDBOX_HOME, without `~`.",
    )


@dataclass(frozen=True)
class Home:
    """Paths below `$SANDBOX_HOME`. The constructor creates no file; `prepare` does."""

    root: Path

    @cached_property
    def repositories(self) -> Path:
        return self.root / "repositories"

    @cached_property  # an operation asks for it several times
    def registry(self) -> Path:
        return self.repositories / "registry.json"

    @property
    def known_hosts(self) -> Path:
        return self.root / "known_hosts"

    @property
    def git_mask(self) -> Path:
        """The constant file that hides `.git` in every guest."""
        return self.ensure_file("gitmask", GIT_MASK)

    @cached_property  # as above
    def spare(self) -> Path:
        """Files that are deleted when a full disk would stop what frees space."""
        return self.repositories / "spare"

    @property
    def supervisors(self) -> Path:
        """The guests' PID 1, one folder for each source image. Created again if missing."""
        return self.root / "init"

    @property
    def account_files(self) -> Path:
        """/etc/passwd and /etc/group of each guest, by uid. Created again if missing."""
        return self.repositories / "accounts"

    @property
    def build_steps(self) -> Path:
        """A file for each image that was built, with the ids of its steps' images."""
        return self.repositories / "build-steps"

    def clone(self, repo_id: str) -> Path:
        return self.repositories / f"clones/{repo_id}"

    def worktree(self, repo_id: str, task_id: str) -> Path:
        return self.repositories / f"worktrees/{repo_id}/{task_id}"

    @property
    def disk_templates(self) -> Path:
        """Empty disks, one for each size, that new disks are copied from. Created again if missing."""
        return self.repositories / "disks"

    def layers(self, repo_id: str, task_id: str) -> Path:
        """Directories of a task's overlay, beside its worktree."""
        return self.repositories / f"layers/{repo_id}/{task_id}"

    def facts(self, repo_id: str, commit: str) -> Path:
        """Facts about the tree of a base commit. They can be computed again at any time."""
        return self.pristines(repo_id) / f"{commit}.json"

    def rules(self, repo_id: str, commit: str) -> Path:
        """The ignore rules that profiles add to a base commit, with a hash of all that they depend on."""
        return self.pristines(repo_id) / f"{commit}.rules.json"

    def pristines(self, repo_id: str) -> Path:
        """The repository's immutable checkouts, by name."""
        return self.repositories / f"pristine/{repo_id}"

    def pristine(self, repo_id: str, name: str) -> Path:
        """An immutable checkout of a tree or a part of it."""
        return self.pristines(repo_id) / name

    def lfs_objects(self, repo_id: str) -> Path:
        """Objects of Git LFS that the repository's remote gave out. They can be fetched again."""
        return self.repositories / f"lfs/{repo_id}"

    @property
    def no_files(self) -> Path:
        """An empty directory: what tasks without files on disk are walked as."""
        folder = self.repositories / "no-files"
        folder.mkdir(mode=0o500, exist_ok=True)
        return folder

    def compiler_caches(self, repo_id: str) -> Path:
        """What clean rooms of the repository's default branch compiled, by image. It can be compiled again."""
        return self.repositories / f"compilers/{repo_id}"

    def candidates(self, repo_id: str) -> Path:
        """What the last candidates of a repository that passed would release. A new launch makes it again."""
        return self.repositories / f"candidates/{repo_id}"

    def releases(self, repo_id: str) -> Path:
        """The releases of a repository. They are kept when it is removed: they may be in use."""
        return self.root / "releases" / repo_id

    def clean_room(self, run_id: str) -> Path:
        """A clean room: one fresh checkout and its report directory, deleted after the run."""
        return self.repositories / f"rooms/{run_id}"

    def workspaces(self, kind: str) -> Path:
        """Records of the acquired workspaces of a kind, and the files of those that are ours."""
        return self.repositories / f"workspaces/{kind}"

    @property
    def liveness(self) -> Path:
        """A file for each running controller; `presence` on disk."""
        return self.repositories / "presence"

    @property
    def run_queue(self) -> Path:
        """A file for each check that runs or waits in the queue, and the queue's lock, `line.lock`.

        The names on disk are older than the word queue. They stay: controllers of several versions may share a home.
        """
        return self.repositories / "turns"

    @property
    def stop_requests(self) -> Path:
        """A file for each request that runs checks of a task, and for each stop request; `stops` on disk."""
        return self.repositories / "stops"

    @property
    def terminals(self) -> Path:
        """A file for each terminal with the task that it uses."""
        return self.repositories / "terminals"

    @property
    def background_runs(self) -> Path:
        """A record for each run of checks that was started in the background."""
        return self.repositories / "runs"

    def background_run(self, run_id: str) -> Path:
        return self.background_runs / f"{run_id}.json"

    @property
    def quarantine(self) -> Path:
        """A note for each container in quarantine."""
        return self.root / "quarantine"

    def task(self, task_id: str) -> Path:
        return self.repositories / f"tasks/{task_id}.json"

    def stat_index(self, task_id: str) -> Path:
        """Stat index of a task's plain worktree. It can be computed again at any time."""
        return self.repositories / f"tasks/{task_id}.stat"

    def guest_mark(self, task_id: str) -> Path:
        """Marks that a guest may be running in a task's worktree, and since when."""
        return self.repositories / f"tasks/{task_id}.guest"

    def lock_path(self, name: str) -> Path:
        """The lock file of `locked`. Raises: `invalid_input` for what is no name of a file, such as an id that a
        caller made up.
        """
        if not (name.isascii() and name.isprintable()) or "/" in name or len(name) > _LONGEST_LOCK_NAME:
            raise SandboxError(
                ErrorCode.INVALID_INPUT,
                f"{name[:100]!a} is no id of a repository, task or run",
                hint="`sandbox repo list` and `sandbox task list` show the ids.",
            )
        return self.repositories / f"locks/{name}.lock"

    def spare_mark(self, task_id: str) -> Path:
        """Only the process that deletes it may take over or close a spare task. It has a digest of its purpose."""
        return self.repositories / f"tasks/{task_id}.spare"

    def creation_mark(self, task_id: str) -> Path:
        """Marks that a task is being created and not yet returned to the caller."""
        return self.repositories / f"tasks/{task_id}.making"

    def move_note(self, task_id: str) -> Path:
        """Notes a sync or checkout of a task that has begun: from where to where."""
        return self.repositories / f"tasks/{task_id}.moving"

    def unused_move_note(self, task_id: str) -> Path:
        """Such a note that could not be used, and was set aside."""
        return self.repositories / f"tasks/{task_id}.moving-unused"

    def report(self, task_id: str) -> Path:
        """Report directory of checks in a task's own container. The first check creates it: as long as it exists, the
        container may exist.
        """
        return self.repositories / f"reports/{task_id}"

    def logs(self, owner_id: str) -> Path:
        """Logs of a task, or of a repository for runs without one."""
        return self.repositories / f"logs/{owner_id}"

    def all_logs(self) -> Iterable[Path]:
        """All existing folders of `logs`."""
        return (self.repositories / "logs").glob("*")

    def verdict(self, key: str) -> Path:
        """The verdict of a clean room, by the key of its binding. It can be computed again by running the check."""
        return self.repositories / f"verdicts/{key}.json"

    @property
    def artifacts(self) -> Path:
        """Contents of the artifacts of all runs, by their sha256."""
        return self.repositories / "artifacts"

    def journal(self, name: str) -> Path:
        """The journal of a task, by its id, or of the home."""
        return self.repositories / f"journal/{name}.jsonl"

    @property
    def journal_head(self) -> Path:
        """The last entry of the home's journal that is known to be on disk."""
        return self.repositories / "journal/home.head"

    @property
    def policy_digests(self) -> Path:
        """Digests of the policies and settings that were in force when a controller last checked."""
        return self.repositories / "policies.json"

    @property
    def signing_keys(self) -> Path:
        """The keys that sign receipts: `keys.json` with all public ones, and the private one in use."""
        return self.root / "keys"

    @property
    def approvals(self) -> Path:
        return self.repositories / "approvals"

    @property
    def old_approvals(self) -> Path:
        """The folder of approvals that are over."""
        return self.approvals / "over"

    def approval(self, approval_id: str) -> Path:
        return self.approvals / f"{approval_id}.json"

    def old_approval(self, approval_id: str) -> Path:
        return self.old_approvals / f"{approval_id}.json"

    def flaky_tests(self, repo_id: str) -> Path:
        """What is known of the repository's flaky tests."""
        return self.repositories / f"flaky/{repo_id}/tests.json"

    def trust_folder(self, repo_id: str) -> Path:
        """The suggestions of a repository that the operator trusts: one file each, named by hash."""
        return self.repositories / f"trust/{repo_id}"

    def prepare(self) -> None:
        """Create the home, private to us. Raises: `invalid_input` if it cannot be used, is another directory, or is
        that of another user.
        """
        try:
            self._require_own_home()
            self._require_sandbox_home()
            for folder in (self.root, self.repositories):
                folder.mkdir(parents=True, exist_ok=True)
                folder.chmod(0o700)
            for folder in (self.repositories / name for name in GUEST_FOLDERS):
                if not folder.is_dir():
                    guest_labels.make_guest_folder(folder)
            for name in (
                "clones",
                "tasks",
                "logs",
                "journal",
                "locks",
                "approvals",
                "approvals/over",
                "trust",
            ):
                (self.repositories / name).mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise denied_error(Path(error.filename or self.root), error, self.root) or SandboxError(
                ErrorCode.INVALID_INPUT,
                f"The sandbox home {self.root} cannot be used",
                details=str(error),
                hint="Set a writable directory with --home or SANDBOX_HOME.",
            ) from error

    def _require_own_home(self) -> None:
        if (
            os.geteuid() == 0
            and not _is_of_root(self.repositories)
            and (why := home_owner.find_other_owner(self.root, self.repositories))
        ):
            raise SandboxError(ErrorCode.INVALID_INPUT, **why)

    def _require_sandbox_home(self) -> None:
        """Refuse a directory with other contents: making it private would lock other users out of it.

        `--home /tmp`, or `--home ""` from an unset variable, is a mistake.
        """
        foreign = [] if (self.repositories / "locks").is_dir() else _list_foreign_names(self.root)
        if foreign:
            raise SandboxError(
                ErrorCode.INVALID_INPUT,
                f"{self.root} is not a sandbox home: it contains other files",
                details=", ".join(foreign[:5]),
                hint="Set a new or empty directory with --home or SANDBOX_HOME.",
            )

    @cached_property
    def instance_id(self) -> str:
        """Id of this home, a label of all its containers and part of their names: those of other homes are never
        touched. It is of the path, too: a copy of a home has other files, which engines mount by their paths.
        """
        text = f"{self.original_id}\0{os.path.realpath(self.root)}"
        return hashlib.sha256(os.fsencode(text)).hexdigest()[:_ID_DIGITS]

    @cached_property
    def original_id(self) -> str:
        """Random id that was made with this home. It stays when the home is moved, and a copy has the same."""
        return self.ensure_file("instance", secrets.token_hex(_ID_DIGITS // 2).encode(), fixed=False).read_text()

    def ensure_file(self, name: str, content: bytes, *, fixed: bool = True) -> Path:
        """Create a small file that guests can read in the home, if it is missing. `fixed`: also rewrite it if its
        content or mode differs.
        """
        path = self.root / name
        if not _is_current(path, content, fixed=fixed):
            with self.locked("home"):
                if not _is_current(
                    path, content, fixed=fixed
                ):  # another process may have just made it: a guest may use it
                    write_atomically(path, content, mode=_READABLE)
                    guest_labels.label_for_guests(path)
        return path

    @contextmanager
    def locked(self, name: str, timeout_s: float = LOCK_TIMEOUT_S) -> Iterator[None]:
        """Hold the lock of a repository or task against other processes and threads. The kernel frees it at exit.

        Raises: `conflict` if another process or thread holds it for longer than `timeout_s`; as `lock_path`.
        """
        lock = filelock.FileLock(self.lock_path(name), timeout=timeout_s, mode=0o600)
        try:
            lock.acquire()
        except filelock.Timeout as error:
            stop = f"if it is a check, run `sandbox check stop {name}`" if name.startswith("task-") else "stop it"
            raise SandboxError(
                ErrorCode.CONFLICT, f"Another operation on {name} is still running", hint=f"Wait for it, or {stop}."
            ) from error
        try:
            yield
        finally:
            lock.release()


GIT_MASK = b"gitdir: /nonexistent/managed-by-space-sandbox\n"
"""Bytes of a worktree's `.git` file: constant, with a path that does not exist."""


def write_atomically(path: Path, content: bytes, *, mode: int = 0o600, synced: bool = True) -> None:
    """Write to a file beside, fsync, rename, fsync the directory: readers see the old or the new bytes, never a part.

    Without `synced` a power failure can lose the write; a `kill -9` cannot.
    """
    fd, beside = create_locked(path, mode)
    try:
        with os.fdopen(fd, "wb") as stream:
            os.fchmod(fd, mode)  # whatever the umask: a guest must be able to read some
            stream.write(content)
            stream.flush()
            if synced:
                os.fsync(fd)
            beside.replace(path)  # locked until the rename: unlocked temporary files are deleted
    except BaseException:
        with suppress(OSError):
            beside.unlink()
        raise
    if synced:
        sync_folder(path.parent)


def _is_of_root(folder: Path) -> bool:
    """Whether root owns a folder, or there is none."""
    try:
        return folder.stat().st_uid == 0
    except OSError:
        return True


def sync_folder(path: Path) -> None:
    """Sync the names of a directory to disk: created, renamed and removed ones."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _is_current(path: Path, content: bytes, *, fixed: bool) -> bool:
    try:
        return (path.read_bytes() == content and stat.S_IMODE(path.stat().st_mode) == _READABLE) or not fixed
    except FileNotFoundError:
        return False


def _list_foreign_names(root: Path) -> list[str]:
    """Names that a new home never contains."""
    return sorted({entry.name for entry in root.iterdir()} - _ALLOWED_BEFORE_PREPARE) if root.exists() else []


def write_json(path: Path, document: dict[str, Any], *, synced: bool = True) -> None:
    """Write a document with its schema version, atomically."""
    text = json.dumps({"schema_version": SCHEMA_VERSION, **document}, indent=1, ensure_ascii=True)
    write_atomically(path, text.encode() + b"\n", synced=synced)


def newest_files(folder: Path) -> list[Path]:
    """The record files of runs in a folder, last written first."""
    found = ((modified_ns(path), path) for path in folder.glob("run-*.json"))
    return [path for _, path in sorted(found, reverse=True)]


def modified_ns(path: Path) -> int:
    """When a file was last written; 0 if there is none."""
    try:
        return path.stat().st_mtime_ns
    except OSError:  # removed meanwhile, alone or with its repository
        return 0


def read_json(path: Path) -> dict[str, Any] | None:
    """A document without its schema version; None if there is no file.

    Raises: `internal` with the name of the file if it is damaged or of another version. The file is not changed.
    """
    content = read_content(path)
    return None if content is None else parse_json(content, path)


def read_content(path: Path) -> bytes | None:
    """The content of a file of the home; None if it does not exist.

    Raises: `internal` with its name; `invalid_input` for one that we may not read.
    """
    try:
        return _read_trusted(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise denied_error(path, error) or damaged_file_error(path, str(error)) from error


def _read_trusted(path: Path) -> bytes:
    """Read a regular file that no other user can have written. Raises: OSError; `internal` with its name.

    Not a link: it may lead out of the home. Without waiting: a FIFO has no end. Restored files may have another mode.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _foreign_file_error(path, "it is a link") from error
        raise
    try:
        found = os.fstat(fd)
        if why := _find_foreign_hand(found, path):
            raise _foreign_file_error(path, why)
        content = os.read(fd, found.st_size + 1)
        while part := os.read(fd, _CHUNK_BYTES):  # none, unless a read was short
            content += part
        return content
    finally:
        os.close(fd)


def _find_foreign_hand(found: os.stat_result, path: Path) -> str:
    """Why a file may have been written by another user; empty if it may not. Root, and the owner of the folder, who
    can replace each file in it, are no others: root may work in a home of a user. Where every user may write the folder
    too, as on a mount where all have one mode, that of the file says no more.
    """
    if not stat.S_ISREG(found.st_mode):
        return "it is no regular file"
    if found.st_mode & stat.S_IWOTH and not path.parent.stat().st_mode & stat.S_IWOTH:
        return f"every user may write it (mode {stat.S_IMODE(found.st_mode):04o})"
    if found.st_uid not in {0, os.geteuid()} and found.st_uid != path.parent.stat().st_uid:
        return f"it belongs to user {found.st_uid}"
    return ""


def _foreign_file_error(path: Path, why: str) -> SandboxError:
    return SandboxError(
        ErrorCode.INTERNAL,
        f"The state file {path.name} cannot be used",
        details=f"{path}: {why}",
        hint="Another user may have written it. Read it; if it is yours, make it a file of your own with mode 0600.",
    )


def parse_json(content: bytes, path: Path) -> dict[str, Any]:
    """As `read_json`, for content that was read. `path`: of the file, for errors."""
    try:
        document = json.loads(content)
        version = document.pop("schema_version")
    except (ValueError, AttributeError, KeyError, TypeError, RecursionError) as error:
        raise damaged_file_error(path, str(error)) from error
    if version != SCHEMA_VERSION:
        raise damaged_file_error(path, f"schema_version is {version!r}, this program supports {SCHEMA_VERSION}")
    return dict(document)


def read_record(path: Path, model: type[_RecordT]) -> _RecordT | None:
    """The record in a file; None if there is no file.

    Raises: `internal` with the name of the file if it cannot be read, is damaged or of another version or shape. That
    is not the same as no record where something is deleted or overwritten because there is none.
    """
    document = read_json(path)
    return None if document is None else validate_record(model, document, path)


def read_cached_record(path: Path, model: type[_RecordT]) -> _RecordT | None:
    """As `read_record`, for what can be made again at any time: None also if the file cannot be used."""
    try:
        return read_record(path, model)
    except SandboxError:
        return None


def validate_record(model: type[_RecordT], document: object, path: Path) -> _RecordT:
    """Raises: `internal` for a document of another shape. `path`: of its file, for errors."""
    try:
        return model.model_validate(document)
    except pydantic.ValidationError as error:
        raise damaged_file_error(path, document_errors.describe_errors(error)) from error


_MOVE_AWAY = "Move the file away to continue without it. No other file depends on it."
_RECORD = "Restore it from a copy. Without it the task or repository is unknown; `gc` saves a task's changes in a ref."


def denied_error(path: Path, error: OSError, root: Path | None = None) -> SandboxError | None:
    """The error for a file of the home that we may not read or write; None for other failures. `root`: of the home."""
    why = home_owner.describe_denied(path, error, root)
    return None if why is None else SandboxError(ErrorCode.INVALID_INPUT, **why)


def damaged_file_error(path: Path, why: str) -> SandboxError:
    """The error for a state file that is torn, of another version, or of another shape."""
    is_record = path.name == "registry.json" or (path.name.startswith("task-") and path.suffix == ".json")
    return SandboxError(
        ErrorCode.INTERNAL,
        f"The state file {path.name} cannot be used",
        details=f"{path}: {why}",
        hint=_RECORD if is_record else _MOVE_AWAY,
    )
