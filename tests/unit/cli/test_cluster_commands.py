"""`sandbox cluster` without a cluster: this home is the only worker."""

from __future__ import annotations

from pathlib import Path

from devtools.command import Command


def test_a_home_of_its_own_has_no_line_and_no_worker_to_drain(tmp_path: Path) -> None:
    sandbox = Command(tmp_path / "home")
    assert sandbox.ok("cluster", "queue", "--json") == {"tasks": 0, "oldest_s": 0.0, "workers": 1}
    refused = sandbox("cluster", "drain", "worker-0", "--json")
    assert (refused.code, refused.error["code"]) == (2, "invalid_input")
    assert "cluster.address" in refused.error["hint"]
