"""Use-cases on stored credentials: set, list, remove. Secrets are never returned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import SecretStr

from sandbox.credentials import FILE_NAME, Credential, is_token, make_credential, read_entries, render_entries
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import CredentialInfo
from sandbox.store.home import Home, write_atomically
from sandbox.store.records import not_found_error
from sandbox.workbench.controller.credential_store import CredentialStore

if TYPE_CHECKING:
    from sandbox.config import CredentialSettings


def store_credential(credentials: CredentialStore, settings: CredentialSettings, /, **fields: object) -> CredentialInfo:
    """Store a credential, replacing the one of the same host pattern. The newest one is matched first."""
    entry = make_credential(**{name: value for name, value in fields.items() if value})
    if not entry.secret.get_secret_value() and entry.ssh_key is None and entry.ca_file is None:
        raise SandboxError(ErrorCode.INVALID_INPUT, "A credential needs a secret, an SSH key or a CA file")
    with credentials.home.locked("credentials"):
        known = read_entries(credentials.home.root)
        before = next((e for e in known if e.host == entry.host), None)
        entry = _move_secret_to_keyring(credentials, settings, entry)
        if before is not None and before.keyring and not entry.keyring:
            credentials.keyring.remove(before.host)
        _write_entries(credentials.home, [entry, *(e for e in known if e is not before)])
    return _as_credential_info(entry)


def _move_secret_to_keyring(
    credentials: CredentialStore, settings: CredentialSettings, entry: Credential
) -> Credential:
    """Put the secret into the keyring if the settings allow, and return the entry as the file will hold it."""
    where = settings.store
    if where == "file" or not entry.secret.get_secret_value():
        return entry
    try:
        credentials.keyring.store(entry.host, entry.secret)
    except SandboxError:
        if where == "keyring":
            raise
        return entry
    return entry.model_copy(update={"secret": SecretStr(""), "keyring": True})


def list_credentials(home: Home) -> tuple[CredentialInfo, ...]:
    """Stored credentials in the order in which they are matched."""
    return tuple(_as_credential_info(e) for e in read_entries(home.root))


def delete_credential(credentials: CredentialStore, host: str) -> CredentialInfo:
    """Delete the credential of a host pattern; its secret in the keyring goes first. Raises: `not_found`."""
    with credentials.home.locked("credentials"):
        entries = read_entries(credentials.home.root)
        found = next((e for e in entries if e.host == host.lower()), None)
        if found is None:
            raise not_found_error(
                "credential", host, [e.host for e in entries], "`sandbox credentials list` shows all hosts."
            )
        if found.keyring:
            credentials.keyring.remove(found.host)
        _write_entries(credentials.home, [e for e in entries if e is not found])
    return _as_credential_info(found)


def _write_entries(home: Home, entries: list[Credential]) -> None:
    try:
        content = render_entries(entries).encode()
    except UnicodeEncodeError:  # without the cause: that has the text of the whole file
        raise SandboxError(ErrorCode.INVALID_INPUT, "The path of a key or CA file is not UTF-8 text") from None
    write_atomically(home.root / FILE_NAME, content, mode=0o600)


def _as_credential_info(entry: Credential) -> CredentialInfo:
    secret = entry.keyring or bool(entry.secret.get_secret_value())
    return CredentialInfo(
        host=entry.host,
        kind="secret" if secret else "ssh_key" if entry.ssh_key else "ca_only",
        username="***" if is_token(entry.username) else entry.username,
        ssh_key=entry.ssh_key,
        ca_file=entry.ca_file,
        store="keyring" if entry.keyring else "file",
    )
