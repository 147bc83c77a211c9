"""`sandbox dashboard`: open the daemon's pages in a browser."""

from __future__ import annotations

from pathlib import Path

import click

from sandbox.cli.invocation import Invocation, global_options, note
from sandbox.errors import ErrorCode, SandboxError


@click.command()
@click.option("--no-browser", is_flag=True, help="Only print the link.")
@global_options
@click.pass_obj
def dashboard(invocation: Invocation, no_browser: bool) -> None:
    """Open the dashboard of this home with a one-time link, which is valid for one minute.

    Needs `sandbox serve --http HOST:PORT`. Who opens the link sees this home and answers questions of agents.
    """
    url = _ask_for_link(invocation.find_home())
    invocation.emit({"url": url}, lambda: click.echo(url))
    if not no_browser and not invocation.json:
        import webbrowser  # noqa: PLC0415 - lazy: `--help` stays fast

        if not webbrowser.open(url):
            note("there is no browser here: open the link yourself")


def _ask_for_link(home: Path) -> str:
    """Raises: `not_found` if no daemon serves this home; `invalid_input` if it does not serve HTTP; `conflict` if it
    only starts, or another program would get the link.
    """
    from sandbox.daemon.api_client import post  # noqa: PLC0415 - as above

    answer = post(home, "/dashboard/link")
    url = answer.get("url")
    if why := answer.get("why"):
        raise SandboxError(ErrorCode.CONFLICT, str(why), hint="Find it with `ss -ltnp`, or serve at another port.")
    if not url:
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            "The daemon of this home does not serve HTTP",
            hint="Stop it, and start it with an address: sandbox serve --http 127.0.0.1:8765",
        )
    return str(url)
