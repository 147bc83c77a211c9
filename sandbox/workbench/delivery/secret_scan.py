"""Refuse to send a text that contains one of our secrets, also in an encoded or hidden form."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

from sandbox.credentials import Credential, list_secret_texts, read_entries
from sandbox.errors import ErrorCode, SandboxError
from sandbox.workbench.controller.credential_store import CredentialStore
from sandbox.workbench.delivery.hidden_text import letters_of, list_letters, list_readings

MIN_SECRET_CHARS = 8
"""Shorter secrets are not searched: any text may contain them by chance, and a refusal would reveal them."""

_KEY_BYTES = 64 * 1024
_KEY_LINE = re.compile(r"^[A-Za-z0-9+/]{60,}$", re.MULTILINE)
_SECRET_NAME = re.compile(r"(?:TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY)$", re.IGNORECASE)
_PREFIX_CHARS = (0, 2, 3)  # base64 characters that depend on 0, 1 or 2 preceding bytes


def require_no_secret(
    credentials: CredentialStore, *texts: str, others: Sequence[Credential] = (), what: str = "The text"
) -> None:
    """Require texts without our secrets. `others`: credentials in use that are not stored here. `what`: for the error.

    Raises: `policy_violation`, with the owner of the secret, never the secret; `auth_failed` when a keyring does not
    return the secret to search.
    """
    searched = [_SearchedText(text) for text in texts]
    for owner, secret in _list_secrets(credentials, others):
        if any(text.contains(secret) for text in searched):
            raise SandboxError(
                ErrorCode.POLICY_VIOLATION,
                f"{what} contains the secret of {owner}, so it was not sent",
                hint="Remove it. If an agent or a guest wrote it, the secret is known to them: replace that secret.",
            )


def contains_secret(text: str, secret: str) -> bool:
    """Whether a text contains the secret: plain, URL-encoded, in hex or within base64, and as `hidden_text` reads it.

    Letter case and characters between its letters and digits are ignored. Pure.
    """
    return _SearchedText(text).contains(secret)


class _SearchedText:
    """A text that is searched for many secrets."""

    def __init__(self, text: str) -> None:
        self._readings = list_readings(text)
        self._letters = list_letters(self._readings)

    def contains(self, secret: str) -> bool:
        """As `contains_secret`."""
        if len(secret) < MIN_SECRET_CHARS:
            return False
        forms = {letters_of(form) for form in _list_encodings(secret)}
        return any(secret in reading for reading in self._readings) or any(
            form in letters for form in forms if len(form) >= MIN_SECRET_CHARS for letters in self._letters
        )


def _list_encodings(secret: str) -> Iterator[str]:
    raw = secret.encode(errors="surrogateescape")  # an environment variable may not be valid UTF-8
    yield from (secret, quote(raw, safe=""), raw.hex())
    for before, held in enumerate(_PREFIX_CHARS):  # as a part of a longer text, for example `user:secret`
        encoded = base64.b64encode(b"\0" * before + raw).decode().rstrip("=")
        yield encoded[held : len(encoded) - bool((before + len(raw)) % 3)]


def _list_secrets(credentials: CredentialStore, others: Sequence[Credential]) -> Iterator[tuple[str, str]]:
    """A description of the owner, and the secret: of stored credentials and of those this controller still uses."""
    for entry in (*read_entries(credentials.home.root), *credentials.entries, *others):
        for secret in _read_secrets(credentials, entry):
            yield f"the credential for {entry.host}", secret
        for line in _read_key_lines(entry.ssh_key):
            yield f"the SSH key for {entry.host}", line
    for name, value in credentials.environ.items():
        if _SECRET_NAME.search(name) and not value.startswith("/"):  # a file path is not a secret
            yield f"the environment's {name}", value.strip()


def _read_secrets(credentials: CredentialStore, entry: Credential) -> tuple[str, ...]:
    found = credentials.keyring.find(entry.host) if entry.keyring else None
    return list_secret_texts(entry if found is None else entry.model_copy(update={"secret": found}))


def _read_key_lines(path: Path | None) -> list[str]:
    """Lines of a private key. A key that cannot be read here cannot be in a text either."""
    if path is None:
        return []
    try:
        with path.expanduser().open("rb") as file:
            return _KEY_LINE.findall(file.read(_KEY_BYTES).decode(errors="replace"))
    except OSError:
        return []
