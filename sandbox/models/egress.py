"""What a fetch asked of the network, and what it got."""

from __future__ import annotations

from enum import StrEnum

from sandbox.models.model import Model


class EgressRefusal(StrEnum):
    """Why a connection was refused or cut. Stable words."""

    BAD_REQUEST = "bad_request"  # neither CONNECT nor a plain GET or HEAD, or not well-formed
    NOT_ALLOWED = "not_allowed"  # this name with this port is not on the list
    NOT_RESOLVED = "not_resolved"  # the name has no address
    ADDRESS_NOT_ALLOWED = "address_not_allowed"  # the name has only private, loopback or other internal addresses
    CONNECT_FAILED = "connect_failed"
    NOT_TLS = "not_tls"  # something other than a TLS ClientHello followed CONNECT
    SERVER_NAME_DIFFERS = "server_name_differs"  # the ClientHello asks for another server, or hides which
    TOO_MANY_CONNECTIONS = "too_many_connections"
    TOO_MANY_BYTES = "too_many_bytes"
    IDLE = "idle"
    TIME_OVER = "time_over"


class EgressAccess(Model):
    """One connection of a fetch. `host` is empty and `port` 0 for a request that names none.

    `sent_bytes`, `received_bytes`: between the fetch and the host, without the request to the proxy. `refused`: why it
    was refused or cut; None if it ended by itself.
    """

    host: str
    port: int
    sent_bytes: int = 0
    received_bytes: int = 0
    duration_s: float = 0.0
    refused: EgressRefusal | None = None
