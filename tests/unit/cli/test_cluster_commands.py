"""`sandbox cluster` without a cluster: this home is the only worker."""

from __future__ import annotations

from pathlib import Path

import click

from devtools.command import Command
from sandbox.cli import cluster
from sandbox.models.operations import OperationName


def test_a_home_of_its_own_has_no_line_and_no_worker_to_drain(tmp_path: Path) -> None:
    sandbox = Command(tmp_path / "home")
    assert sandbox.ok("cluster", "queue", "--json") == {"tasks": 0, "oldest_s": 0.0, "workers": 1}
    assert "belongs to no cluster" in sandbox("cluster", "queue").stderr
    refused = sandbox("cluster", "drain", "worker-0", "--json")
    assert (refused.code, refused.error["code"]) == (2, "invalid_input")
    assert "cluster.address" in refused.error["hint"]


def test_each_operation_on_a_task_can_be_asked_for() -> None:
    """The command has a list of its own, because it starts without models; a task is created by `cluster create`."""
    (kind,) = (one.type for one in cluster.ask.params if one.name == "operation")
    assert isinstance(kind, click.Choice)
    assert set(kind.choices) == {*OperationName} - {OperationName.CREATE}
