"""Fixtures of the daemon's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.daemon.event_receiver import Receiver, serve_receiver


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with serve_receiver() as found:
        yield found
