"""The calls of a check over the engine's socket."""

from __future__ import annotations

import os
from unittest.mock import MagicMock

import pytest

from sandbox.engine.socket_api import SocketApi

pytestmark = pytest.mark.usefixtures("engine_client_allowed")


def test_a_forked_child_has_a_client_of_its_own_and_closes_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes on one kept connection read answers to each other's requests."""
    made = [MagicMock(), MagicMock()]
    clients = iter(made)
    monkeypatch.setattr(SocketApi, "_make_client", lambda _: next(clients))
    api = SocketApi("unix:///run/none.sock", 1.0)
    api.close()
    ours = api._sdk
    assert api._sdk is ours
    parent = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: parent + 1)
    assert api._sdk is made[1]
    api.close()
    assert (made[0].close.called, made[1].close.called) == (False, True)
    monkeypatch.setattr(os, "getpid", lambda: parent)
    assert api._sdk is ours
    api.close()
    assert made[0].close.called
