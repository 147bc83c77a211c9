"""The protocol's own suite against our server, both of its lines: every scenario that needs no fixture tool."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from devtools import conformance
from devtools.command import SANDBOX
from devtools.requirement import unavailable

pytestmark = pytest.mark.xdist_group("conformance")

SCENARIOS = {
    "0.1": ("server-initialize", "ping", "tools-list", "server-sse-multiple-streams", "resources-list", "prompts-list",
            "dns-rebinding-protection"),
    "0.2": ("server-initialize", "server-session-lifecycle", "ping", "tools-list", "server-sse-multiple-streams",
            "resources-list", "sep-2164-resource-not-found", "prompts-list", "dns-rebinding-protection", "caching",
            "http-header-validation", "input-required-result-missing-input-response",
            "input-required-result-unsupported-methods", "input-required-result-ignore-extra-params",
            "input-required-result-validate-input"),
}  # fmt: skip

CASES = [(line, name) for line, names in SCENARIOS.items() for name in names]
Results = tuple[dict[str, tuple[int, int]], str]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Our server, without the token that the suite cannot send."""
    if not conformance.installed():
        unavailable("no conformance suite: scripts/setup tools")
    home = tmp_path_factory.mktemp("conformance") / "home"
    process = subprocess.Popen(
        [sys.executable, "-m", "devtools.conformance.server", str(home)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        env={k: v for k, v in os.environ.items() if not k.startswith("SANDBOX_")},
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.communicate(timeout=60)


@pytest.fixture(scope="module")
def results(url: str) -> dict[str, Results]:
    """Of each line of the suite."""
    return {line: conformance.run_scenarios(line, url) for line in SCENARIOS}


@pytest.mark.parametrize(("line", "name"), CASES)
def test_conforms(results: dict[str, Results], line: str, name: str) -> None:
    counts, output = results[line]
    passed, failed = counts.get(name, (0, 1))
    assert (passed > 0, failed) == (True, 0), output


def test_the_inspector_lists_and_calls_tools(tmp_path: Path) -> None:
    if not conformance.installed():
        unavailable("no Inspector: scripts/setup tools")
    server = (*SANDBOX, "--home", str(tmp_path / "home"), "mcp")
    tools = json.loads(conformance.inspect(*server, "--method", "tools/list"))["tools"]
    assert "space_repo_clone" in {tool["name"] for tool in tools}
    called = json.loads(conformance.inspect(*server, "--method", "tools/call", "--tool-name", "space_repo_list"))
    assert called["structuredContent"] == {"repositories": []}
