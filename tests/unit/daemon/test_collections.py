"""Servers collect garbage as Python does by itself, though a command does it rarely: what readers of output leave in
cycles is megabytes, and a server lives for weeks.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast
from unittest.mock import MagicMock

import pytest

from sandbox.cli.invocation import Invocation
from sandbox.daemon import http_process

PYTHONS_OWN = (700, 10, 10)


@pytest.fixture(autouse=True)
def threshold_of_commands() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(200_000)
    yield
    gc.set_threshold(*before)


def test_a_server_for_agents_collects_as_python_does(tmp_path: Path) -> None:
    with Invocation(home=tmp_path / "home").agent_workbench():
        assert gc.get_threshold() == PYTHONS_OWN


def test_so_does_the_process_of_the_daemon_that_serves_http(monkeypatch: pytest.MonkeyPatch) -> None:
    class ReadyError(Exception):
        pass

    def stop(*_: object) -> None:
        raise ReadyError

    monkeypatch.setattr(http_process, "_make_receivers", stop)
    controllers = cast("Any", MagicMock())
    with pytest.raises(ReadyError):
        http_process.serve_http_process(controllers, cast("Any", None), cast("Any", None))
    assert gc.get_threshold() == PYTHONS_OWN
