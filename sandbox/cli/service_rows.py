"""How services of a profile are shown."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

import click

from sandbox.models import ServiceRule
from sandbox.text import one_line


def show_services(services: Iterable[ServiceRule]) -> None:
    """Print image, port and command of each, and the variables that checks get."""
    for service in services:
        command = f": {one_line(shlex.join(service.argv))}" if service.argv else ""
        users = ", ".join(service.checks) or "all checks"
        image = one_line(service.image)
        click.echo(f"  service  {service.name} on 127.0.0.1:{service.port} for {users}, image {image}{command}")
        for name, value in service.check_env.items():
            click.echo(f"           {one_line(name)}={one_line(value)}")
