"""The secrets of one server run. Each is made for that run, lives in its folder, and dies with it."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path

import trustme
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

USERNAME = "bot"


@dataclass(frozen=True)
class Secrets:
    """`server_files` go into the container; the rest is what a client of the server needs."""

    username: str
    password: str
    ca_file: Path
    ssh_key_file: Path
    host_public_key: str
    server_files: dict[str, bytes]


def make_secrets(folder: Path) -> Secrets:
    """Write the client's half into `folder` (0700) and return both halves."""
    password = secrets.token_urlsafe(24)
    authority = trustme.CA(organization_name="space sandbox test CA")
    certificate = authority.issue_cert("127.0.0.1", "localhost")
    client_key, client_public = _ssh_key()
    host_key, host_public = _ssh_key()
    ca_file = _private_file(folder / "ca.pem", authority.cert_pem.bytes())
    ssh_key_file = _private_file(folder / "id_ed25519", client_key)
    return Secrets(
        username=USERNAME,
        password=password,
        ca_file=ca_file,
        ssh_key_file=ssh_key_file,
        host_public_key=host_public,
        server_files={
            "cert.pem": b"".join(blob.bytes() for blob in certificate.cert_chain_pems),
            "key.pem": certificate.private_key_pem.bytes(),
            "htpasswd": f"{USERNAME}:{{PLAIN}}{password}\n".encode(),
            "host_key": host_key,
            "authorized_keys": client_public.encode() + b"\n",
        },
    )


def _ssh_key() -> tuple[bytes, str]:
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return private, public.decode()


def _private_file(path: Path, content: bytes) -> Path:
    path.touch(mode=0o600)
    path.write_bytes(content)
    return path
