"""`sandbox credentials`: the credentials for hosts."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from sandbox.cli.invocation import Invocation, global_options, note, show_table
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import CredentialInfo
from sandbox.ssh_keys import describe_key_file
from sandbox.text import one_line

_SECRET_CHARS = 16 * 1024
_File = click.Path(exists=True, dir_okay=False, resolve_path=True, path_type=Path)


@click.group()
def credentials() -> None:
    """Store, list and remove the credentials of hosts."""


@credentials.command("set")
@click.argument("host")
@click.option("--username", help="User name for https; for a token often 'x-access-token' or 'oauth2'.")
@click.option("--ssh-key", type=_File, help="Private key for ssh, instead of a secret.")
@click.option("--ca-file", type=_File, help="CA certificates, for a host with a private CA.")
@global_options
@click.pass_obj
def set_(invocation: Invocation, host: str, username: str | None, ssh_key: Path | None, ca_file: Path | None) -> None:
    """Store the credential for HOST: a name or a pattern such as *.example.com, optionally with :PORT.

    The command prompts for the secret, or reads it from standard input if that is not a terminal. It is never an
    argument.
    """
    secret = "" if ssh_key else _secret()
    with invocation.workbench() as workbench:
        stored = workbench.set_credential(host, username=username, secret=secret, ssh_key=ssh_key, ca_file=ca_file)
    invocation.emit({"credential": stored}, lambda: _show((stored,)))
    if ssh_key is not None and (wrong := describe_key_file(ssh_key)):
        note(f"note: {one_line(str(ssh_key))} may not work alone. {wrong}")


def _secret() -> str:
    if sys.stdin.isatty():
        return str(click.prompt("Secret", hide_input=True, default="", show_default=False, err=True))
    try:
        secret = sys.stdin.read(_SECRET_CHARS + 1)
    except UnicodeDecodeError:  # without the cause, which has the secret
        raise SandboxError(ErrorCode.INVALID_INPUT, "The secret is not UTF-8 text") from None
    if len(secret) > _SECRET_CHARS:
        raise SandboxError(ErrorCode.INVALID_INPUT, f"The secret is longer than {_SECRET_CHARS} characters")
    return secret.removesuffix("\n")


@credentials.command("list")
@global_options
@click.pass_obj
def list_(invocation: Invocation) -> None:
    """List stored credentials without their secrets."""
    with invocation.workbench() as workbench:
        found = workbench.credentials()
    invocation.emit({"credentials": found}, lambda: _show(found))


@credentials.command()
@click.argument("host")
@global_options
@click.pass_obj
def remove(invocation: Invocation, host: str) -> None:
    """Remove the credential for HOST."""
    with invocation.workbench() as workbench:
        removed = workbench.remove_credential(host)
    invocation.emit({"credential": removed}, lambda: click.echo(f"removed {removed.host}"))


def _show(found: tuple[CredentialInfo, ...]) -> None:
    rows = [
        [c.host, c.store if c.store == "keyring" else c.kind, c.username or "-", str(c.ssh_key or c.ca_file or "-")]
        for c in found
    ]
    show_table(["HOST", "KIND", "USER", "FILE"], rows)
