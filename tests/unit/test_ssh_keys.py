"""Keys that ssh cannot use alone are named; those that it can are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.ssh_keys import describe_key_file
from tests.unit.conftest import run


@pytest.mark.parametrize("form", ["RFC4716", "PEM", "PKCS8"])
@pytest.mark.parametrize("kind", ["ed25519", "rsa"])
def test_a_key_with_a_passphrase_and_a_public_key_are_named(tmp_path: Path, kind: str, form: str) -> None:
    found = []
    for phrase in ("", "a phrase"):
        path = tmp_path / f"key{bool(phrase)}"
        run(["ssh-keygen", "-q", "-t", kind, "-m", form, "-N", phrase, "-f", str(path)], cwd=tmp_path)
        found.append(describe_key_file(path))
    assert found[0] == ""
    assert "passphrase" in found[1]
    assert "public key" in describe_key_file(tmp_path / "keyFalse.pub")


def test_what_is_no_key_or_not_there_is_left_to_ssh(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"-----BEGIN OPENSSH PRIVATE KEY-----\n\xff")
    assert describe_key_file(tmp_path / "key") == describe_key_file(tmp_path / "none") == ""
