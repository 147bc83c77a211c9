"""How the settings say that the Temporal server is spoken to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sandbox.cluster.temporal_client import ServerAccess, find_address
from sandbox.config import ClusterSettings
from sandbox.errors import ErrorCode
from tests.unit.conftest import refused

KEY = "k" * 40


def find_access(**settings: Any) -> ServerAccess:
    return find_address(ClusterSettings.model_validate({"address": "temporal.example.org:7233", **settings})).access


def write(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


@pytest.mark.parametrize(
    ("address", "setting", "tls"),
    [
        ("temporal.example.org:7233", "auto", True),
        ("10.0.0.1:7233", "auto", True),
        ("localhost.example.org:7233", "auto", True),
        ("127.0.0.1:7233", "auto", False),
        ("localhost:7233", "auto", False),
        ("[::1]:7233", "auto", False),
        ("127.0.0.1:7233", "on", True),
        ("temporal.example.org:7233", "off", False),
    ],
)
def test_only_a_server_of_this_host_is_spoken_to_without_tls(address: str, setting: str, tls: bool) -> None:
    assert find_access(address=address, tls=setting).tls is tls


def test_files_are_read_and_secrets_are_not_shown(tmp_path: Path) -> None:
    files = {name: write(tmp_path / name, name) for name in ("ca_file", "certificate_file", "key_file")}
    access = find_access(**files, api_key_file=write(tmp_path / "api", KEY))
    assert access == ServerAccess(True, b"ca_file", b"certificate_file", b"key_file", KEY)
    assert KEY not in repr(access)
    assert "b'key_file'" not in repr(access)


def test_an_api_key_is_never_sent_without_tls(tmp_path: Path) -> None:
    with refused(ErrorCode.POLICY_VIOLATION):
        find_access(tls="off", api_key_file=write(tmp_path / "api", KEY))


def test_an_api_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    with refused(ErrorCode.POLICY_VIOLATION):
        find_access(api_key_file=write(tmp_path / "api", KEY, 0o644))


def test_a_key_of_a_certificate_that_others_can_read_is_refused(tmp_path: Path) -> None:
    files = {"certificate_file": write(tmp_path / "c", "c"), "key_file": write(tmp_path / "k", "k", 0o640)}
    with refused(ErrorCode.POLICY_VIOLATION):
        find_access(**files)


@pytest.mark.parametrize(
    "settings",
    [{"ca_file": "missing"}, {"certificate_file": "ca"}, {"key_file": "ca"}, {"ca_file": "ca", "tls": "off"}],
    ids=["a missing file", "a certificate alone", "a key alone", "certificates without TLS"],
)
def test_what_cannot_be_meant_is_refused(tmp_path: Path, settings: dict[str, str]) -> None:
    write(tmp_path / "ca", "ca")
    with refused(ErrorCode.INVALID_INPUT):
        find_access(**{name: tmp_path / v if name.endswith("_file") else v for name, v in settings.items()})
