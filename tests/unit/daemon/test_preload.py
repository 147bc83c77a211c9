"""What the daemon holds in memory before anything asks for it, by modules: each process is a new one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from sandbox.daemon.command_requests import ModuleOrigin

_PRELOAD = "from sandbox.daemon.preload import preload; import os; preload(Path(sys.argv[1]), os.environb)"
_ROUTES = """
from sandbox.agent.agent import Agent
from sandbox.daemon import web_server
from sandbox.daemon.routes import make_applications
from sandbox.daemon.command_requests import ModuleOrigin
from sandbox.daemon.served_home import Controllers, HttpOptions
from sandbox.daemon.upgrade import Upgrade
from sandbox.workbench import Workbench
workbench = Workbench(Path(sys.argv[1]), environ={})
hub = web_server.EventHub(workbench)
upgrade = Upgrade(ModuleOrigin(Path(sys.argv[1]), ()), 0)
controllers = Controllers(workbench, lambda: Agent(workbench, workbench.home), workbench, upgrade)
make_applications(controllers, hub, HttpOptions())
"""
_FOR_HTTP = {"starlette", "uvicorn", "jinja2", "prometheus_client", "sandbox.daemon.web_server", "sandbox.agent.tools"}
_FOR_MCP = {"mcp", "mcp_types", "sandbox.agent.server"}


def find_loaded(code: str, home: Path) -> set[str]:
    """The modules that this code loads."""
    return find_loaded_by_each([code], home)[0]


def find_loaded_by_each(codes: Sequence[str], home: Path) -> list[set[str]]:
    """The modules that are loaded after each of these, in one process."""
    whole = ["import sys, json; from pathlib import Path"]
    for code in codes:
        whole += [code, "print('LOADED', json.dumps(sorted(sys.modules)))"]
    argv = [sys.executable, "-I", "-c", "\n".join(whole), str(home)]
    done = subprocess.run(argv, capture_output=True, check=True, timeout=120)
    return [set(json.loads(line[7:])) for line in done.stdout.splitlines() if line.startswith(b"LOADED ")]


@pytest.mark.parametrize("has_cluster", [False, True], ids=["alone", "cluster"])
def test_commands_find_what_they_use_and_a_home_without_a_cluster_has_no_client_of_one(
    tmp_path: Path, has_cluster: bool
) -> None:
    if has_cluster:
        (tmp_path / "config.toml").write_text('[cluster]\naddress = "127.0.0.1:1"\n')
    loaded = find_loaded(_PRELOAD, tmp_path)
    assert {"sandbox.workbench.usecases", "sandbox.cli.check", "docker", "rich.table"} <= loaded
    assert not loaded & {"sandbox.attack", "sandbox.agent", "sandbox.daemon.http_process", "cyclonedx", "boto3", "git"}
    assert not loaded & (_FOR_HTTP | _FOR_MCP)
    assert ("temporalio" in loaded, "sandbox.cluster" in loaded) == (has_cluster, has_cluster), "each is the control"


def test_the_process_for_http_loads_it_at_the_first_client_and_mcp_at_the_first_agent(tmp_path: Path) -> None:
    waits = find_loaded("import sandbox.daemon.http_process", tmp_path)
    assert not waits & (_FOR_HTTP | _FOR_MCP)
    serves, speaks = find_loaded_by_each([_ROUTES, "import sandbox.agent.transports.mcp_endpoint"], tmp_path)
    assert serves >= _FOR_HTTP
    assert not serves & _FOR_MCP
    assert speaks >= _FOR_MCP, "the control"


def _replace(file: Path) -> None:
    (new := file.with_name("new")).write_text("pass\n")
    new.replace(file)


def _write_in_place(file: Path) -> None:
    file.write_text("pass\n")
    os.utime(file, ns=(1, 1))  # a clock that did not move on would hide it


@pytest.mark.parametrize(
    ("place", "change", "seen"),
    [
        ("ours/a.py", _replace, True),
        ("ours/a.py", _write_in_place, True),
        ("ours/a.py", Path.unlink, True),
        ("library/sub/b.py", _replace, True),
        ("library/sub/b.py", Path.unlink, True),
        ("library/sub/b.py", _write_in_place, False),
        ("library/other/c.py", _replace, False),
    ],
    ids=["ours", "ours-in-place", "ours-removed", "library", "library-removed", "library-in-place", "not-loaded"],
)
def test_what_an_installation_changes_is_noticed(
    tmp_path: Path, place: str, change: Callable[[Path], object], seen: bool
) -> None:
    """What no installer does is not: to write into a file of a library."""
    files = [tmp_path / name for name in ("ours/a.py", "library/sub/b.py", "library/other/c.py")]
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("")
        os.utime(file.parent, ns=(1, 1))
    origin = ModuleOrigin(tmp_path / "ours", [str(files[0]), str(files[1]), str(tmp_path / "none.py")])
    assert not origin.has_changed(), "the control"
    change(tmp_path / place)
    assert origin.has_changed() is seen
