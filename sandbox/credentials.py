"""Which credential belongs to which host. Secrets are wrapped so that no repr, log or dump shows them.

File: `$SANDBOX_HOME/credentials.toml`, mode 0600, a list of `[[credential]]` with `host` (shell-style pattern over
`hostname` or `hostname:port`) and either `username` and `secret` (https) or `ssh_key`; `ca_file` for a private CA.
"""

from __future__ import annotations

import stat
import tomllib
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from pydantic import BaseModel, ConfigDict, SecretStr, ValidationError, field_validator

from sandbox.errors import ErrorCode, SandboxError

_TOKENS = {
    "github.com": (("GH_TOKEN", "GITHUB_TOKEN"), "x-access-token"),
    "gitlab.com": (("GITLAB_TOKEN",), "oauth2"),
}


class Credential(BaseModel):
    """How to authenticate to the hosts that match `host`."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    host: str
    username: str = ""
    secret: SecretStr = SecretStr("")
    ssh_key: Path | None = None
    ca_file: Path | None = None

    @field_validator("username")
    @classmethod
    def _one_line(cls, value: str) -> str:
        if any(ord(c) < 0x20 for c in value):
            raise ValueError("must be one line")
        return value

    @field_validator("secret")
    @classmethod
    def _one_line_secret(cls, value: SecretStr) -> SecretStr:
        if any(ord(c) < 0x20 for c in value.get_secret_value()):
            raise ValueError("must be one line")
        return value


class _CredentialFile(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    credential: tuple[Credential, ...] = ()


def load_credentials(home: Path, environ: Mapping[str, str]) -> tuple[Credential, ...]:
    """The file's entries, then tokens from the environment. Raises: `invalid_input`; never shows a value."""
    return (*_from_file(home / "credentials.toml"), *_from_tokens(environ))


def _from_file(path: Path) -> tuple[Credential, ...]:
    try:
        if stat.S_IMODE(path.stat().st_mode) & 0o077:
            raise SandboxError(
                ErrorCode.INVALID_INPUT, "credentials.toml can be read by others", hint=f"Run: chmod 600 {path}"
            )
        return _CredentialFile.model_validate(tomllib.loads(path.read_text(encoding="utf-8"))).credential
    except FileNotFoundError:
        return ()
    except ValidationError as error:
        where = ", ".join(".".join(str(p) for p in e["loc"]) for e in error.errors(include_input=False))
        raise SandboxError(ErrorCode.INVALID_INPUT, f"credentials.toml is not valid at: {where}") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        raise SandboxError(ErrorCode.INVALID_INPUT, f"Cannot read {path} as TOML") from None


def _from_tokens(environ: Mapping[str, str]) -> tuple[Credential, ...]:
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


def credential_for(entries: Sequence[Credential], hostname: str, port: int | None) -> Credential | None:
    """The first entry whose pattern matches `hostname:port` or `hostname`."""
    names = [f"{hostname}:{port}", hostname] if port else [hostname]
    return next((e for e in entries if any(fnmatchcase(n, e.host.lower()) for n in names)), None)
