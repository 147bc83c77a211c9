"""No text with a secret of ours leaves this host: looked for in whatever spelling it may have got on its way."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

from sandbox.credentials import Credential, file_entries
from sandbox.errors import ErrorCode, SandboxError
from sandbox.workbench.controller.services import Parts

LEAST_CHARS = 8
"""Shorter secrets are not looked for: any text holds them by chance, and a refusal would tell which."""

_KEY_BYTES = 64 * 1024
_KEY_LINE = re.compile(r"^[A-Za-z0-9+/]{60,}$", re.MULTILINE)
_SECRET_NAME = re.compile(r"(?:TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY)$", re.IGNORECASE)
_OTHER = re.compile(r"[^a-z0-9]+")
_PREFIX_CHARS = (0, 2, 3)  # of base64, that hold something of so many bytes before


def require_no_secret(parts: Parts, *texts: str, others: Sequence[Credential] = ()) -> None:
    """Raises: `policy_violation`, naming whose secret is in a text, never the secret; `auth_failed` when a keyring does
    not say what to look for. `others`: credentials in use that are not stored here.
    """
    for owner, secret in _secrets(parts, others):
        if any(holds(text, secret) for text in texts):
            raise SandboxError(
                ErrorCode.POLICY_VIOLATION,
                f"The text holds the secret of {owner}, so it does not leave this host",
                hint="Take it out. If an agent or a guest put it there, they know it: replace that secret.",
            )


def holds(text: str, secret: str) -> bool:
    """Whether a text has the secret, as it is, URL-encoded, in hex or within base64; whatever stands between its
    letters and digits, and in whatever case. Pure.
    """
    if len(secret) < LEAST_CHARS:
        return False
    letters = _squeezed(text)
    forms = {_squeezed(form) for form in _spellings(secret)}
    return secret in text or any(form in letters for form in forms if len(form) >= LEAST_CHARS)


def _squeezed(text: str) -> str:
    return _OTHER.sub("", text.lower())


def _spellings(secret: str) -> Iterator[str]:
    raw = secret.encode(errors="surrogateescape")  # the environment may hold what is no UTF-8
    yield from (secret, quote(raw, safe=""), raw.hex())
    for before, held in enumerate(_PREFIX_CHARS):  # as a part of something longer, `user:secret` for one
        encoded = base64.b64encode(b"\0" * before + raw).decode().rstrip("=")
        yield encoded[held : len(encoded) - bool((before + len(raw)) % 3)]


def _secrets(parts: Parts, others: Sequence[Credential]) -> Iterator[tuple[str, str]]:
    """Whose it is, in words, and the secret. What is stored now counts, and what this controller still uses."""
    for entry in (*file_entries(parts.home.root), *parts.credentials, *others):
        yield f"the credential for {entry.host}", _secret(parts, entry)
        for line in _key_lines(entry.ssh_key):
            yield f"the SSH key for {entry.host}", line
    for name, value in parts.environ.items():
        if _SECRET_NAME.search(name) and not value.startswith("/"):  # the path of a file is none
            yield f"the environment's {name}", value.strip()


def _secret(parts: Parts, entry: Credential) -> str:
    found = parts.keyring.find(entry.host) if entry.keyring else entry.secret
    return found.get_secret_value() if found is not None else ""


def _key_lines(path: Path | None) -> list[str]:
    """Lines of a private key; what of it cannot be read cannot be in a text either."""
    if path is None:
        return []
    try:
        with path.expanduser().open("rb") as file:
            return _KEY_LINE.findall(file.read(_KEY_BYTES).decode(errors="replace"))
    except OSError:
        return []
