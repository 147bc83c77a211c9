"""Secrets go to their host and nowhere else: no repr, no error, no dump."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import SecretStr

from sandbox.credentials import Credential, find_credential, list_secret_texts, load_credentials, remove_secret
from sandbox.errors import ErrorCode
from tests.unit.conftest import refused

SECRET = "hunter2-s3cr3t"
ENTRY = f'[[credential]]\nhost = "git.example.org"\nusername = "bot"\nsecret = "{SECRET}"\n'


def stored(home: Path, text: str, mode: int = 0o600) -> Path:
    path = home / "credentials.toml"
    path.write_text(text)
    path.chmod(mode)
    return home


def test_no_file_and_no_token_is_no_credential(tmp_path: Path) -> None:
    assert load_credentials(tmp_path, {}) == ()


def test_an_entry_of_the_file_is_loaded(tmp_path: Path) -> None:
    (found,) = load_credentials(stored(tmp_path, ENTRY), {})
    assert (found.host, found.username, found.secret.get_secret_value()) == ("git.example.org", "bot", SECRET)


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660, 0o601], ids=oct)
def test_a_file_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    with refused(ErrorCode.POLICY_VIOLATION) as caught:
        load_credentials(stored(tmp_path, ENTRY, mode), {})
    assert "chmod 600" in caught.value.hint


def test_a_secret_is_in_no_repr_text_or_dump(tmp_path: Path) -> None:
    (found,) = load_credentials(stored(tmp_path, ENTRY), {})
    assert SECRET not in f"{found} {found!r} {found.model_dump()} {found.model_dump_json()} {[found]}"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(ENTRY + f'surprise = "{SECRET}"\n', id="unknown-key"),
        pytest.param(f'[[credential]]\nhost = 3\nsecret = "{SECRET}"\n', id="wrong-type"),
        pytest.param(f'[[credential]]\nhost = "h"\nsecret = "{SECRET}\\nx"\n', id="two-lines"),
        pytest.param(f'[[credential]]\nhost = "h"\nusername = "{SECRET}\\rx"\n', id="carriage-return"),
        pytest.param(f'[[credential]]\nsecret = "{SECRET}"\n', id="no-host"),
        pytest.param(f'[[credential]]\nsecret = "{SECRET}\n', id="no-toml"),
        pytest.param(f'credential = "{SECRET}"\n', id="no-list"),
        pytest.param(f'credential = {"[" * 5000}"{SECRET}"\n', id="nested"),
        pytest.param(f'credential = ["{SECRET}", {"9" * 5000}]\n', id="digits"),
    ],
)
def test_a_broken_file_is_refused_without_its_content(tmp_path: Path, text: str) -> None:
    with refused(ErrorCode.INVALID_INPUT) as caught:
        load_credentials(stored(tmp_path, text), {})
    error = caught.value
    assert SECRET not in f"{error} {error.brief} {error.details} {error.hint}"
    assert error.__cause__ is None
    assert error.__suppress_context__ or error.__context__ is None


@pytest.mark.parametrize(
    ("pattern", "hostname", "port", "matches"),
    [
        ("git.example.org", "git.example.org", None, True),
        ("git.example.org", "git.example.org", 8443, True),
        ("git.example.org:8443", "git.example.org", 8443, True),
        ("git.example.org:8443", "git.example.org", 443, False),
        ("git.example.org:8443", "git.example.org", None, False),
        ("*.example.org", "git.example.org", 443, True),
        ("*.example.org", "example.org", 443, False),
        ("*.example.org", "git.example.org.evil.net", 443, False),
        ("example.org", "notexample.org", 443, False),
        ("GIT.Example.org", "git.example.org", 443, True),
        ("*:22", "any.host", 22, True),
    ],
)
def test_a_pattern_matches_its_hosts_and_ports_only(
    pattern: str, hostname: str, port: int | None, matches: bool
) -> None:
    entry = Credential(host=pattern, secret=SecretStr("x"))
    assert (find_credential([entry], hostname, port) is entry) is matches


def test_the_first_matching_entry_wins() -> None:
    secret = SecretStr("x")
    narrow, wide = Credential(host="git.example.org", secret=secret), Credential(host="*", secret=secret)
    assert find_credential([narrow, wide], "git.example.org", None) is narrow
    assert find_credential([wide, narrow], "git.example.org", None) is wide


def test_an_entry_for_the_other_protocol_hides_nothing(tmp_path: Path) -> None:
    key = Credential(host="*", ssh_key=tmp_path / "key")
    token = Credential(host="github.com", secret=SecretStr("x"))
    entries = [key, token]
    assert find_credential(entries, "github.com", 443, "https") is token
    assert find_credential(entries[::-1], "github.com", 22, "ssh") is key
    assert find_credential([token], "github.com", 22, "ssh") is None


@pytest.mark.parametrize(
    ("environ", "host", "username"),
    [
        ({"GH_TOKEN": SECRET, "GITHUB_TOKEN": "other"}, "github.com", "x-access-token"),
        ({"GITHUB_TOKEN": f"{SECRET}\n"}, "github.com", "x-access-token"),
        ({"GITLAB_TOKEN": SECRET}, "gitlab.com", "oauth2"),
    ],
)
def test_a_token_is_for_its_own_forge_only(tmp_path: Path, environ: dict[str, str], host: str, username: str) -> None:
    entries = load_credentials(tmp_path, environ)
    found = find_credential(entries, host, 443)
    assert found is not None
    assert (found.username, found.secret.get_secret_value()) == (username, SECRET)
    strangers = {"github.com", "gitlab.com", "git.example.org", f"{host}.evil.net", f"evil-{host}"} - {host}
    assert not [h for h in strangers if find_credential(entries, h, 443)]


def test_the_file_beats_a_token(tmp_path: Path) -> None:
    home = stored(tmp_path, f'[[credential]]\nhost = "github.com"\nsecret = "{SECRET}"\n')
    found = find_credential(load_credentials(home, {"GH_TOKEN": "from-environment"}), "github.com", 443)
    assert found is not None
    assert found.secret.get_secret_value() == SECRET


@pytest.mark.parametrize("token", ["two\nlines", "car\rriage", "nul\0"])
def test_a_token_that_could_forge_a_line_is_refused_in_words(tmp_path: Path, token: str) -> None:
    with refused(ErrorCode.INVALID_INPUT) as caught:
        load_credentials(tmp_path, {"GH_TOKEN": token})
    assert token not in f"{caught.value.brief} {caught.value.details}"


TOKENS = [
    "ghp_0123456789ab",
    "github_pat_11AAAA_bb",
    "glpat-0123456789abcdef",
    "0123456789abcdef0123456789abcdef01234567",
]


@pytest.mark.parametrize("token", TOKENS)
def test_a_user_name_that_is_a_token_is_a_secret(token: str) -> None:
    used = Credential(host="git.example.org", username=token, secret=SecretStr("the-password"))
    assert list_secret_texts(used) == ("the-password", token)
    assert remove_secret(f"bad token {token} or the-password", used) == "bad token *** or ***"
    assert token not in repr(used)


ORDINARY = ["", "git", "x-access-token", "oauth2", "a.person@example.org", "ghp_x", "a" * 40]
WORDS = ["ghost-writers-2", "glenda-smithson", "jonathan-smithson-1985", "gitlab+deploy-token-123"]


@pytest.mark.parametrize("name", [*ORDINARY, *WORDS])
def test_an_ordinary_user_name_is_no_secret(name: str) -> None:
    used = Credential(host="git.example.org", username=name, secret=SecretStr("the-password"))
    assert list_secret_texts(used) == ("the-password",)
    assert remove_secret(f"{name} the-password", used) == f"{name} ***"


def test_the_old_form_of_github_is_read_as_its_new_one(tmp_path: Path) -> None:
    """git shows a user name to every user of the host, in the arguments of the program that is asked for a password."""
    entry = ENTRY.replace('"bot"', f'"{TOKENS[0]}"').replace(SECRET, "x-oauth-basic")
    (found,) = load_credentials(stored(tmp_path, entry), {})
    assert (found.username, found.secret.get_secret_value()) == ("x-access-token", TOKENS[0])
    given = Credential(host="h", username=TOKENS[0], secret=SecretStr("x-oauth-basic"))
    assert (given.username, given.secret.get_secret_value()) == ("x-access-token", TOKENS[0])
