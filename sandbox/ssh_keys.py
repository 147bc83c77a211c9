"""Files of SSH keys: what keeps one from being used without a person or an agent."""

from __future__ import annotations

import base64
import binascii
from pathlib import Path

_MOST_BYTES = 64 * 1024
_OPENSSH = b"openssh-key-v1\0"
_PUBLIC = (b"ssh-", b"ecdsa-", b"sk-", b"---- BEGIN SSH2 PUBLIC", b"-----BEGIN PUBLIC")


def describe_key_file(path: Path) -> str:
    """A sentence about a key that ssh can use with an agent only: a public one, or one with a passphrase. Else ''."""
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES)
    except OSError:
        return ""
    if content.lstrip().startswith(_PUBLIC):
        return "It is a public key: only an SSH agent that has the private one can use it."
    if _is_encrypted(content):
        return "It has a passphrase, which no one is asked for: only an SSH agent that has the key can use it."
    return ""


def _is_encrypted(content: bytes) -> bool:
    """By the cipher's name in OpenSSH's format (PROTOCOL.key), else by the words of PEM."""
    head, *lines = content.strip().splitlines() or [b""]
    if head != b"-----BEGIN OPENSSH PRIVATE KEY-----":
        return b"ENCRYPTED" in content
    try:
        decoded = base64.b64decode(b"".join(lines[:4])[:64])
    except (binascii.Error, ValueError):
        return False
    length = int.from_bytes(decoded[len(_OPENSSH) :][:4], "big")
    return decoded.startswith(_OPENSSH) and decoded[len(_OPENSSH) + 4 :][:length] != b"none"
