"""How services of a profile are shown."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

import click

from sandbox.cli.suggestion_rows import show_rest
from sandbox.models import ServiceRule
from sandbox.text import spell_out

_SHOWN = frozenset({"name", "image", "argv", "port", "checks", "check_env"})


def show_services(services: Iterable[ServiceRule]) -> None:
    """Print image, port and command of each, the variables that checks get, and all else that is set."""
    for service in services:
        command = f": {spell_out(shlex.join(service.argv))}" if service.argv else ""
        users = ", ".join(service.checks) or "all checks"
        image = spell_out(service.image)
        click.echo(f"  service  {service.name} on 127.0.0.1:{service.port} for {users}, image {image}{command}")
        for name, value in service.check_env.items():
            click.echo(f"           {spell_out(name)}={spell_out(value)}")
        show_rest(service, _SHOWN)
