"""What can go wrong between us and a real server, and the typed error that each becomes; then the next try works."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from devtools.command import Command, Ended
from devtools.gitserver import Answer, GitServer, Recorder, Tunnel, introduce
from devtools.gitserver.keys import Identity, make_ssh_key
from devtools.gitserver.tunnel import How

pytestmark = pytest.mark.xdist_group("network")  # mostly waits; each process has its own server

MID_PACK = 60_000  # past the handshakes and the refs, far from the end of the pack
PACK = 300_000
TRIES = "(tried 3 times)"


@dataclass(frozen=True)
class Site:
    """A repository that pours incompressible bytes, seen through tunnels that a test can break."""

    server: GitServer
    https: Tunnel
    ssh: Tunnel
    name: str
    sandbox: Command

    def url(self, protocol: str, name: str = "", port: int | None = None) -> str:
        login, tunnel = ("git@", self.ssh) if protocol == "ssh" else ("", self.https)
        return f"{protocol}://{login}127.0.0.1:{port or tunnel.port}/acme/{name or self.name}.git"

    def clone(self, url: str) -> Ended:
        return self.sandbox("repo", "clone", url, "--json")

    def clone_at_once(self, *urls: str, **env: str) -> list[Ended]:
        """Commands that mostly wait, side by side."""
        sandbox = Command(self.sandbox.home, env)
        with ThreadPoolExecutor(len(urls)) as pool:
            return list(pool.map(lambda url: sandbox("repo", "clone", url, "--json"), urls))


@pytest.fixture(scope="module")
def repository(git_server: GitServer, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("noise")
    (folder / "noise").write_bytes(os.urandom(PACK))
    name = f"openssl-certificate-redirect-fsck-{uuid.uuid4().hex[:8]}"  # words of a name decide nothing
    git_server.seed("acme", name, folder)
    return name


@pytest.fixture
def site(git_server: GitServer, repository: str, sandbox: Command) -> Iterator[Site]:
    with Tunnel(git_server.https_port) as https, Tunnel(git_server.ssh_port) as ssh:
        yield Site(git_server, https, ssh, repository, sandbox)


@contextmanager
def closed_port() -> Iterator[int]:
    """Ours, so nobody else's, and not listening."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


def assert_nothing_is_left(home: Path) -> None:
    assert list((home / "repositories" / "clones").iterdir()) == []
    assert not list(home.rglob("*.incoming*"))


def assert_typed(site: Site, ended: Ended, code: str) -> dict[str, str]:
    """One document with that code, nothing of git around it, no secret, no half clone."""
    error = ended.error
    assert (error["code"], ended.code) == (code, 5), error
    assert ended.stdout.count("\n") == 1
    assert not {"fatal:", "error:", "remote:", "ssh:"} & set(error["brief"].split())
    assert site.server.password not in ended.stdout + ended.stderr
    assert_nothing_is_left(site.sandbox.home)
    return error


# What breaks, for how long; each takes the site. The server is whole after the block.
Situation = Callable[[Site], AbstractContextManager[object]]


def answers(status: int, **headers: str) -> Situation:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda site: site.server.failing(Answer(status, named, "no\n"))


def breaks(protocol: str, how: How, after: int) -> Situation:
    return lambda site: getattr(site, protocol).breaking(how, after=after)


def impostor(identity: Identity) -> Situation:
    @contextmanager
    def lead(site: Site) -> Iterator[None]:
        with Recorder(site.server.tls(identity)) as other, site.https.leading_to(other.port):
            yield
        assert other.requests == []  # not one byte of HTTP, so no credential

    return lead


def knows(password: str | None = None, *, ssh_key: bool = True) -> Situation:
    @contextmanager
    def forget(site: Site) -> Iterator[None]:
        home, server = site.sandbox.home, site.server
        wrong = home.parent / "wrong_key"
        wrong.touch(mode=0o600)
        wrong.write_bytes(make_ssh_key()[0])
        introduce(home, server, password=password, ssh_key=None if ssh_key else wrong)
        yield
        introduce(home, server)

    return forget


thorough = pytest.mark.thorough
"""Other words of git for what another parameter or test here shows."""


@pytest.mark.parametrize(
    ("protocol", "situation", "code", "tried"),
    [
        pytest.param("https", knows("Wr0ng"), "auth_failed", 1, id="wrong-password"),
        pytest.param("https", knows(""), "auth_failed", 1, id="no-password", marks=thorough),
        pytest.param("ssh", knows(ssh_key=False), "auth_failed", 1, id="wrong-ssh-key"),
        pytest.param("https", answers(403), "auth_failed", 1, id="http-403", marks=thorough),
        pytest.param("https", answers(404), "remote_not_found", 1, id="http-404"),
        pytest.param("https", answers(429, Retry_After="1"), "network_error", 3, id="http-429", marks=thorough),
        pytest.param("https", answers(500), "network_error", 3, id="http-500", marks=thorough),
        pytest.param("https", answers(503, Retry_After="1"), "network_error", 3, id="http-503"),
        pytest.param("https", breaks("https", "reset", MID_PACK), "network_error", 3, id="https-reset-mid-pack"),
        pytest.param("https", breaks("https", "corrupt", MID_PACK), "network_error", 3, id="https-corrupt-mid-pack"),
        pytest.param("ssh", breaks("ssh", "reset", MID_PACK), "network_error", 3, id="ssh-reset-mid-pack"),
        pytest.param("https", impostor("unknown-ca"), "network_error", 1, id="tls-unknown-ca"),
        pytest.param("https", impostor("expired"), "network_error", 1, id="tls-expired", marks=thorough),
        pytest.param("https", impostor("wrong-name"), "network_error", 1, id="tls-wrong-name"),
    ],
)
def test_a_failure_is_typed_leaves_nothing_and_the_next_try_succeeds(
    request: pytest.FixtureRequest, site: Site, protocol: str, situation: Situation, code: str, tried: int
) -> None:
    if protocol == "ssh":
        request.getfixturevalue("ssh_client")
    with situation(site):
        failed = site.clone(site.url(protocol))

    error = assert_typed(site, failed, code)
    assert (TRIES in error["details"]) == (tried == 3), error
    healthy = site.clone(site.url(protocol))
    assert healthy.code == 0, healthy.stdout
    assert healthy.json["repository"]["name"] == site.name


@pytest.mark.usefixtures("ssh_client")
@pytest.mark.parametrize("protocol", ["https", "ssh"])
def test_a_repository_that_is_not_there_is_remote_not_found(site: Site, protocol: str) -> None:
    error = assert_typed(site, site.clone(site.url(protocol, "no-such-thing")), "remote_not_found")

    assert TRIES not in error["details"]


@pytest.mark.usefixtures("ssh_client")
def test_closed_ports_and_unknown_hosts_are_network_errors(site: Site) -> None:
    with closed_port() as port:
        failed = site.clone_at_once(
            site.url("https", port=port),
            site.url("ssh", port=port),
            "https://no-such-host.invalid/acme/x.git",
            "ssh://no-such-host.invalid/acme/x.git",
        )

    assert all(TRIES in assert_typed(site, ended, "network_error")["details"] for ended in failed)


@pytest.mark.usefixtures("ssh_client")
@pytest.mark.parametrize("after", [0, MID_PACK], ids=["never-answers", "mid-pack"])
def test_a_server_that_stalls_is_a_timeout_after_the_configured_time(site: Site, after: int) -> None:
    urls = site.url("https"), site.url("ssh")
    with site.https.breaking("stall", after=after) as https, site.ssh.breaking("stall", after=after) as ssh:
        stalled = site.clone_at_once(*urls, SANDBOX_REMOTES_TIMEOUT_S="4")

    assert https.tripped.is_set()
    assert ssh.tripped.is_set()
    assert all("4 s" in assert_typed(site, ended, "timeout")["brief"] for ended in stalled)
    assert [ended.code for ended in site.clone_at_once(*urls)] == [0, 0]


@pytest.mark.usefixtures("ssh_client")
def test_a_changed_host_key_says_so_and_what_to_do_and_brings_no_data(site: Site) -> None:
    url = site.url("ssh")
    assert site.clone(url).code == 0
    with site.server.changed_host_key():
        changed = site.clone(url)

    error = changed.error
    assert (error["code"], changed.code) == ("auth_failed", 5)
    assert "host key" in error["brief"]
    assert "known_hosts" in error["hint"]
    assert TRIES not in error["details"]
    assert site.clone(url).code == 0


@pytest.mark.usefixtures("ssh_client")
@pytest.mark.parametrize(
    ("protocol", "situation"),
    [
        ("https", lambda site: site.server.failing(Answer(503, {"Retry-After": "1"}), times=2)),
        ("https", lambda site: site.https.breaking("reset", after=MID_PACK, times=1)),
        ("ssh", lambda site: site.ssh.breaking("reset", after=MID_PACK, times=1)),
        ("https", lambda site: site.https.breaking("reset", times=2)),
    ],
    ids=["503-twice", "https-reset-mid-pack-once", "ssh-reset-mid-pack-once", "https-reset-at-once-twice"],
)
def test_a_passing_failure_is_retried_and_the_clone_succeeds(site: Site, protocol: str, situation: Situation) -> None:
    with situation(site):
        ended = site.clone(site.url(protocol))

    assert ended.code == 0, ended.stdout
    assert re.search(r"(?m)^trying again in \d+ s: ", ended.stderr), ended.stderr


def test_words_of_a_server_are_shown_without_their_escapes_and_addresses(site: Site) -> None:
    nasty = "\x1b[31mgo to https://bot:hunter2@evil.example/ \x1b]0;title\x07\n"
    with site.server.failing(Answer(403, text=nasty)):
        refused = site.clone(site.url("https"))

    error = assert_typed(site, refused, "auth_failed")
    assert "evil.example" in error["details"]  # the positive control: git did show it
    assert "hunter2" not in refused.stdout + refused.stderr
    assert not {"\x1b", "\x07"} & set("".join(error.values()) + refused.stderr)


def test_a_redirect_to_another_host_gets_neither_a_request_nor_the_credential(site: Site, tmp_path: Path) -> None:
    with Recorder(site.server.tls()) as other:
        target = f"https://127.0.0.1:{other.port}/acme/{site.name}.git/info/refs?service=git-upload-pack"
        with site.server.failing(Answer(302, {"Location": target})):  # by the one who has our credential
            late = site.clone(site.url("https"))
        with Recorder(site.server.tls(), target) as sender, site.https.leading_to(sender.port):  # by one who has not
            early = site.clone(site.url("https"))
            ours = list(other.requests)
            lax_git(site, tmp_path)

    assert ours == []
    for refused in (early, late):
        error = assert_typed(site, refused, "network_error")
        assert TRIES not in error["details"]
        assert "redirect" in error["brief"]
    assert [h["Authorization"] for h in other.requests if "Authorization" in h], "control: a lax git gives it away"


def lax_git(site: Site, folder: Path) -> None:
    """Plain git with a helper for every host, that follows redirects."""
    helper = f"!f() {{ echo username={site.server.username}; echo 'password={site.server.password}'; }}; f"
    client = site.server.client(with_password=False)
    options = ("-c", f"credential.helper={helper}", "-c", "http.followRedirects=true")
    with contextlib.suppress(subprocess.CalledProcessError):
        client.run(*options, "ls-remote", site.url("https"), cwd=folder)
