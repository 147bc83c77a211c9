"""A refused credential is not called a missing one, and its hint says what is known of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import SecretStr

from sandbox.credentials import Credential
from sandbox.errors import ErrorCode, SandboxError
from sandbox.git.failures import classify
from sandbox.git.refused_credentials import explain_refusal
from sandbox.git.transport import network_access
from tests.unit.conftest import access_to, refused

TOKEN = Credential(host="h", username="u", secret=SecretStr("s"))


def failed(text: str) -> SandboxError:
    return classify("fetch", 128, f"fatal: unable to access 'https://h/o/n/': {text}")


@pytest.mark.parametrize(
    ("said", "word"), [("The requested URL returned error: 403", "read-only"), ("Authentication failed", "expired")]
)
def test_a_token_that_was_refused_is_not_missing(said: str, word: str) -> None:
    found = explain_refusal(failed(said), TOKEN, "https")
    assert (found.code, word in found.hint) == (ErrorCode.AUTH_FAILED, True)
    assert "Store a credential" in explain_refusal(failed(said), None, "https").hint
    only_ca = Credential(host="h", ca_file=Path("/ca"))
    assert "Store a credential" in explain_refusal(failed(said), only_ca, "https").hint


def test_other_failures_keep_their_hint() -> None:
    before = failed("Could not resolve host: h")
    assert explain_refusal(before, TOKEN, "https") is before


def test_a_key_that_was_refused_is_named_with_what_is_wrong_with_it(tmp_path: Path) -> None:
    (tmp_path / "key.pub").write_text("ssh-ed25519 AAAA me\n")
    error = classify("fetch", 128, "git@h: Permission denied (publickey).")
    found = explain_refusal(error, Credential(host="h", ssh_key=tmp_path / "key.pub"), "ssh")
    assert f"{tmp_path}/key.pub was offered. It is a public key" in found.hint


@pytest.mark.parametrize(("field", "url"), [("ca_file", "https://h/o/n"), ("ssh_key", "ssh://git@h/o/n")])
def test_a_file_that_is_gone_is_named_before_git_is_asked(tmp_path: Path, field: str, url: str) -> None:
    entry = Credential.model_validate({"host": "h", field: tmp_path / "gone"})
    access = replace(access_to(url, tmp_path / "known_hosts"), credential=entry)
    with refused(ErrorCode.INVALID_INPUT) as caught, network_access(access):
        pytest.fail("git would run")
    assert f"{tmp_path}/gone" in caught.value.brief


@pytest.mark.parametrize(("field", "url"), [("ssh_key", "https://h/o/n"), ("ca_file", "ssh://git@h/o/n")])
def test_a_file_that_the_protocol_does_not_use_may_be_gone(tmp_path: Path, field: str, url: str) -> None:
    entry = Credential.model_validate({"host": "h", "username": "u", "secret": "s", field: tmp_path / "gone"})
    with network_access(replace(access_to(url, tmp_path / "known_hosts"), credential=entry)) as network:
        assert network.protocol == url.partition(":")[0]


def test_what_a_command_raises_with_access_to_a_remote_is_explained(tmp_path: Path) -> None:
    access = replace(access_to("https://h/o/n", tmp_path / "known_hosts"), credential=TOKEN)
    with refused(ErrorCode.AUTH_FAILED) as caught, network_access(access):
        raise failed("Authentication failed")
    assert "was sent" in caught.value.hint
