"""The Docker engine has every member of the protocol, and the protocol knows no Docker."""

from __future__ import annotations

import inspect
import subprocess
import sys
import tomllib
from pathlib import Path

import docker
import grimp
import pytest

from sandbox.engine.connection import DockerEngine
from sandbox.engine.endpoint import Endpoint
from sandbox.engine.protocol import ContainerEngine, EngineInformation, GuestRunner, ImageStore

ROOT = Path(__file__).parents[3]
PARTS = (EngineInformation, ImageStore, GuestRunner)


def as_protocol(engine: DockerEngine) -> ContainerEngine:
    """The type checker compares the signatures here."""
    return engine


def methods(protocol: type) -> dict[str, object]:
    return {name: value for name, value in vars(protocol).items() if not name.startswith("_")}


@pytest.mark.parametrize(("protocol", "name"), [(part, name) for part in PARTS for name in methods(part)])
def test_docker_has_each_member_with_the_same_parameters(protocol: type, name: str) -> None:
    engine = DockerEngine(
        docker.APIClient.__new__(docker.APIClient), Endpoint("unix:///run/docker.sock", "test"), "20.10"
    )
    assert hasattr(as_protocol(engine), name)
    wanted = methods(protocol)[name]
    if inspect.isfunction(wanted):
        found = inspect.signature(getattr(DockerEngine, name)).parameters.values()
        assert [(p.name, p.kind, p.default) for p in found] == [
            (p.name, p.kind, p.default) for p in inspect.signature(wanted).parameters.values()
        ]


def test_the_parts_are_all_of_the_protocol() -> None:
    assert set(ContainerEngine.__mro__[1:4]) == set(PARTS)


def test_a_missing_method_would_be_seen() -> None:
    """Control: the connection alone, which `Engine` extends, is not an engine."""
    lacking = [name for part in PARTS for name in methods(part) if not hasattr(DockerEngine.__mro__[1], name)]
    assert {"inspect_image", "run_to_end", "remove_container"} <= set(lacking)


def loads_docker(module: str) -> bool:
    """Whether a new interpreter that imports the module has docker."""
    code = f"import sys, {module}; print('docker' in sys.modules)"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "True\n"


def test_the_protocol_does_not_load_docker() -> None:
    assert not loads_docker("sandbox.engine.protocol")
    assert loads_docker("sandbox.engine.unhardened"), "void"


def test_an_engine_is_connected_without_loading_docker() -> None:
    assert not loads_docker("sandbox.engine.connection")


def test_the_import_contracts_protect_every_module_that_needs_docker() -> None:
    """A module outside of the package that imports one of them would be bound to Docker."""
    graph = grimp.build_graph("sandbox", include_external_packages=True, cache_dir=None)
    needs = {name for name in graph.find_downstream_modules("docker") if name.startswith("sandbox.engine.")}
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    protected = {name for contract in contracts for name in contract.get("protected_modules", ())}
    assert {name for name in protected if name.startswith("sandbox.engine.")} == needs
