"""The unit suite's surroundings: no engine, no network, a home of its own for each test, and real git."""

from __future__ import annotations

import ctypes
import gc
import itertools
import os
import shutil
import struct
import subprocess
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import docker
import docker.api.client
import pytest
from hypothesis import HealthCheck, settings

from devtools.made_repositories import commit_all, make_empty
from devtools.requirement import unavailable
from sandbox.engine.socket_api import SocketApi
from sandbox.errors import ErrorCode, SandboxError
from sandbox.git.cache_clones import refresh
from sandbox.git.process import Git
from sandbox.git.transport import RemoteAccess
from sandbox.remotes import parse_remote

# One home serves all examples of a property, hence the suppressed check. Derandomized: red means the change, not luck.
settings.register_profile(
    "unit",
    max_examples=60,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
settings.load_profile("unit")

ROOT = Path(__file__).parents[2]
SLOW = {
    "agent/test_launch.py", "attack/test_runner.py", "daemon/test_failed_hand_over.py", "daemon/test_kills.py",
    "daemon/test_preload.py", "images/test_node_check.py", "cluster/test_server_thread.py",
    "cluster/test_task_history.py", "daemon/test_webhooks.py", "dependencies/test_perl_install.py",
    "engine/test_endpoint.py", "store/test_shared_store.py",
    "daemon/test_socket_activation.py", "devtools/test_forked.py", "devtools/test_host_speed.py",
    "devtools/test_reference.py", "devtools/test_suite_groups.py", "devtools/test_words.py",
    "edits/test_patch_property.py",
    "git/test_cache_recovery.py", "git/test_sha256.py", "store/test_journal.py", "store/test_release_folder.py",
    "workbench/controller/test_audit.py", "workbench/tasks/test_snapshots.py", "workbench/tasks/test_edit.py",
    "workbench/tasks/test_looks.py", "workbench/tasks/test_tree_tasks.py",
}  # fmt: skip
"""Modules that start interpreters, clone remotes, go through a whole workbench, explore by the hundred, or wait."""

_SCRUBBED = ("SANDBOX_", "GIT_", "DOCKER_", "XDG_", "SSH_", "GH_", "GITHUB_", "GITLAB_")
_REAL_ENGINE_CLIENT = docker.APIClient.__init__
_REAL_SOCKET_CLIENT = SocketApi.__init__
IDENTITY = {
    "GIT_AUTHOR_NAME": "A. Tester",
    "GIT_AUTHOR_EMAIL": "a@example.invalid",
    "GIT_AUTHOR_DATE": "1700000000 +0000",
    "GIT_COMMITTER_NAME": "A. Tester",
    "GIT_COMMITTER_EMAIL": "a@example.invalid",
    "GIT_COMMITTER_DATE": "1700000000 +0000",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow: the modules above, and every test with a remote of its own, which costs a dozen git processes."""
    here = Path(__file__).parent
    paths = {item.path for item in items}
    slow = {path: str(path.relative_to(here)) in SLOW for path in paths if path.is_relative_to(here)}
    for item in items:  # this hook sees the items of the whole session
        if item.path in slow and (slow[item.path] or "upstream" in getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session", autouse=True)
def scrubbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No configuration from outside, for fixtures of any scope."""
    with pytest.MonkeyPatch.context() as patched:
        for name in list(os.environ):
            if name.startswith(_SCRUBBED):
                patched.delenv(name)
        patched.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        yield


@pytest.fixture(scope="session")
def unused_homes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Paths for a home each: `mktemp` would look for a number that is free before each test."""
    folder = tmp_path_factory.mktemp("homes")
    return (folder / str(number) for number in itertools.count())


@pytest.fixture(autouse=True)
def surroundings(unused_homes: Iterator[Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of the test's own, and an engine client that cannot be made."""

    def refuse(*_: object, **__: object) -> NoReturn:
        raise AssertionError("a unit test reached for the container engine")

    home = next(unused_homes)
    home.mkdir(mode=0o700)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr(docker.api.client.APIClient, "__init__", refuse)
    monkeypatch.setattr(docker.DockerClient, "__init__", refuse)
    monkeypatch.setattr(SocketApi, "__init__", refuse)
    return home


@pytest.fixture
def engine_client_allowed(surroundings: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """For tests of endpoints where nothing answers. SDK 7.2 leaves a unix socket that it cannot connect unclosed."""
    monkeypatch.setattr(docker.api.client.APIClient, "__init__", _REAL_ENGINE_CLIENT)
    monkeypatch.setattr(SocketApi, "__init__", _REAL_SOCKET_CLIENT)
    gc.disable()  # what the test makes stays in the youngest generation: all of the heap takes up to two seconds
    try:
        yield
    finally:
        gc.enable()
        gc.collect(0)


def run(
    argv: list[str], *, cwd: Path = Path("/"), stdin: bytes = b"", env: Mapping[str, str] | None = None, code: int = 0
) -> bytes:
    """Run a program to its end and return stdout; its exit code must be `code`."""
    done = subprocess.run(
        argv, cwd=cwd, input=stdin, env={**os.environ, **(env or {})}, capture_output=True, check=False, timeout=60
    )
    assert done.returncode == code, done.stderr.decode(errors="replace")
    return done.stdout


@dataclass(frozen=True)
class Upstream:
    """A repository made with plain git, as its owner would: the oracle and the remote of a test."""

    root: Path

    def git(self, *args: str, stdin: bytes = b"", env: Mapping[str, str] | None = None, code: int = 0) -> bytes:
        """Plain git in the repository."""
        return run(["git", *args], cwd=self.root, stdin=stdin, env={**IDENTITY, **(env or {})}, code=code)

    def write(self, path: str, content: bytes = b"", *, executable: bool = False) -> Path:
        """Make a file with its directories."""
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        target.chmod(0o755 if executable else 0o644)
        return target

    def commit(self, message: str = "a change") -> str:
        """Commit everything; returns the commit id."""
        commit_all(self.root, message, lambda: self._commit(message))
        head = (self.git_dir / "HEAD").read_text().strip()  # thousands of tests commit: a process less for each
        branch = self.git_dir / head.removeprefix("ref: ")
        return branch.read_text().strip() if head.startswith("ref: ") and branch.is_file() else self.oid("HEAD")

    def _commit(self, message: str) -> None:
        self.git("add", "-A", "--force")
        self.git("-c", "maintenance.auto=false", "commit", "--quiet", "--allow-empty", "-m", message)

    def oid(self, revision: str) -> str:
        """Full object id of a revision."""
        return self.git("rev-parse", "--verify", revision).decode().strip()

    @property
    def git_dir(self) -> Path:
        return self.root / ".git"


def add_submodule(parent: Upstream, path: str, url: str, commit: str) -> str:
    """Record a submodule and commit, without git's own submodule commands."""
    listed = parent.root / ".gitmodules"
    before = listed.read_text() if listed.exists() else ""
    listed.write_text(f'{before}[submodule "{path}"]\n\tpath = {path}\n\turl = {url}\n')
    parent.git("add", ".gitmodules")
    parent.git("update-index", "--add", "--cacheinfo", f"160000,{commit},{path}")
    parent.git("commit", "--quiet", "-m", f"submodule {path}")
    return parent.oid("HEAD")


def access_to(url: str, known_hosts: Path) -> RemoteAccess:
    """Access to a remote without any credential."""
    return RemoteAccess(parse_remote(url, allow_file=True, allow_http=True), None, known_hosts, {})


@pytest.fixture
def upstream(tmp_path: Path) -> Upstream:
    """An empty repository on branch main."""
    return initialised(tmp_path / "upstream")


def initialised(root: Path) -> Upstream:
    """Make an empty repository on branch main; for fixtures of a wider scope."""
    root.mkdir(exist_ok=True)
    make_empty(root, lambda: _init(root))
    return Upstream(root)


def _init(root: Path) -> None:
    run(["git", "init", "--quiet", "--template=", "--initial-branch=main"], cwd=root)  # no samples of hooks
    for name in ("hooks", "info"):
        (root / ".git" / name).mkdir(exist_ok=True)


@pytest.fixture
def cached(tmp_path: Path) -> Callable[[Upstream], Git]:
    """Fetch an upstream into a cache clone and give git on it."""

    def make(source: Upstream) -> Git:
        path = tmp_path / "clones" / "cache"
        refresh(path, access_to(str(source.root), tmp_path / "known_hosts"))
        return Git(path)

    return make


@contextmanager
def refused(*codes: ErrorCode) -> Iterator[pytest.ExceptionInfo[SandboxError]]:
    """The block raises a SandboxError with one of these codes."""
    with pytest.raises(SandboxError) as caught:
        yield caught
    assert caught.value.code in codes, f"{caught.value.code}: {caught.value.brief} {caught.value.details}"


def compiled(source: Path, binary: Path, *options: str) -> Path:
    """A static program of ours, as readable for every user as its folder."""
    compiler = shutil.which("gcc")
    if compiler is None or os.geteuid() != 0 or shutil.which("setpriv") is None:
        unavailable("The supervisor's tests need gcc and libc6-dev, setpriv, and root for a pid namespace")
    flags = ["-std=c11", "-static", "-O2", "-Wall", "-Wextra", "-Werror", *options]
    subprocess.run([compiler, *flags, "-o", binary, source], check=True, timeout=120)
    return binary


@contextmanager
def open_folder(mode: int) -> Iterator[Path]:
    """A directory that other users reach, as pytest's own are not."""
    with tempfile.TemporaryDirectory(prefix="sandbox-test-") as name:
        folder = Path(name)
        folder.chmod(mode)
        yield folder


@pytest.fixture
def folder() -> Iterator[Path]:
    with open_folder(0o777) as found:
        yield found


@pytest.fixture(scope="session")
def supervisor() -> Iterator[Path]:
    """The guest's PID 1."""
    with open_folder(0o755) as found:
        yield compiled(ROOT / "images" / "init" / "init.c", found / "init", "-fstack-protector-strong")


@pytest.fixture(scope="session")
def attacks() -> Iterator[Path]:
    """What a check may try against it."""
    with open_folder(0o755) as found:
        yield compiled(ROOT / "tests" / "data" / "guest-attacks.c", found / "guest-attacks", "-pthread")


def without_root_powers(act: Callable[[], object]) -> bool:
    """Whether `act` succeeds in a child process that has no capability, so that file modes hold for root too."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1] == 0
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        header = struct.pack("=Ii", 0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3, this process; capset(2)
        if libc.capset(header, bytes(24)) != 0:
            os._exit(3)
        act()
        os._exit(0)
    except BaseException:  # noqa: BLE001 - the child must end here, whatever happened
        traceback.print_exc()
        os._exit(1)
