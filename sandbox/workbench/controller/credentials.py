"""Use-cases on stored credentials: set, list, remove. Secrets are never returned."""

from __future__ import annotations

from pydantic import SecretStr

from sandbox.credentials import FILE_NAME, Credential, file_entries, make_credential, render
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import CredentialInfo
from sandbox.store.home import write_atomically
from sandbox.store.records import near
from sandbox.workbench.controller.services import Parts


def put(services: Parts, **fields: object) -> CredentialInfo:
    """Store a credential, replacing the one of the same host pattern. The newest one is matched first."""
    entry = make_credential(**{name: value for name, value in fields.items() if value})
    if not entry.secret.get_secret_value() and entry.ssh_key is None and entry.ca_file is None:
        raise SandboxError(ErrorCode.INVALID_INPUT, "A credential needs a secret, an SSH key or a CA file")
    with services.home.locked("credentials"):
        known = file_entries(services.home.root)
        before = next((e for e in known if e.host == entry.host), None)
        entry = _placed(services, entry)
        if before is not None and before.keyring and not entry.keyring:
            services.keyring.forget(before.host)
        _write(services, [entry, *(e for e in known if e is not before)])
    return _info(entry)


def _placed(services: Parts, entry: Credential) -> Credential:
    """Put the secret into the keyring if the settings allow, and return the entry as the file will hold it."""
    where = services.settings.credentials.store
    if where == "file" or not entry.secret.get_secret_value():
        return entry
    try:
        services.keyring.keep(entry.host, entry.secret)
    except SandboxError:
        if where == "keyring":
            raise
        return entry
    return entry.model_copy(update={"secret": SecretStr(""), "keyring": True})


def list_all(services: Parts) -> tuple[CredentialInfo, ...]:
    """Stored credentials in the order in which they are matched."""
    return tuple(_info(e) for e in file_entries(services.home.root))


def remove(services: Parts, host: str) -> CredentialInfo:
    """Delete the credential of a host pattern; its secret in the keyring goes first. Raises: `not_found`."""
    with services.home.locked("credentials"):
        entries = file_entries(services.home.root)
        found = next((e for e in entries if e.host == host.lower()), None)
        if found is None:
            raise near("credential", host, [e.host for e in entries], "`sandbox credentials list` shows all hosts.")
        if found.keyring:
            services.keyring.forget(found.host)
        _write(services, [e for e in entries if e is not found])
    return _info(found)


def _write(services: Parts, entries: list[Credential]) -> None:
    write_atomically(services.home.root / FILE_NAME, render(entries).encode(), mode=0o600)


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
