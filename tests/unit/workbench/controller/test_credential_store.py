"""A credential whose secret is in the system keyring."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import SecretStr

from sandbox.credentials import make_credential
from sandbox.errors import ErrorCode, SandboxError
from sandbox.store.home import Home
from sandbox.store.keyring import Keyring
from sandbox.workbench.controller.credential_store import CredentialStore


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path)
    made.prepare()
    return made


@pytest.mark.parametrize("secret", [SecretStr("from the keyring"), None], ids=["present", "missing"])
def test_the_secret_is_that_of_the_keyring_or_an_error(
    home: Home, monkeypatch: pytest.MonkeyPatch, secret: SecretStr | None
) -> None:
    owners = []

    def find(keyring: Keyring, host: str) -> SecretStr | None:
        owners.append((keyring.owner, host))
        return secret

    monkeypatch.setattr(Keyring, "find", find)
    entry = make_credential(host="git.example.com", keyring=True)
    store = CredentialStore(home, {})
    if secret is None:
        with pytest.raises(SandboxError, match=r"no longer has a secret for git\.example\.com") as found:
            store.add_keyring_secret(entry)
        assert found.value.code is ErrorCode.AUTH_FAILED
    else:
        assert store.add_keyring_secret(entry).secret == secret
    assert owners == [(home.original_id, "git.example.com")]


def test_the_file_of_credentials_is_read_once(home: Home) -> None:
    store = CredentialStore(home, {})
    before = store.entries
    (home.root / "credentials.toml").write_text("no toml")
    assert store.entries is before
