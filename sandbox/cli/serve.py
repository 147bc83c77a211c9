"""`sandbox serve`: the daemon of a home."""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import click

from sandbox.cli.agent_server import ServerOptions, make_agent
from sandbox.cli.invocation import Invocation, add_home, global_options, note
from sandbox.cli.time_format import format_local
from sandbox.errors import ErrorCode, SandboxError

if TYPE_CHECKING:
    import socket

    from sandbox.daemon.main_process import Parts
    from sandbox.daemon.place import DaemonRecord

_STOP_S = 30.0


@click.command()
@click.option("--http", "address", metavar="HOST:PORT", help="Also serve over HTTP. Default: Unix sockets only.")
@click.option(
    "--token-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File with the bearer token for --http. Default: mcp-token in the home, made at first use.",
)
@click.option(
    "--approvals",
    type=click.Choice(["policy", "auto"]),
    default="policy",
    help="auto: allow every call of agents without asking, for trusted automation.",
)
@click.option(
    "--unit",
    type=click.Choice(["user", "system", "socket"]),
    help="Only print a unit for systemd, for this home and with the options above; socket also makes the home.",
)
@click.option("--status", "shows", is_flag=True, help="Only say which daemon serves this home.")
@click.option("--stop", "stops", is_flag=True, help="Only end the daemon that serves this home.")
@global_options
@click.pass_obj
def serve(
    invocation: Invocation,
    /,
    address: str | None,
    token_file: Path | None,
    approvals: Literal["policy", "auto"],
    **instead: Any,
) -> int:
    """Serve this home until a signal: commands start faster, programs and agents connect to it.

    Commands on this home run in the daemon from then on, with the same result. It also serves MCP, a JSON API, events
    and metrics, at a Unix socket in the home and with --http over the network, where each request needs the token. The
    one in the home's file metrics-token opens /metrics only.

    Exits with 4 if another daemon serves the home, and --status with 1 if none serves it yet.
    """
    chosen = [name for name, value in instead.items() if value]
    if len(chosen) > 1:
        raise click.UsageError("Give only one of --status, --stop and --unit.")
    if chosen == ["unit"]:
        return _print_unit(invocation, instead["unit"], _list_options(address, token_file, approvals))
    if chosen:
        return _INSTEAD[chosen[0]](invocation)
    _run(invocation, address, token_file, approvals)
    return 0


def _show(invocation: Invocation) -> int:
    found = _find(invocation.find_home())
    if found is None:
        invocation.emit({"daemon": None}, lambda: click.echo("No daemon serves this home."))
        return 1
    does = "is starting on" if found.is_starting else "serves"
    where = f" at {found.url}" if found.url else ""
    text = (
        f"Process {found.pid} (version {found.version}) {does} this home{where} since {format_local(found.started_at)}."
    )
    invocation.emit({"daemon": found.model_dump(mode="json")}, lambda: click.echo(text))
    return 1 if found.is_starting else 0


def _stop(invocation: Invocation) -> int:
    home = invocation.find_home()
    found = _find(home)
    if found is not None:
        _end(home, found)
    text = "No daemon serves this home." if found is None else f"Process {found.pid} has ended."
    invocation.emit({"stopped": found.pid if found else None}, lambda: click.echo(text))
    return 0


def _list_options(address: str | None, token_file: Path | None, approvals: str) -> list[str]:
    """The options of a daemon as its service starts it. Raises: as its start would for the address."""
    from sandbox.agent.transports.address import parse_address, require_loopback  # noqa: PLC0415 - lazy: as below

    words = ["--approvals", approvals] if approvals != "policy" else []
    if address is not None:
        require_loopback(parse_address(address)[0], token_file)
        words += ["--http", address]
    return words if token_file is None else [*words, "--token-file", str(token_file.absolute())]


def _require_own(home: Path) -> None:
    """Raises: `invalid_input` for a home that is another user's, or would lie in a folder of another user."""
    nearest = next(place for place in (home, *home.parents) if place.exists())
    owner = nearest.lstat().st_uid
    if owner != os.geteuid() and (nearest == home or os.geteuid() == 0):
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            f"Not yours: {nearest}",
            details=f"It belongs to the user with the id {owner}.",
            hint="Print the units of a home as its user: `sudo -u USER sandbox --home HOME serve --unit socket`.",
        )


def _print_unit(invocation: Invocation, kind: str, options: list[str]) -> int:
    from sandbox.daemon.place import folder_of  # noqa: PLC0415 - lazy: `--help` stays fast
    from sandbox.daemon.units import make_unit  # noqa: PLC0415 - as above
    from sandbox.store.home import Home  # noqa: PLC0415 - as above
    from sandbox.workbench.controller.callers import system_user  # noqa: PLC0415 - as above

    if kind == "socket" and options:
        raise click.UsageError(f"{options[0]} is for the service that the socket starts: --unit user or --unit system.")
    home = invocation.find_home()
    if kind == "socket":  # systemd would make them as root
        _require_own(home)
        Home(home).prepare()
        folder_of(home).mkdir(mode=0o700, exist_ok=True)
    command = [sys.executable, "-I", "-m", "sandbox", "--home", str(home), "serve", *options]
    text = make_unit(kind, home, command, system_user(os.environ).user, os.environ)
    invocation.emit({"unit": text}, lambda: click.echo(text, nl=False))
    return 0


_INSTEAD: dict[str, Callable[[Invocation], int]] = {"shows": _show, "stops": _stop}


def _end(home: Path, found: DaemonRecord) -> None:
    """Raises: `timeout`; `policy_violation` for a process of another user than the home's."""
    from sandbox.daemon.place import is_of_homes_user  # noqa: PLC0415 - lazy: `--help` stays fast

    with suppress(ProcessLookupError):
        pidfd = os.pidfd_open(found.pid)
        try:
            now = _find(home)
            if now is not None and now.pid == found.pid:  # else the id may be another process's by now
                if not is_of_homes_user(home, found.pid):
                    raise SandboxError(
                        ErrorCode.POLICY_VIOLATION,
                        f"Process {found.pid}, which is said to serve {home}, is of another user than the home",
                        hint="No process was ended. Find out who wrote serve/lock in the home.",
                    )
                signal.pidfd_send_signal(pidfd, signal.SIGTERM)
            ended, _, _ = select.select([pidfd], [], [], _STOP_S)
        finally:
            os.close(pidfd)
        if not ended:
            raise SandboxError(ErrorCode.TIMEOUT, f"Process {found.pid} has not ended after {_STOP_S:.0f} s")


def _find(home: Path) -> DaemonRecord | None:
    from sandbox.daemon.place import find_owner  # noqa: PLC0415 - lazy: `--help` stays fast

    return find_owner(home)


def _make_parts(
    invocation: Invocation, address: str | None, token_file: Path | None, approvals: Literal["policy", "auto"]
) -> Parts:
    from sandbox.agent.transports import address as tcp  # noqa: PLC0415 - as above
    from sandbox.cli.app import main  # noqa: PLC0415 - it imports this module when the command is used
    from sandbox.config import load_settings  # noqa: PLC0415 - as above
    from sandbox.daemon.main_process import Parts  # noqa: PLC0415 - as above
    from sandbox.daemon.preload import preload  # noqa: PLC0415 - as above
    from sandbox.daemon.receiver_settings import require_receivers  # noqa: PLC0415 - as above
    from sandbox.store.home import Home  # noqa: PLC0415 - as above

    home = Home(invocation.find_home())
    host, port = tcp.parse_address(address or "127.0.0.1:0")
    tcp.require_loopback(host, token_file)
    token, metrics_token = _read_tokens(home.root, token_file) if address else ("", "")
    require_receivers(load_settings(home.root, os.environ).serve)  # HTTP would fail and start for ever
    program, daemon = preload(home.root, os.environb), os.getpid()

    def serve_http(api: socket.socket, http: socket.socket | None) -> int:
        from sandbox.daemon.http_process import serve_http_process  # noqa: PLC0415 - in the fork that serves HTTP
        from sandbox.daemon.served_home import Controllers, HttpOptions, HttpSockets  # noqa: PLC0415 - as above
        from sandbox.daemon.upgrade import Upgrade  # noqa: PLC0415 - as above

        bound = int(http.getsockname()[1]) if http is not None else port
        with invocation.agent_workbench() as workbench, invocation.workbench() as person:
            surface = partial(make_agent, workbench, ServerOptions(approvals, None))
            controllers = Controllers(workbench, surface, person, Upgrade(program.origin, daemon))
            return serve_http_process(
                controllers, HttpOptions(host, bound, token, metrics_token), HttpSockets(api, http)
            )

    return Parts(
        program=program,
        run_command=main,
        open_http=lambda: tcp.open_listener(host, port) if address else None,
        serve_http=serve_http,
        url=lambda http: "" if http is None else tcp.make_url(host, int(http.getsockname()[1])),
    )


def _read_tokens(home: Path, token_file: Path | None) -> tuple[str, str]:
    """Of agents, and of those who read metrics only."""
    from sandbox.agent.transports.address import TOKEN_FILE  # noqa: PLC0415 - as above
    from sandbox.store.token_file import read_metrics_token, read_token  # noqa: PLC0415 - as above

    token = read_token(token_file or home / TOKEN_FILE, create=token_file is None)
    return token, read_metrics_token(home, token)


def _run(
    invocation: Invocation, address: str | None, token_file: Path | None, approvals: Literal["policy", "auto"]
) -> None:
    from sandbox.daemon.place import begin, remove_sockets, require_unserved  # noqa: PLC0415 - as above
    from sandbox.store.home import Home  # noqa: PLC0415 - as above

    signal.signal(signal.SIGTERM, _end_while_starting)
    home = Home(invocation.find_home())
    require_unserved(home.root)
    home.prepare()
    locked = begin(home.root, os.environ)
    from sandbox.daemon.main_process import Daemon  # noqa: PLC0415 - as above

    invocation.set_up_logs()
    try:
        daemon = Daemon(locked, _make_parts(invocation, address, token_file, approvals))
        where = f" at {daemon.url} - `sandbox dashboard` opens it in a browser" if daemon.url else ""
        note(add_home(f"serving {home.root}{where}; end with Ctrl-C or `sandbox serve --stop`"))
        if daemon.url:
            note(_name_tokens(home.root, token_file))
        daemon.run()
    except BaseException:  # also an address that is in use
        remove_sockets(home.root, locked.inherited.activated)
        raise


def _name_tokens(home: Path, token_file: Path | None) -> str:
    from sandbox.agent.transports.address import TOKEN_FILE  # noqa: PLC0415 - as above
    from sandbox.store.token_file import METRICS_TOKEN_FILE  # noqa: PLC0415 - as above

    return (
        f"agents and programs send the bearer token in {token_file or home / TOKEN_FILE}; "
        f"the one in {home / METRICS_TOKEN_FILE} opens /metrics only"
    )


def _end_while_starting(_number: int, _frame: object) -> NoReturn:
    """As the daemon ends when it has started: a service manager takes another exit code than 0 for a failure."""
    raise SystemExit(0)
