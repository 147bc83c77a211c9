"""Find the credential for a host. Secrets are wrapped so that no repr, log or dump shows them.

File: `$SANDBOX_HOME/credentials.toml`, mode 0600, a list of `[[credential]]` with `host` (shell-style pattern over
`hostname` or `hostname:port`) and either `username` and `secret` (https) or `ssh_key`; `ca_file` for a private CA.
With `keyring = true` the secret is in the system keyring.
"""

from __future__ import annotations

import base64
import json
import re
import stat
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    SecretStr,
    StringConstraints,
    ValidationError,
    model_validator,
)

from sandbox.document_errors import parse_toml
from sandbox.errors import ErrorCode, SandboxError
from sandbox.lazy_module import LazyModule
from sandbox.lazy_pattern import lazy_pattern

if TYPE_CHECKING:
    from sandbox import home_owner
else:  # loaded where a file cannot be read (docs/adr/0080)
    home_owner = LazyModule("sandbox.home_owner")

FILE_NAME = "credentials.toml"
_HINT = "docs/credentials.md describes the entries."
_TOKENS = {
    "github.com": (("GH_TOKEN", "GITHUB_TOKEN"), "x-access-token"),
    "gitlab.com": (("GITLAB_TOKEN",), "oauth2"),
}
_TOKEN_NAME = lazy_pattern(
    r"(?:gh[oprsu]|github_pat)_[A-Za-z0-9_]{8,}|gl(?:cbt|dt|ft|imt|oas|pat|ptt|rt|soat)-[A-Za-z0-9_.-]{8,}"
    r"|(?=[a-z]*[0-9])(?=[0-9]*[a-z])[a-z0-9]{32,}",
    re.IGNORECASE,
)
"""User names that are tokens: with a prefix of GitHub or GitLab, or letters and digits as long as a token. Not a name
of several words: what it has is refused in what is pushed.
"""
_GITHUB_PASSWORD = "x-oauth-basic"  # noqa: S105 - what GitHub once said to give beside a token as user name
TOKEN_VARIABLES = tuple(name for names, _ in _TOKENS.values() for name in names)
"""Variables of the environment that hold a secret."""


def _require_one_line(value: str) -> str:
    if any(ord(c) < 0x20 or ord(c) == 0x7F or 0xD800 <= ord(c) <= 0xDFFF for c in value):  # the last: is no UTF-8
        raise ValueError("must be one line of text")
    return value


def _require_one_secret_line(value: SecretStr) -> SecretStr:
    _require_one_line(value.get_secret_value())
    return value


_Host = Annotated[str, StringConstraints(pattern=r'^[^\s"\\]{1,260}$', to_lower=True)]
_Line = Annotated[str, AfterValidator(_require_one_line)]
_SecretLine = Annotated[SecretStr, AfterValidator(_require_one_secret_line)]


class Credential(BaseModel):
    """How to authenticate to the hosts that match `host`."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    host: _Host
    username: _Line = ""
    secret: _SecretLine = SecretStr("")
    ssh_key: Path | None = None
    ca_file: Path | None = None
    keyring: bool = False

    @model_validator(mode="before")
    @classmethod
    def _read_old_form(cls, fields: object) -> object:
        """`TOKEN:x-oauth-basic` as `x-access-token:TOKEN`: a token as user name would be shown to every user of the
        host, as git passes the name in an argument (docs/credentials.md).
        """
        if not isinstance(fields, dict):
            return fields
        username, secret = fields.get("username"), fields.get("secret")
        password = secret.get_secret_value() if isinstance(secret, SecretStr) else secret
        if password != _GITHUB_PASSWORD or not isinstance(username, str) or not is_token(username):
            return fields
        return {**fields, "username": _TOKENS["github.com"][1], "secret": SecretStr(username)}

    def __repr_args__(self) -> Iterator[tuple[str | None, object]]:
        for name, value in super().__repr_args__():
            yield name, "***" if name == "username" and is_token(self.username) else value


def is_token(username: str) -> bool:
    """Whether a user name has the form of a token."""
    return _TOKEN_NAME.fullmatch(username) is not None


class _CredentialFile(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    credential: tuple[Credential, ...] = ()


def load_credentials(home: Path, environ: Mapping[str, str]) -> tuple[Credential, ...]:
    """The file's entries, then tokens from the environment. Raises: `invalid_input`, without any value;
    `policy_violation` for a file that others can read.
    """
    return (*read_entries(home), *_read_tokens(environ))


def require_private(path: Path) -> None:
    """Raises: `policy_violation` for a file with a secret that others can read or write; OSError if there is none."""
    if stat.S_IMODE(path.stat().st_mode) & 0o077:
        raise unsafe_secret_error(path, "others can read it")


def unsafe_secret_error(path: Path, why: str) -> SandboxError:
    """The error of a file with a secret that must not be used as it is."""
    return SandboxError(
        ErrorCode.POLICY_VIOLATION, f"The secret in {path} is not safe: {why}", hint=f"Run: chmod 600 {path}"
    )


def _read_file(path: Path) -> tuple[Credential, ...]:
    try:
        require_private(path)
        return _CredentialFile.model_validate(parse_toml(path.read_text(encoding="utf-8"))).credential
    except FileNotFoundError:
        return ()
    except ValidationError as error:
        where = ", ".join(".".join(str(p) for p in e["loc"]) for e in error.errors(include_input=False))
        raise SandboxError(ErrorCode.INVALID_INPUT, f"credentials.toml is not valid at: {where}", hint=_HINT) from None
    except OSError as error:
        if why := home_owner.describe_denied(path, error, path.parent):
            raise SandboxError(ErrorCode.INVALID_INPUT, **why) from None
        brief = f"Cannot read {path}: {error.strerror}"
        raise SandboxError(ErrorCode.INVALID_INPUT, brief, hint=_HINT) from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError):
        raise SandboxError(ErrorCode.INVALID_INPUT, f"Cannot read {path} as TOML", hint=_HINT) from None


def _read_tokens(environ: Mapping[str, str]) -> tuple[Credential, ...]:
    found = []
    for host, (names, username) in _TOKENS.items():
        name = next((n for n in names if environ.get(n)), None)
        if name is None:
            continue
        try:
            found.append(Credential(host=host, username=username, secret=SecretStr(environ[name].strip())))
        except ValidationError:
            raise SandboxError(ErrorCode.INVALID_INPUT, f"The token in {name} is not one line of text") from None
    return tuple(found)


def read_entries(home: Path) -> tuple[Credential, ...]:
    """The entries of the file, in its order."""
    return _read_file(home / FILE_NAME)


def render_entries(entries: Sequence[Credential]) -> str:
    """Write entries as TOML. Values have no control characters, so their JSON strings are TOML strings."""
    lines = ["# Written by `sandbox credentials`; keep mode 0600. The first entry that matches a host is used."]
    for entry in entries:
        lines += ["", "[[credential]]"]
        fields = {
            "host": entry.host,
            "username": entry.username,
            "secret": entry.secret.get_secret_value(),
            "ssh_key": str(entry.ssh_key or ""),
            "ca_file": str(entry.ca_file or ""),
        }
        lines += [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in fields.items() if value]
        lines += ["keyring = true"] if entry.keyring else []
    return "\n".join(lines) + "\n"


def make_credential(**fields: object) -> Credential:
    """Validate an entry. Raises: `invalid_input` naming the field, never its value."""
    try:
        return Credential.model_validate(fields)
    except ValidationError as error:
        where = ", ".join(str(e["loc"][0]) for e in error.errors(include_input=False) if e["loc"])
        raise SandboxError(ErrorCode.INVALID_INPUT, f"This credential is not valid at: {where}", hint=_HINT) from None


def find_credential(
    entries: Sequence[Credential], hostname: str, port: int | None, protocol: str = "https"
) -> Credential | None:
    """The first entry that matches `hostname:port` or `hostname` and has a credential for the protocol."""
    names = [f"{hostname}:{port}", hostname] if port else [hostname]
    matching = (e for e in entries if any(fnmatchcase(n, e.host) for n in names))
    return next((e for e in matching if _has_credential(e, protocol)), None)


def find_secret(entries: Sequence[Credential], hostname: str) -> Credential | None:
    """As `find_credential` for https at its own port, if that has a secret: a CA alone is none."""
    found = find_credential(entries, hostname, 443)
    return found if found is not None and (found.keyring or found.secret.get_secret_value()) else None


def _has_credential(entry: Credential, protocol: str) -> bool:
    """Whether an entry is for this protocol: a key for all ssh hosts must not hide a token for https."""
    if protocol == "ssh":
        return entry.ssh_key is not None
    return entry.keyring or bool(entry.secret.get_secret_value()) or entry.ca_file is not None


def list_secret_texts(credential: Credential) -> tuple[str, ...]:
    """The secret, if it is known here, and the user name if that is a token."""
    username = credential.username if is_token(credential.username) else ""
    return tuple(text for text in (credential.secret.get_secret_value(), username) if text)


def remove_secret(text: str, credential: Credential | None) -> str:
    """Remove the secret, in all encodings we send, from a text of a server that may repeat it; a token that is the user
    name, too.
    """
    if credential is None or not credential.secret.get_secret_value():
        return text
    basic = base64.b64encode(f"{credential.username}:{credential.secret.get_secret_value()}".encode()).decode()
    plain = list_secret_texts(credential)
    for spelling in (*plain, *(quote(secret, safe="") for secret in plain), quote(basic, safe=""), basic):
        text = text.replace(spelling, "***")
    return text
