"""The secrets of one server run. Each is made for that run, lives in its folder, and dies with it."""

from __future__ import annotations

import secrets
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

import trustme
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

USERNAME = "bot"
AWKWARD = "/+@ %"
"""In every password: it reads differently in a URL."""

Identity = Literal["right", "unknown-ca", "expired", "wrong-name"]


@dataclass(frozen=True)
class Secrets:
    """`server_files` go into the container; the rest is what a client of the server needs."""

    username: str
    password: str
    ca_file: Path
    ssh_key_file: Path
    host_public_key: str
    authority: trustme.CA
    server_files: dict[str, bytes]


def make_secrets(folder: Path) -> Secrets:
    """Write the client's half into `folder` (0700) and return both halves."""
    password = secrets.token_urlsafe(24) + AWKWARD
    authority = trustme.CA(organization_name="space sandbox test CA")
    certificate = authority.issue_cert("127.0.0.1", "localhost")
    client_key, client_public = make_ssh_key()
    host_key, host_public = make_ssh_key()
    ca_file = _private_file(folder / "ca.pem", authority.cert_pem.bytes())
    ssh_key_file = _private_file(folder / "id_ed25519", client_key)
    return Secrets(
        username=USERNAME,
        password=password,
        ca_file=ca_file,
        ssh_key_file=ssh_key_file,
        host_public_key=host_public,
        authority=authority,
        server_files={
            "cert.pem": b"".join(blob.bytes() for blob in certificate.cert_chain_pems),
            "key.pem": certificate.private_key_pem.bytes(),
            "htpasswd": f"{USERNAME}:{{PLAIN}}{password}\n".encode(),
            "host_key": host_key,
            "authorized_keys": client_public.encode() + b"\n",
        },
    )


def tls_context(authority: trustme.CA, identity: Identity) -> ssl.SSLContext:
    """What a server on 127.0.0.1 presents: a good certificate, or one that is wrong in one way."""
    issuer = trustme.CA(organization_name="another CA") if identity == "unknown-ca" else authority
    name = "elsewhere.example" if identity == "wrong-name" else "127.0.0.1"
    end = datetime.now(UTC) - timedelta(days=1) if identity == "expired" else None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    issuer.issue_cert(name, not_after=end).configure_cert(context)
    return context


def make_ssh_key() -> tuple[bytes, str]:
    """A new key pair: the private half as a file holds it, the public half as one line."""
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
