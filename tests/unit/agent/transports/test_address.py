"""Where a server listens over TCP."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.agent.transports.address import list_authorities, parse_address, require_loopback
from sandbox.errors import ErrorCode
from tests.unit.conftest import refused


@pytest.mark.parametrize("address", ["http://127.0.0.1:8765", "8765", ":8765", "127.0.0.1:x", "127.0.0.1:65536"])
def test_what_is_no_address_is_refused_with_an_example(address: str) -> None:
    with refused(ErrorCode.INVALID_INPUT) as caught:
        parse_address(address)
    assert "127.0.0.1:8765" in caught.value.hint


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])  # noqa: S104 - refused
def test_an_address_that_no_request_can_name_is_refused(host: str) -> None:
    """Control: the names of one that is served."""
    with refused(ErrorCode.INVALID_INPUT) as caught:
        require_loopback(host, Path("token"))
    assert "clients use" in caught.value.hint
    require_loopback("192.0.2.1", Path("token"))
    assert list_authorities("192.0.2.1", 80) == ["192.0.2.1:80"]
