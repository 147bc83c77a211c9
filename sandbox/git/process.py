"""Run one git command so that only our arguments decide what it does.

Theory. git takes orders from the environment, from system, user and repository configuration, from attributes, hooks
and from any repository that it discovers around it. Therefore each command here gets an environment of our variables
alone, an explicit `--git-dir`, a fixed `-c` set, `/` as working directory, a closed or file-backed stdin, its own
session that is killed as a whole at the deadline, and bounded output and memory. GitPython starts the commands that use
the network; its objects, configuration and clone interfaces are not used. It adds to the environment of this process,
so those go through `env -i`. `subprocess` starts the local ones: importing GitPython takes as long as twenty of them
(docs/adr/0080), and `env` nearly as long as a short git command (docs/adr/0097). Sources: git(1), git-config(1),
THREATS sections A, B, G, Q.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import field, replace
from functools import cache, partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from sandbox.errors import ErrorCode, SandboxError, translate_shortage
from sandbox.git.executable import require_safe_program
from sandbox.git.failures import OutOfMemory, classify, memory_error, out_of_memory_error
from sandbox.git.memory_limits import LARGE, SMALL, GitMemory, choose_memory, is_repeatable, limit_memory, reads_history
from sandbox.git.object_cache import ObjectCache
from sandbox.git.shutdown import Shutdown
from sandbox.lazy_dataclass import dataclass
from sandbox.lazy_module import LazyModule
from sandbox.lazy_pattern import lazy_pattern
from sandbox.memory import PROCESS_BUDGET, TRANSFER_BUDGET, MemoryBudget

if TYPE_CHECKING:
    from sandbox.git import clone_lock, progress
    from sandbox.git.clone_lock import CloneId
    from sandbox.git.progress import ProgressForwarder
else:  # loaded at first use (docs/adr/0080)
    clone_lock = LazyModule("sandbox.git.clone_lock")
    progress = LazyModule("sandbox.git.progress")

SAFE_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
LOCAL_DEADLINE_S = 120.0
OUTPUT_LIMIT = 256 * 1024**2
_STDERR_LIMIT = 64 * 1024
_CHUNK = 1 << 16
_UMASK = 0o022  # of git, so that modes in the clones do not depend on the caller's
_CUT_MARGIN = 4 * 1024  # dropped after a cut, which may have split a secret; longer than any secret
CUT_MARK = "[cut] "  # put before text without its beginning: else half a line of the server could look like git's
_MOVES_REFS = "update-ref"
_LINE_LIMIT = 8 * 1024  # a longer line of progress is not shown
# No core: SIGXFSZ would dump one. If the host's own limit is lower, ours cannot be set and the host's limit stays.
_LIMITS_SCRIPT = (
    'lower() { ulimit "$1" "$2" 2>/dev/null || [ "$(ulimit "$1")" != unlimited ]; }; '
    'ulimit -c 0 && lower -f "$0" && lower -d "$1" && shift && exec "$@"'
)
_REPLACED_PROGRESS = lazy_pattern(r"^[^\n]*\r(?!\n)", re.MULTILINE)  # progress that a later line replaces; linear time

_ENVIRONMENT = {
    "PATH": SAFE_PATH,
    "HOME": "/nonexistent",
    "XDG_CONFIG_HOME": "/nonexistent",
    "LC_ALL": "C",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_SYSTEM": "/dev/null",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "/bin/false",
    "GIT_CEILING_DIRECTORIES": "/",
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_PROTOCOL_FROM_USER": "0",
}
# Mistakes of old programs, in histories of well-known projects, that lead nowhere (docs/adr/0192).
_HARMLESS = ("badTimezone", "missingSpaceBeforeDate", "zeroPaddedFilemode")
_HARDENING = (
    "core.hooksPath=/dev/null",
    # git 2.54 also reads hooks from the configuration, which hooksPath does not cover; these are the events of the
    # commands we run. Our configuration has none: this is defence in depth. Older gits ignore the keys.
    "hook.reference-transaction.enabled=false",
    "hook.post-index-change.enabled=false",
    "hook.pre-push.enabled=false",
    "core.fsmonitor=false",
    "core.attributesFile=/dev/null",
    "core.excludesFile=/dev/null",
    "core.protectHFS=true",
    "core.protectNTFS=true",
    "core.sshCommand=/bin/false",
    "core.pager=cat",
    "core.editor=/bin/false",
    "core.alternateRefsCommand=/bin/false",
    "safe.bareRepository=explicit",
    "protocol.allow=never",
    "submodule.recurse=false",
    "diff.ignoreSubmodules=all",
    "fetch.recurseSubmodules=false",
    "push.recurseSubmodules=no",
    "push.gpgSign=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "commit.gpgSign=false",
    "log.showSignature=false",
    "credential.helper=",
    "http.followRedirects=false",
    "http.proxy=",
    "http.lowSpeedLimit=1000",
    "http.lowSpeedTime=30",
    "transfer.fsckObjects=true",
    "fetch.fsckObjects=true",
    *(f"fetch.fsck.{name}=ignore" for name in _HARMLESS),
    "transfer.bundleURI=false",
    "fetch.writeCommitGraph=false",
    "pack.windowMemory=32m",
)
# Of a local command. Bases of differences are cached up to 96 MiB by default, more than most commands may use.
_LOCAL = ("core.deltaBaseCacheLimit=8m",)
_SYNCED = "core.fsync=objects,reference"
"""Of a local command: git by itself leaves loose objects and refs to the kernel, and a power failure empties them."""
MOST_LOOSE = 10
"""So many objects of a commit are stored as files of their own, more as one pack: a disk syncs a file in 1 to 5 ms."""
# Of a network command. Each thread holds deltas of its own, and its stack counts for the limit on memory.
# Larger files are streamed, and no differences of them are made: else index-pack and pack-objects hold them whole.
_NETWORK = (
    "core.bigFileThreshold=16m",
    "core.deltaBaseCacheLimit=16m",
    "pack.deltaCacheSize=16m",
    "pack.threads=2",
    # Mapped packs are no data, but they are resident memory.
    "core.packedGitWindowSize=16m",
    "core.packedGitLimit=64m",
)


@dataclass(frozen=True)
class ResourceLimits:
    """Limits on what git and its children use because of a remote. The kernel enforces them against any server.

    `file_bytes`: size of one file, so of the one pack that a fetch writes; reached: SIGXFSZ, `quota_exceeded`.
    `memory_bytes`: data in one process (mapped packs do not count); reached: git fails, `quota_exceeded`.
    """

    file_bytes: int
    memory_bytes: int

    def wrap(self, argv: Sequence[str]) -> list[str]:
        """argv with the limits applied: `ulimit` counts files in blocks of 512 bytes, data in KiB (POSIX, dash(1))."""
        limits = (str(-(-self.file_bytes // 512)), str(-(-self.memory_bytes // 1024)))
        return ["/bin/sh", "-c", _LIMITS_SCRIPT, *limits, *argv]


@dataclass(frozen=True)
class NetworkAccess:
    """What a network command gets in addition: one protocol, and the means to authenticate for one URL.

    `progress` is called with git's lines of progress, which include remote text, from another thread. While it is slow,
    and after it raised an error, it misses lines.
    `redact` is applied to all text that git prints on stderr, before the text is cut or passed on.
    """

    protocol: str
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    config: tuple[str, ...] = ()
    fds: tuple[int, ...] = ()
    progress: Callable[[str], None] | None = None
    redact: Callable[[str], str] = str
    limits: ResourceLimits | None = None
    shutdown: Shutdown = field(default_factory=Shutdown, compare=False)


@dataclass(frozen=True)
class GitResult:
    """Exit code and output of a git command that may fail."""

    code: int
    stdout: bytes
    stderr: str

    def raise_for_status(self, name: str) -> GitResult:
        """Return self. Raises: the classified error if git exited non-zero."""
        if self.code != 0:
            raise classify(name, self.code, self.stderr)
        return self


@dataclass(frozen=True)
class Git:
    """Runs git on one git directory that the controller owns."""

    git_dir: Path
    executable: str = ""  # argument of `git_executable`
    cache: ObjectCache = field(default_factory=ObjectCache, compare=False, repr=False)
    working_directory: str = "/"  # working directory: git discovers no repository there. Never a worktree
    new_objects: Path | None = None  # new objects are stored here instead of in the git directory (`scratch_objects`)
    memory: GitMemory = field(default=SMALL, compare=False)  # of a local command
    budget: MemoryBudget = field(default=PROCESS_BUDGET, compare=False, repr=False)
    clone_id: CloneId | None = field(default=None, compare=False, repr=False)  # of a cache clone, when it was opened

    def run(
        self,
        *args: str,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        network: NetworkAccess | None = None,
        deadline_s: float = LOCAL_DEADLINE_S,
    ) -> bytes:
        """Run to the end and return stdout. Raises: the classified error if git exits non-zero; as `stream`."""
        result = self.attempt(*args, stdin=stdin, env=env, network=network, deadline_s=deadline_s)
        return result.raise_for_status(args[0]).stdout

    def attempt(
        self,
        *args: str,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        network: NetworkAccess | None = None,
        deadline_s: float = LOCAL_DEADLINE_S,
        output_limit: int = OUTPUT_LIMIT,
    ) -> GitResult:
        """Like `run`, for commands with a meaningful exit code. Raises: `quota_exceeded` for output; as `stream`.

        A reading command that has too little memory is repeated once with more.
        """
        with_more = (self.with_memory(LARGE),) if network is None and is_repeatable(args) else ()
        for git in (self, *with_more):
            try:
                with (
                    spool_input(stdin) as spool,
                    git.stream(*args, stdin=spool, env=env, network=network, deadline_s=deadline_s) as p,
                ):
                    stdout = p.read_all(output_limit)
                return GitResult(p.code, stdout, p.stderr)
            except OutOfMemory as error:
                refused = error
        raise refused

    def with_memory(self, memory: GitMemory) -> Git:
        """The same with another amount of memory for each local command."""
        return replace(self, memory=memory)

    def read_start(self, *args: str, most: int, env: Mapping[str, str], deadline_s: float) -> bytes:
        """As `run` for a reading command, but only the first `most` bytes of stdout; the rest is dropped."""
        try:
            return self._read_start(args, most, env, deadline_s)
        except OutOfMemory:
            return self.with_memory(LARGE)._read_start(args, most, env, deadline_s)

    def _read_start(self, args: Sequence[str], most: int, env: Mapping[str, str], deadline_s: float) -> bytes:
        with self.stream(*args, env=env, deadline_s=deadline_s) as process:
            start = process.stdout.read(most)
        return GitResult(process.code, start, process.stderr).raise_for_status(args[0]).stdout

    @contextmanager
    def stream(
        self,
        *args: str,
        stdin: IO[bytes] | None = None,
        env: Mapping[str, str] | None = None,
        network: NetworkAccess | None = None,
        deadline_s: float = LOCAL_DEADLINE_S,
    ) -> Iterator[GitProcess]:
        """Run with stdout as a stream. On exit the whole process group has ended and `code` is set.

        A local command first reserves its memory, for as long as it runs. A move of refs waits while a repair replaces
        the clone. Raises: `timeout`; `OutOfMemory`, which is `quota_exceeded`, if a local command failed because it may
        not use more memory; as `hold_clone`.
        """
        memory = choose_memory(args, self.memory) if network is None else None
        env = {**build_object_environment(self.git_dir, self.new_objects), **(env or {})}
        command = build_command_line(self.git_dir, args, env, network, self.executable)
        budget = TRANSFER_BUDGET if reads_history(args) else self.budget
        with (
            clone_lock.hold_clone(self.git_dir) if args[0] == _MOVES_REFS else nullcontext(),
            budget.reserve(memory.reserved_bytes, deadline_s) if memory else nullcontext(),
        ):
            start = _start_process if network is None else partial(_start_network_process, network)
            popen = start(command, stdin, self.working_directory)
            process = GitProcess(popen, args[0], deadline_s, network)
            try:
                process.start_threads()
                if memory is not None and not limit_memory(popen.pid, memory.limit_bytes):
                    raise out_of_memory_error(args[0], f"it used more than {memory.limit_bytes} bytes")
                with process.stop_on_shutdown():
                    yield process
                    process.finish()
            except SandboxError:  # a reader's error about a stream that the deadline or the limit on memory cut
                process.raise_if_cut()
                raise
            finally:
                process.close()


def build_object_environment(git_dir: Path, new_objects: Path | None) -> dict[str, str]:
    """Variables that make git store objects in `new_objects`, an absolute path, and read those of `git_dir` too. Pure.

    The path of the alternate is quoted (git(1)): it may contain the separator, a colon.
    """
    if new_objects is None:
        return {}
    quoted = str(git_dir.absolute() / "objects").replace("\\", r"\\").replace('"', r"\"")
    return {"GIT_OBJECT_DIRECTORY": str(new_objects), "GIT_ALTERNATE_OBJECT_DIRECTORIES": f'"{quoted}"'}


@dataclass(frozen=True)
class CommandLine:
    """What a git command is started with. `environment` is all of it: that of this process is not added."""

    environment: Mapping[str, str] = field(repr=False)
    argv: tuple[str, ...]

    def through_env(self) -> list[str]:
        """One argv with both, for a start that would add to the environment of this process."""
        return ["/usr/bin/env", "-i", *(f"{name}={value}" for name, value in self.environment.items()), *self.argv]


def build_command_line(
    git_dir: Path, args: Sequence[str], env: Mapping[str, str], network: NetworkAccess | None, executable: str = ""
) -> CommandLine:
    """Build the whole command. Starts no process, so that each part of the hardening is unit-tested."""
    variables = {**_ENVIRONMENT, **env}
    config = [*_HARDENING, *(_LOCAL if network is None else _NETWORK)]
    is_kept = network is None and "GIT_OBJECT_DIRECTORY" not in variables
    if is_kept and "core.fsync" not in variables.values():
        config.append(_SYNCED)
    if network is not None:
        variables |= {"GIT_ALLOW_PROTOCOL": network.protocol, **network.env}
        config += [f"protocol.{network.protocol}.allow=always", *network.config]
    words = (word for item in config for word in ("-c", item))
    command = [git_executable(executable), *words, f"--git-dir={git_dir}", *args]
    if network is not None and network.limits is not None:
        command = network.limits.wrap(command)
    if any("\0" in part for part in (*variables.values(), *command)):
        raise SandboxError(ErrorCode.INVALID_INPUT, "A value given to git contains a NUL byte")
    return CommandLine(variables, tuple(command))


class GitProcess:
    """A running git with a deadline. A thread collects its stderr, bounded."""

    def __init__(self, popen: Any, name: str, deadline_s: float, network: NetworkAccess | None = None) -> None:
        self._popen = popen
        self._network = network or NetworkAccess("none")
        self._lines = LineSplitter()
        self._forwarder: ProgressForwarder | None = None
        self._name = name
        self._deadline_s = deadline_s
        self._expired = False
        self._errors = bytearray()
        self._cut = False
        self._reaping = threading.Lock()
        self._timer = threading.Timer(deadline_s, self._expire)
        self._timer.daemon = True
        self._reader = threading.Thread(target=self._collect_errors, daemon=True)
        self.stdout: IO[bytes] = popen.stdout
        self.code = -1

    def start_threads(self) -> None:
        """Start the deadline and the reader of stderr. Raises: `quota_exceeded` on a host without a thread for them."""
        if self._network.progress is not None:
            self._forwarder = progress.ProgressForwarder(self._network.progress)
        try:
            self._timer.start()
            self._reader.start()
        except RuntimeError as error:
            self._popen.stderr.close()
            raise SandboxError(
                ErrorCode.QUOTA_EXCEEDED,
                f"git {self._name} was stopped: this host has no thread left to watch it",
                details=str(error),
                hint="Run fewer operations in parallel, or raise `ulimit -u` or the unit's TasksMax=.",
            ) from error

    @property
    def stderr(self) -> str:
        """git's stderr so far. It is evidence and is never shown to an agent unclassified."""
        text = self._network.redact(bytes(self._errors).decode("utf-8", errors="replace"))
        if not self._cut:
            return _REPLACED_PROGRESS.sub("", text)
        return f"{CUT_MARK}{_REPLACED_PROGRESS.sub('', text[_CUT_MARGIN:])}"

    def read_all(self, limit: int) -> bytes:
        """Read all of stdout. Raises: `quota_exceeded` past `limit` bytes."""
        data = self.stdout.read(limit + 1)
        if len(data) > limit:
            raise SandboxError(ErrorCode.QUOTA_EXCEEDED, f"git {self._name} printed more than {limit} bytes")
        return data

    def finish(self) -> None:
        """Read the rest of stdout and wait for the exit. Raises: `timeout`."""
        while not self.stdout.closed and self.stdout.read(_CHUNK):  # `raise_if_cut` has closed it
            pass
        self.code = self._reap()
        self._timer.cancel()
        self._reader.join(timeout=5)
        self.raise_if_stopped()
        if self.code != 0:
            self.raise_if_out_of_memory()

    def stop_on_shutdown(self) -> AbstractContextManager[None]:
        """While the process runs: kill it on shutdown."""
        return self._network.shutdown.stop_on_shutdown(self._kill)

    def raise_if_stopped(self) -> None:
        """Raises: `timeout` if the deadline or the shutdown ended the process."""
        if self._network.shutdown.is_set:
            raise SandboxError(
                ErrorCode.TIMEOUT,
                f"git {self._name} was stopped because this server is shutting down",
                hint="Call again when a new server is running.",
            )
        if self._expired:
            raise SandboxError(
                ErrorCode.TIMEOUT,
                f"git {self._name} did not finish within {self._deadline_s:g} s and was stopped",
                details=self.stderr,
                hint="Try again when the host or the network is less busy.",
            )

    def raise_if_out_of_memory(self) -> None:
        """Raises: `quota_exceeded` if a local git says that it was refused memory."""
        error = memory_error(self._name, self.stderr) if self._network.protocol == "none" else None
        if error is not None:
            raise error

    def raise_if_cut(self) -> None:
        """End the process. Raises: the error that says why its output was cut, if the deadline or a limit did it."""
        self.close()
        self.raise_if_stopped()
        self.raise_if_out_of_memory()

    def close(self) -> None:
        """Kill what is left of the process group. Safe to call twice."""
        self._timer.cancel()
        self._kill()
        with suppress(OSError):
            self.stdout.close()
        self._reap()
        if self._reader.is_alive():
            self._reader.join(timeout=5)

    def _expire(self) -> None:
        self._expired = True
        self._kill()

    def _reap(self) -> int:
        """Wait for the exit, kill what is left of the process group, and return the exit code. The id of a process that
        was reaped may be given to another one, so no signal is sent after that.
        """
        if self._popen.returncode is None:
            with suppress(ChildProcessError):  # SIGCHLD is ignored
                os.waitid(os.P_PID, self._popen.pid, os.WEXITED | os.WNOWAIT)
                self._kill()
        with self._reaping:
            return int(self._popen.wait())

    def _kill(self) -> None:
        with self._reaping, suppress(ProcessLookupError, PermissionError):
            if self._popen.returncode is None:
                os.killpg(self._popen.pid, signal.SIGKILL)

    def _collect_errors(self) -> None:
        with self._forwarder or nullcontext(), suppress(OSError, ValueError):
            while chunk := self._popen.stderr.read1(_CHUNK):
                self._errors += chunk
                self._cut = self._cut or len(self._errors) > _STDERR_LIMIT
                del self._errors[:-_STDERR_LIMIT]  # the reason comes last
                self._report_progress(chunk)
            self._popen.stderr.close()

    def _report_progress(self, chunk: bytes) -> None:
        if self._forwarder is not None:
            for line in self._lines.split(chunk)[-1:]:
                self._forwarder.forward(self._network.redact(line))


class LineSplitter:
    """Splits a stream of chunks into whole lines: a chunk may end inside a secret that must not be shown."""

    def __init__(self) -> None:
        self._rest = b""
        self._too_long = False

    def split(self, chunk: bytes) -> list[str]:
        """The lines that end in this chunk. Blank lines and lines over the limit are dropped."""
        *ended, rest = (self._rest + chunk).replace(b"\r", b"\n").split(b"\n")
        if self._too_long and ended:
            ended, self._too_long = ended[1:], False
        self._too_long = self._too_long or len(rest) > _LINE_LIMIT
        self._rest = b"" if self._too_long else rest
        texts = (line.decode("utf-8", errors="replace").strip() for line in ended if len(line) <= _LINE_LIMIT)
        return [text for text in texts if text]


def _start_process(command: CommandLine, stdin: IO[bytes] | None, directory: str) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(  # noqa: S603 - `build_command_line` made it
            command.argv,
            env=command.environment,
            stdin=stdin or subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=directory,
            start_new_session=True,
            umask=_UMASK,
        )
    except OSError as error:
        raise translate_shortage(error) or SandboxError(
            ErrorCode.INTERNAL, "git cannot be started", details=str(error)
        ) from error


def _start_network_process(
    network: NetworkAccess, command: CommandLine, stdin: IO[bytes] | None, directory: str
) -> Any:
    from sandbox.git.gitpython import GitPython  # noqa: PLC0415 - loaded by the first network command: ADR 0080

    handle: Any = GitPython(working_dir=directory).execute(
        command.through_env(),
        istream=stdin,  # type: ignore[arg-type]  # a file object; GitPython's annotation says BinaryIO
        as_process=True,
        shell=False,
        start_new_session=True,
        pass_fds=network.fds,
        umask=_UMASK,
    )
    popen = handle.proc
    handle.proc = None  # else GitPython terminates the process in __del__
    return popen


@contextmanager
def spool_input(data: bytes) -> Iterator[IO[bytes] | None]:
    """Provide input as a file, so that a full pipe cannot cause a deadlock. None for no input."""
    if not data:
        yield None
        return
    with tempfile.TemporaryFile() as spool:
        spool.write(data)
        spool.seek(0)
        yield spool


@cache
def git_executable(configured: str = "") -> str:
    """The git that the operator configured, else git on the fixed search path, never on the caller's PATH.

    Raises: `internal` if there is none; `invalid_input` if another user could replace the configured git.
    """
    if configured:
        return require_safe_program(Path(configured))
    found = shutil.which("git", path=SAFE_PATH)
    if found is None:
        raise SandboxError(ErrorCode.INTERNAL, "git is not installed", hint="Install git 2.39 or newer.")
    return found


def git_version(git_dir: Path, executable: str = "") -> str:
    """Output of `git version`; empty if git is missing."""
    try:
        return Git(git_dir, executable).run("version").decode(errors="replace").strip()
    except SandboxError:
        return ""
