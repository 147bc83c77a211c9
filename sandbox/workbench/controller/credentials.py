"""Use-cases on stored credentials: set, list, remove. Secrets are never returned."""

from __future__ import annotations

from pydantic import SecretStr

from sandbox.credentials import FILE_NAME, Credential, file_entries, make_credential, render
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import CredentialInfo
from sandbox.store.home import write_atomically
from sandbox.store.records import near
from sandbox.workbench.controller.services import Parts


def put(parts: Parts, **fields: object) -> CredentialInfo:
    """Store a credential, replacing the one of the same host pattern. The newest one is matched first."""
    entry = make_credential(**{name: value for name, value in fields.items() if value})
    if not entry.secret.get_secret_value() and entry.ssh_key is None and entry.ca_file is None:
        raise SandboxError(ErrorCode.INVALID_INPUT, "A credential needs a secret, an SSH key or a CA file")
    with parts.home.locked("credentials"):
        known = file_entries(parts.home.root)
        before = next((e for e in known if e.host == entry.host), None)
        entry = _placed(parts, entry)
        if before is not None and before.keyring and not entry.keyring:
            parts.keyring.forget(before.host)
        _write(parts, [entry, *(e for e in known if e is not before)])
    return _info(entry)


def _placed(parts: Parts, entry: Credential) -> Credential:
    """Put the secret into the keyring if the settings allow, and return the entry as the file will hold it."""
    where = parts.settings.credentials.store
    if where == "file" or not entry.secret.get_secret_value():
        return entry
    try:
        parts.keyring.keep(entry.host, entry.secret)
    except SandboxError:
        if where == "keyring":
            raise
        return entry
    return entry.model_copy(update={"secret": SecretStr(""), "keyring": True})


def list_all(parts: Parts) -> tuple[CredentialInfo, ...]:
    """Stored credentials in the order in which they are matched."""
    return tuple(_info(e) for e in file_entries(parts.home.root))


def remove(parts: Parts, host: str) -> CredentialInfo:
    """Delete the credential of a host pattern; its secret in the keyring goes first. Raises: `not_found`."""
    with parts.home.locked("credentials"):
        entries = file_entries(parts.home.root)
        found = next((e for e in entries if e.host == host.lower()), None)
        if found is None:
            raise near("credential", host, [e.host for e in entries], "`sandbox credentials list` shows all hosts.")
        if found.keyring:
            parts.keyring.forget(found.host)
        _write(parts, [e for e in entries if e is not found])
    return _info(found)


def _write(parts: Parts, entries: list[Credential]) -> None:
    write_atomically(parts.home.root / FILE_NAME, render(entries).encode(), mode=0o600)


def _info(entry: Credential) -> CredentialInfo:
    secret = entry.keyring or bool(entry.secret.get_secret_value())
    return CredentialInfo(
        host=entry.host,
        kind="secret" if secret else "ssh_key" if entry.ssh_key else "ca_only",
        username=entry.username,
        ssh_key=entry.ssh_key,
        ca_file=entry.ca_file,
        store="keyring" if entry.keyring else "file",
    )
