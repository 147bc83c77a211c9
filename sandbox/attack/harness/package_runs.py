"""Runs of repositories that ask for packages, with an index of the suite's own as the only registry."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from sandbox.attack.harness.attack_host import AttackHost
from sandbox.attack.harness.package_index import PackageIndex
from sandbox.attack.harness.scene import Scene
from sandbox.engine.posture import OWN_KERNEL_RUNTIMES
from sandbox.errors import SandboxError
from sandbox.models import RunSummary
from sandbox.workbench import Workbench

PROFILE = """
label = "packages"
image = "python"
priority = 9999
[[detect.any]]
file = "pyproject.toml"
[[layer]]
ecosystem = "python"
[[check]]
id = "use"
label = "Use the package"
argv = ["python", "use.py"]
limits = { memory_bytes = 134217728, cpus = 1.0, pids = 64, disk_bytes = 33554432 }
"""
PROJECT = '[project]\nname = "p"\nversion = "1"\ndependencies = ["evil"]\n'
REACH = """
import os, socket
def reach(places):
    found = []
    for place in places:
        try:
            kind = socket.AF_UNIX if isinstance(place, str) else socket.AF_INET
            with socket.socket(kind) as s:
                s.settimeout(2)
                s.connect(place)
            found.append("reached")
        except OSError:
            pass
    return found
"""
"""A module that tries to reach sockets and addresses."""


def needs_layers(site: AttackHost) -> str:
    """A need: packages can be fetched and installed here."""
    if site.runtime in OWN_KERNEL_RUNTIMES:
        return f"a fetch cannot run under {site.runtime}"
    try:
        site.image("python")
    except SandboxError as error:
        return f"{error.brief}: `sandbox images build python`"
    return ""


@contextmanager
def open_controller(scene: Scene, index: PackageIndex) -> Iterator[Workbench]:
    """The user's settings, with `index` as the only registry. Layers are removed at the end."""
    profiles = scene.home / "profiles"
    profiles.mkdir(exist_ok=True)
    (profiles / "packages.toml").write_text(PROFILE)
    settings = {**scene.settings, "registries": {"python": [index.url]}, "layers": {"fetch": "auto"}}
    with Workbench(scene.home, environ=scene.build_environment(), settings=settings, allow_file=True) as workbench:
        try:
            yield workbench
        finally:
            for layer in workbench.layers():
                workbench.remove_layer(layer.key)


def run_files(scene: Scene, workbench: Workbench, name: str, files: Mapping[str, str]) -> RunSummary:
    """Run a repository of these files, as a person does; one that is there gets a commit with just these."""
    remote = scene.root / f"{name}.git"
    scene.require_git("init", "-q", "--bare", "-b", "main", str(remote), cwd=scene.root)
    scene.seed(remote, {path: text.encode() for path, text in files.items()})
    return workbench.run(str(remote))
