"""What the daemon's HTTP process is given: where it serves, with which rules, and who acts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING

from sandbox.daemon.upgrade import Upgrade
from sandbox.lazy_dataclass import dataclass
from sandbox.workbench import Workbench

if TYPE_CHECKING:
    import socket

    from sandbox.agent.agent import Agent


@dataclass(frozen=True)
class HttpOptions:
    """`host`, `port`: of the TCP listener; `token`: what its clients must send, `metrics_token`: what is enough for
    `/metrics`; '' without a listener.
    """

    host: str = "127.0.0.1"
    port: int = 0
    token: str = field(default="", repr=False)
    metrics_token: str = field(default="", repr=False)


@dataclass(frozen=True)
class Controllers:
    """`workbench`: for agents, over MCP and the JSON API; `make_agent` makes their surface on it. `person`: for the
    dashboard: its decisions are those of a person. `upgrade`: asked before more of the program is imported.
    """

    workbench: Workbench
    make_agent: Callable[[], Agent]
    person: Workbench
    upgrade: Upgrade


@dataclass(frozen=True)
class HttpSockets:
    """Where clients connect. `unix`: processes of our user. `tcp`: those with the token; None: not served."""

    unix: socket.socket
    tcp: socket.socket | None

    def list_open(self) -> list[socket.socket]:
        """Those that there are."""
        return [one for one in (self.unix, self.tcp) if one is not None]
