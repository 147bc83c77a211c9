"""Use-cases on stored credentials: set, list, remove. Secrets go in and never come out."""

from __future__ import annotations

from sandbox.credentials import FILE_NAME, Credential, file_entries, make_credential, render
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import CredentialInfo
from sandbox.store.home import write_atomically
from sandbox.store.records import near
from sandbox.workbench.parts import Parts


def put(parts: Parts, **fields: object) -> CredentialInfo:
    """Store a credential, replacing the one of the same host pattern. The newest is looked at first."""
    entry = make_credential(**{name: value for name, value in fields.items() if value})
    if not entry.secret.get_secret_value() and entry.ssh_key is None and entry.ca_file is None:
        raise SandboxError(ErrorCode.INVALID_INPUT, "A credential needs a secret, an SSH key or a CA file")
    with parts.home.locked("credentials"):
        others = [e for e in file_entries(parts.home.root) if e.host != entry.host]
        _write(parts, [entry, *others])
    return _info(entry)


def list_all(parts: Parts) -> tuple[CredentialInfo, ...]:
    """Stored credentials in the order they are looked at."""
    return tuple(_info(e) for e in file_entries(parts.home.root))


def remove(parts: Parts, host: str) -> CredentialInfo:
    """Forget the credential of a host pattern. Raises: `not_found`."""
    with parts.home.locked("credentials"):
        entries = file_entries(parts.home.root)
        found = next((e for e in entries if e.host == host.lower()), None)
        if found is None:
            raise near("credential", host, [e.host for e in entries], "`sandbox credentials list` shows all hosts.")
        _write(parts, [e for e in entries if e is not found])
    return _info(found)


def _write(parts: Parts, entries: list[Credential]) -> None:
    write_atomically(parts.home.root / FILE_NAME, render(entries).encode(), mode=0o600)


def _info(entry: Credential) -> CredentialInfo:
    kind = "secret" if entry.secret.get_secret_value() else "ssh_key" if entry.ssh_key else "ca_only"
    return CredentialInfo(
        host=entry.host, kind=kind, username=entry.username, ssh_key=entry.ssh_key, ca_file=entry.ca_file
    )
