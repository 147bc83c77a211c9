"""A network for tests of the egress proxy, with one server."""

from __future__ import annotations

from sandbox.attack.harness.egress_peers import NAME, PUBLIC_ADDRESS, FakeNetwork, LoopbackServer


def network_to(server: LoopbackServer, name: str = NAME) -> FakeNetwork:
    """A network in which `name` has one public address, which leads to `server`."""
    return FakeNetwork({name: [[PUBLIC_ADDRESS]]}, {PUBLIC_ADDRESS: server.port})
