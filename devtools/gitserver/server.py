"""The server's life: one container per `with GitServer(...)` block, on this host's loopback, always removed.

Host network, because published ports need a working bridge and some hosts have none; every listener binds 127.0.0.1.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import ssl
import subprocess
import tempfile
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import docker.errors
import requests
import tenacity
from docker.models.containers import Container
from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer, ExecConfig
from testcontainers.core.image import DockerImage

from devtools.gitserver.client import GitClient
from devtools.gitserver.faults import Answer
from devtools.gitserver.keys import Identity, make_secrets, make_ssh_key, tls_context
from devtools.gitserver.leftovers import labels, remove_leftovers

BASE_IMAGE = "space-sandbox/base:latest"
IMAGE_TAG = "space-sandbox/test-gitserver:latest"
READY_DEADLINE_S = 30.0
_READS = 5
_PROXY_VARIABLES = ("http_proxy", "https_proxy", "no_proxy")
_NAME = re.compile(r"^[A-Za-z0-9_][A-Za-z0-9._-]*$")


class GitServerError(Exception):
    """The server did not come up, or refused an order of ours; the text has its words."""


@dataclass(frozen=True)
class LogEntry:
    """One commit as the server has it, newest first in a list."""

    oid: str
    author: str
    subject: str


class GitServer:
    """Any number of bare repositories `OWNER/NAME.git`, each reachable over https and over ssh.

    `session` goes into the container's label; the image is built on `base_image` when the engine has it not cached.
    """

    def __init__(self, session: str = "", *, base_image: str = BASE_IMAGE) -> None:
        self.session = session or uuid.uuid4().hex
        self._folder = Path(tempfile.mkdtemp(prefix="gitserver-"))
        self._secrets = make_secrets(self._folder)
        self._base_image = base_image
        self._container: DockerContainer | None = None
        self.username = self._secrets.username
        self.password = self._secrets.password
        self.ca_file = self._secrets.ca_file
        self.ssh_key_file = self._secrets.ssh_key_file
        self.https_port = 0
        self.ssh_port = 0

    def __enter__(self) -> Self:
        try:
            with _translated("build"):
                self._build()
            # Free ports are picked here and bound there: another process may come first, so once more on defeat.
            retry = tenacity.Retrying(
                stop=tenacity.stop_after_attempt(3),
                retry=tenacity.retry_if_exception_type(GitServerError),
                reraise=True,
            )
            retry(self._start)
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    @property
    def https_host(self) -> str:
        """`host:port`, as a credentials file names it."""
        return f"127.0.0.1:{self.https_port}"

    @property
    def ssh_host(self) -> str:
        """`host:port`, as a credentials file names it."""
        return f"127.0.0.1:{self.ssh_port}"

    def https_url(self, owner: str, name: str) -> str:
        """`https://127.0.0.1:PORT/OWNER/NAME.git`, without credentials."""
        return f"https://{self.https_host}/{_path(owner, name)}"

    def ssh_url(self, owner: str, name: str) -> str:
        """`ssh://git@127.0.0.1:PORT/OWNER/NAME.git`."""
        return f"ssh://git@{self.ssh_host}/{_path(owner, name)}"

    def create(self, owner: str, name: str) -> str:
        """Make an empty bare repository whose HEAD is `main`; its https URL."""
        self._exec("git", "init", "--quiet", "--bare", "--initial-branch=main", f"/srv/git/{_path(owner, name)}")
        return self.https_url(owner, name)

    def create_at_home(self, path: str) -> None:
        """Make an empty bare repository below the home of the account `alice`, whom ssh serves as a plain server."""
        self._exec("git", "init", "--quiet", "--bare", "--initial-branch=main", f"/home/alice/{path}", user="alice")

    def seed(self, owner: str, name: str, directory: Path, message: str = "Import") -> str:
        """Create the repository and push all of `directory` (ignored files too) as one commit on `main`; its id.

        Author, date and message are fixed, so equal content gives an equal commit.
        """
        url = self.create(owner, name)
        directory = directory.resolve()
        with _translated("seed"), tempfile.TemporaryDirectory(prefix="seed-") as scratch:
            git_dir = Path(scratch) / "seed.git"
            client = self.client()
            local = (f"--git-dir={git_dir}", f"--work-tree={directory}")
            client.run("init", "--quiet", "--bare", "--initial-branch=main", str(git_dir))
            client.run(*local, "add", "--all", "--force", ".", cwd=directory)
            client.run(*local, "commit", "--quiet", "--allow-empty", f"--message={message}")
            client.run(*local, "push", "--quiet", url, "refs/heads/main:refs/heads/main")
            return client.run(*local, "rev-parse", "HEAD").strip()

    def move_ref(self, owner: str, name: str, ref: str, target: str) -> None:
        """Set a ref of any kind, as a forge does for pull requests; `target`: a commit id or ref of the repository."""
        self._exec("git", "-C", f"/srv/git/{_path(owner, name)}", "update-ref", ref, target)

    def branches(self, owner: str, name: str) -> dict[str, str]:
        """Branch name to commit id, read in the server's own repository."""
        lines = self._git(owner, name, "for-each-ref", "--format=%(objectname) %(refname:lstrip=2)", "refs/heads")
        return {branch: oid for oid, _, branch in (line.partition(" ") for line in lines)}

    def log(self, owner: str, name: str, branch: str = "main", limit: int = 50) -> list[LogEntry]:
        """The newest commits of a branch, read in the server's own repository."""
        arguments = (f"--max-count={limit}", "--format=%H%x09%an%x09%s", f"refs/heads/{branch}", "--")
        return [LogEntry(*line.split("\t", 2)) for line in self._git(owner, name, "log", *arguments)]

    def ahead(self, owner: str, name: str, base: str, head: str) -> int:
        """How many commits `head` has that `base` has not; both by id."""
        return int(self._git(owner, name, "rev-list", "--count", f"{base}..{head}")[0])

    def show(self, owner: str, name: str, branch: str, path: str) -> bytes:
        """The content of one file at the tip of a branch, read in the server's own repository."""
        return self._read("git", "-C", f"/srv/git/{_path(owner, name)}", "show", f"refs/heads/{branch}:{path}")

    def client(self, *, with_password: bool = True, with_key: bool = True, password: str | None = None) -> GitClient:
        """Plain git with its own HOME that trusts this server, and the credentials asked for."""
        return GitClient(
            folder=Path(tempfile.mkdtemp(prefix="client-", dir=self._folder)),
            ca_file=self.ca_file,
            known_hosts=f"[127.0.0.1]:{self.ssh_port} {self._secrets.host_public_key}\n",
            username=self.username if with_password else None,
            password=(password or self.password) if with_password else None,
            ssh_key_file=self.ssh_key_file if with_key else None,
        )

    def tls(self, identity: Identity = "right") -> ssl.SSLContext:
        """A certificate of this server's CA for a listener in the test, or one that is wrong in one way."""
        return tls_context(self._secrets.authority, identity)

    @contextmanager
    def failing(self, answer: Answer, times: int | None = None) -> Iterator[None]:
        """Every request over https that passed authentication gets `answer` instead of git's; or only the next few."""
        names = ["always"] if times is None else [str(number) for number in range(times)]
        try:
            for name in names:
                self._exec("sh", "-c", 'printf %s "$1" >/run/faults/.new; mv /run/faults/.new "/run/faults/$2"', "sh",
                           answer.cgi(), name)  # fmt: skip
            yield
        finally:
            self._exec("find", "/run/faults", "-type", "f", "-delete")

    @contextmanager
    def saying(self, words: str) -> Iterator[None]:
        """Every fetch, over either protocol, says these words among its progress."""
        hook = "/srv/git/.saying"
        script = f'#!/bin/sh\ncat {hook}.words >&2\nexec "$@"\n'
        try:
            for name, content in ((f"{hook}.words", f"{words}\n"), (hook, script)):
                self._exec("sh", "-c", 'printf %s "$2" >"$1"; chmod 755 "$1"', "sh", name, content)
            self._exec("git", "config", "--system", "uploadpack.packObjectsHook", hook, user="root")
            yield
        finally:
            self._exec("git", "config", "--system", "--unset-all", "uploadpack.packObjectsHook", user="root")

    @contextmanager
    def hook(self, owner: str, name: str, event: str, script: str) -> Iterator[None]:
        """The repository runs this shell script at one event, such as `pre-receive`, over either protocol."""
        path = f"/srv/git/{_path(owner, name)}/hooks/{event}"
        try:
            words = 'mkdir -p "${1%/*}"; printf "#!/bin/sh\\n%s\\n" "$2" >"$1"; chmod 755 "$1"'
            self._exec("sh", "-c", words, "sh", path, script)
            yield
        finally:
            self._exec("rm", "-f", path)

    @contextmanager
    def changed_host_key(self) -> Iterator[None]:
        """The ssh server has another host key for a while, as after a new installation or with an impostor."""
        private, public = make_ssh_key()
        try:
            self._use_host_key(private, public)
            yield
        finally:
            self._use_host_key(self._secrets.server_files["host_key"], self._secrets.host_public_key)

    def _use_host_key(self, private: bytes, public: str) -> None:
        script = 'printf %s "$1" >/etc/gitserver/host_key; kill -HUP "$(cat /run/sshd.pid)"'
        self._exec("sh", "-c", script, "sh", private.decode(), user="root")
        retry = tenacity.Retrying(
            stop=tenacity.stop_after_delay(READY_DEADLINE_S),
            wait=tenacity.wait_fixed(0.05),
            retry=tenacity.retry_if_result(lambda seen: public.split()[1] not in seen),
        )
        retry(self._scan_host_key)

    def _scan_host_key(self) -> str:
        argv = ["ssh-keyscan", "-T", "5", "-t", "ed25519", "-p", str(self.ssh_port), "127.0.0.1"]
        return self._exec("sh", "-c", '"$@" 2>/dev/null || true', "sh", *argv).decode()

    def _git(self, owner: str, name: str, *arguments: str) -> list[str]:
        return self._read("git", "-C", f"/srv/git/{_path(owner, name)}", *arguments).decode().splitlines()

    def _read(self, *argv: str) -> bytes:
        """What a command prints that changes nothing. On a loaded machine engines lose the output of short commands."""
        for _ in range(_READS):
            said = self._exec("sh", "-c", '"$@" && echo .', "sh", *argv)
            if said.endswith(b".\n"):
                return said[:-2]
        raise GitServerError(f"The output of {argv[0]} was lost {_READS} times")

    def _exec(self, *argv: str, user: str = "git") -> bytes:
        if self._container is None:
            raise GitServerError("The server is not running")
        result = self._container.exec(ExecConfig(command=list(argv), user=user))
        if result.exit_code != 0:
            raise GitServerError(f"{argv[0]} failed in the server: {result.output.decode(errors='replace')}")
        return result.output

    def _build(self) -> None:
        proxies = {name: os.environ[name] for name in _PROXY_VARIABLES if name in os.environ}
        image = DockerImage(
            Path(__file__).parent / "image",
            tag=IMAGE_TAG,
            clean_up=False,
            buildargs={"BASE": self._base_image, **proxies},
            network_mode="host",
            rm=True,
            forcerm=True,
        )
        with image:
            remove_leftovers(image.get_docker_client().client)

    def _start(self) -> None:
        testcontainers_config.ryuk_disabled = True  # its reaper is one more image to pull; we remove what we start
        self.https_port, self.ssh_port = _free_ports()
        container = DockerContainer(
            IMAGE_TAG,
            env={"HTTPS_PORT": str(self.https_port), "SSH_PORT": str(self.ssh_port)},
            network_mode="host",
            labels=labels(self.session),
        )
        for name, content in self._secrets.server_files.items():
            container.with_copy_into_container(content, f"/etc/gitserver/{name}", 0o644)
        self._container = container
        try:
            with _translated("start"):
                container.start()
            self._wait_until_ready(container)
        except BaseException:
            self._stop()
            raise

    def _wait_until_ready(self, container: DockerContainer) -> None:
        wrapped = container.get_wrapped_container()

        def probe() -> None:
            wrapped.reload()
            if wrapped.status != "running":
                raise GitServerError(f"The git server ended\n{_tail(wrapped)}")
            self._probe_https()
            self._probe_ssh()

        retry = tenacity.Retrying(
            stop=tenacity.stop_after_delay(READY_DEADLINE_S),
            wait=tenacity.wait_fixed(0.05),
            retry=tenacity.retry_if_exception_type(OSError),
            reraise=True,
        )
        try:
            retry(probe)
        except OSError as error:
            raise GitServerError(f"The git server did not answer: {error}\n{_tail(wrapped)}") from error

    def _probe_https(self) -> None:
        url = f"{self.https_url('ready', 'probe')}/info/refs?service=git-upload-pack"
        passwords = urllib.request.HTTPPasswordMgrWithPriorAuth()
        passwords.add_password(None, url, self.username, self.password, is_authenticated=True)
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}),
            urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=str(self.ca_file))),
            urllib.request.HTTPBasicAuthHandler(passwords),
        )
        with opener.open(url, timeout=5) as answer:
            answer.read()

    def _probe_ssh(self) -> None:
        with socket.create_connection(("127.0.0.1", self.ssh_port), timeout=5) as connection:
            if not connection.recv(32).startswith(b"SSH-2.0"):
                raise ConnectionError("no ssh greeting")

    def _stop(self) -> None:
        container, self._container = self._container, None
        if container is not None:
            container.stop()

    def _remove(self) -> None:
        try:
            self._stop()
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)


@contextmanager
def _translated(action: str) -> Iterator[None]:
    try:
        yield
    except docker.errors.BuildError as error:
        words = "".join(str(entry.get("stream", "")) for entry in error.build_log if isinstance(entry, dict))
        raise GitServerError(f"Cannot {action} the git server: {error}\n{words[-2000:]}") from error
    except subprocess.CalledProcessError as error:
        raise GitServerError(f"Cannot {action} the git server: {error.stderr}") from error
    except (docker.errors.DockerException, requests.RequestException) as error:
        raise GitServerError(f"Cannot {action} the git server: {error}") from error


def _tail(container: Container) -> str:
    return container.logs(tail=20).decode(errors="replace")


def _path(owner: str, name: str) -> str:
    if not (_NAME.match(owner) and _NAME.match(name)):
        raise GitServerError(f"Not a repository name: {owner}/{name}")
    return f"{owner}/{name}.git"


def _free_ports() -> tuple[int, int]:
    with socket.socket() as first, socket.socket() as second:
        for probe in (first, second):
            probe.bind(("127.0.0.1", 0))
        return first.getsockname()[1], second.getsockname()[1]
