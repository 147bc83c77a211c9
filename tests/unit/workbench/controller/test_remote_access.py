"""Which remotes a controller may use, and with which credential."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox.config import load_settings
from sandbox.errors import ErrorCode, SandboxError
from sandbox.git.shutdown import Shutdown
from sandbox.git.transport import RemoteAccess
from sandbox.store.home import Home
from sandbox.workbench.controller.credential_store import CredentialStore
from sandbox.workbench.controller.remote_access import RemoteConnector, TransferCallbacks

URL = "https://git.example.com/o/n"


@pytest.fixture
def connect(tmp_path: Path) -> Callable[..., RemoteConnector]:
    """A connector of a new home. `entries`: its credentials.toml; `helper`: a secret of the user's git helper."""

    def make(
        entries: str = "",
        helper: str = "",
        *,
        allow_file: bool = True,
        agent: bool = False,
        settings: dict[str, object] | None = None,
    ) -> RemoteConnector:
        home = Home(tmp_path / "home")
        home.prepare()
        (home.root / "credentials.toml").touch(mode=0o600)
        (home.root / "credentials.toml").write_text(entries)
        answer = f"!f() {{ echo username=u; echo password={helper}; }}; f"
        (tmp_path / ".gitconfig").write_text(f'[credential]\n\thelper = "{answer}"\n' if helper else "")
        environ = {"HOME": str(tmp_path), **({"SSH_AUTH_SOCK": "/nonexistent/agent"} if agent else {})}
        ours = {"timeout_s": 7.0, "max_fetch_bytes": 99, **(settings or {})}
        loaded = load_settings(home.root, environ, {"remotes": ours})
        transfers = TransferCallbacks(None, Shutdown())
        return RemoteConnector(home, loaded, environ, CredentialStore(home, environ), allow_file, transfers)

    return make


def entry(host: str, secret: str) -> str:
    return f'[[credential]]\nhost = "{host}"\nsecret = "{secret}"\n'


def refuse_once(secrets: list[str]) -> Callable[[RemoteAccess], str]:
    """An action that the remote refuses at its first call. `secrets`: gets the secret of each call."""

    def act(access: RemoteAccess) -> str:
        secrets.append(access.credential.secret.get_secret_value() if access.credential else "")
        if len(secrets) == 1:
            raise SandboxError(ErrorCode.AUTH_FAILED, "refused")
        return "done"

    return act


def test_a_name_that_is_a_directory_gets_a_hint_in_an_error_of_its_own(
    connect: Callable[..., RemoteConnector], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SandboxError) as found:
        connect().parse("project")
    cause = found.value.__cause__
    assert found.value.hint == "For a directory of this host write a path: ./project"
    assert isinstance(cause, SandboxError)
    assert (cause.code, cause.brief) == (found.value.code, found.value.brief)
    assert cause.hint != found.value.hint


@pytest.mark.parametrize("settings", [{}, {"allow_file": True}], ids=["no local paths", "of an agent"])
def test_who_may_not_look_at_directories_gets_no_such_hint(
    connect: Callable[..., RemoteConnector],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    settings: dict[str, object],
) -> None:
    """An agent would learn which directories this host has, before a person is asked. Control: the test above."""
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SandboxError) as found:
        connect(allow_file=False, settings=settings).parse("project")
    assert "./project" not in found.value.hint


def test_access_has_the_credential_of_the_host_and_the_limits_of_the_settings(
    connect: Callable[..., RemoteConnector],
) -> None:
    remotes = connect(entry("git.example.com", "stored") + entry("other.example.com", "other"))
    access = remotes.get_access(remotes.parse(URL))
    assert access.credential is not None
    assert access.credential.secret.get_secret_value() == "stored"
    assert (access.timeout_s, access.max_fetch_bytes, access.shutdown) == (7.0, 99, remotes.transfers.shutdown)


def test_a_mistake_in_the_credentials_is_reported_at_their_first_use(connect: Callable[..., RemoteConnector]) -> None:
    remotes = connect("no toml")
    remote = remotes.parse(URL)
    with pytest.raises(SandboxError) as found:
        remotes.get_access(remote)
    assert found.value.code is ErrorCode.INVALID_INPUT


def test_a_refused_action_runs_again_with_the_secret_of_the_users_helper(
    connect: Callable[..., RemoteConnector],
) -> None:
    remotes, secrets = connect(helper="of-the-helper"), list[str]()
    assert remotes.run_with_access(remotes.parse(URL), refuse_once(secrets)) == "done"
    assert secrets == ["", "of-the-helper"]


@pytest.mark.parametrize("entries", [entry("git.example.com", "stored"), ""], ids=["stored secret", "no helper"])
def test_a_refused_action_runs_once_if_there_is_no_other_secret(
    connect: Callable[..., RemoteConnector], entries: str
) -> None:
    remotes, secrets = connect(entries, helper="of-the-helper" if entries else ""), list[str]()
    with pytest.raises(SandboxError, match="refused"):
        remotes.run_with_access(remotes.parse(URL), refuse_once(secrets))
    assert len(secrets) == 1


@pytest.mark.parametrize("entries", [entry("git.example.com", "stored"), ""], ids=["stored secret", "none"])
def test_a_refusal_over_http_says_that_no_credential_is_sent(
    connect: Callable[..., RemoteConnector], entries: str
) -> None:
    remotes, secrets = connect(entries, helper="of-the-helper", settings={"allow_http": True}), list[str]()
    with pytest.raises(SandboxError) as found:
        remotes.run_with_access(remotes.parse(URL.replace("https", "http")), refuse_once(secrets))
    assert found.value.code is ErrorCode.AUTH_FAILED
    assert "no credential is sent over http" in found.value.brief
    assert "Store a credential" not in found.value.hint
    assert len(secrets) == 1


def test_the_forge_of_an_ssh_remote_gets_the_credential_for_https(connect: Callable[..., RemoteConnector]) -> None:
    remotes = connect(entry("git.example.com", "stored"))
    found = remotes.find_forge_credential(remotes.parse("ssh://git@git.example.com:2222/o/n"))
    assert found is not None
    assert found.secret.get_secret_value() == "stored"


def test_a_forge_without_a_stored_secret_gets_the_one_of_the_users_helper(
    connect: Callable[..., RemoteConnector],
) -> None:
    remotes = connect(helper="of-the-helper")
    found = remotes.find_forge_credential(remotes.parse(URL))
    assert found is not None
    assert found.secret.get_secret_value() == "of-the-helper"


TOKEN = entry("github.com", "token")
KEY = '[[credential]]\nhost = "github.com"\nssh_key = "/nonexistent/key"\n'


@pytest.mark.parametrize(
    ("url", "entries", "agent", "tried"),
    [
        ("git@github.com:o/n", TOKEN, False, ["https", "ssh"]),
        ("git@github.com:o/n", TOKEN, True, ["ssh", "https"]),
        ("git@github.com:o/n", TOKEN + KEY, False, ["ssh", "https"]),
        ("git@github.com:o/n", "", True, ["ssh"]),
        ("https://github.com/o/n", "", True, ["https", "ssh"]),
        ("https://github.com/o/n", KEY, False, ["ssh", "https"]),
        ("https://github.com/o/n", TOKEN + KEY, True, ["https", "ssh"]),
        ("https://github.com/o/n", "", False, ["https"]),
        ("https://github.com/o/n", TOKEN, False, ["https"]),
        ("git@git.example.com:o/n", entry("git.example.com", "token"), False, ["ssh"]),
        ("https://git.example.com/o/n", KEY, True, ["https"]),
    ],
)
def test_the_protocol_with_a_credential_goes_first_on_a_forge(
    url: str, entries: str, agent: bool, tried: list[str], connect: Callable[..., RemoteConnector]
) -> None:
    remotes = connect(entries, agent=agent)
    seen: list[RemoteAccess] = []

    def refuse(access: RemoteAccess) -> None:
        seen.append(access)
        raise SandboxError(ErrorCode.AUTH_FAILED, f"refused over {access.remote.protocol}")

    with pytest.raises(SandboxError) as found:
        remotes.run_with_access(remotes.parse(url), refuse)
    assert [access.remote.protocol for access in seen] == tried
    assert found.value.brief == f"refused over {tried[0]}"
    assert all(access.remote.url.startswith(f"{access.remote.protocol}://") for access in seen[1:])


def test_the_protocol_that_worked_is_known_and_no_other_failure_is_tried_again(
    connect: Callable[..., RemoteConnector],
) -> None:
    remotes = connect(TOKEN)
    remote = remotes.parse("git@github.com:o/n")
    assert remotes.run_with_access(remote, lambda access: access.remote.url) == "https://github.com/o/n.git"
    assert remotes.find_other_protocol(remote) == "https"
    calls: list[str] = []

    def break_off(access: RemoteAccess) -> None:
        calls.append(access.remote.protocol)
        raise SandboxError(ErrorCode.NETWORK_ERROR, "no network")

    with pytest.raises(SandboxError, match="no network"):
        remotes.run_with_access(remote, break_off)
    assert calls == ["https"]


def test_a_proxy_is_chosen_by_host(connect: Callable[..., RemoteConnector]) -> None:
    ours = {"proxy": "http://proxy.example:3128", "proxies": {"git.Inside.example": "", "far.example": "socks5://p:1"}}
    remotes = connect(settings=ours)
    hosts = {"github.com": "http://proxy.example:3128", "git.inside.example": "", "far.example": "socks5://p:1"}
    for host, proxy in hosts.items():
        assert remotes.get_access(remotes.parse(f"https://{host}/o/n")).proxy == proxy
