"""How our HTTP server is set up."""

from __future__ import annotations

import httpx2
from starlette.applications import Starlette

from sandbox.agent.transports.lifelong_server import make_uvicorn


def test_a_client_gives_a_connection_up_before_the_server_does() -> None:
    """Else a request of a client that uses its connections again may meet the end of one."""
    client_s = httpx2.Limits().keepalive_expiry
    assert client_s is not None
    assert make_uvicorn(Starlette(), lambda: None).config.timeout_keep_alive > 2 * client_s
