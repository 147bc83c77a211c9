"""PID 1 and the relay are extracted from their image once for all homes of the tests: a container less for each home.

What a home has of them is verified and stored as ever; only the guest that prints the bytes does not run again. Under
another engine than this machine's own, or another runtime, it does, and so in tests that take the fixture `extracting`.

The file is also loaded by the process that forks commands, which imports no other devtool.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

from sandbox.engine.create_options import ContainerSpec
from sandbox.images import supervisor
from sandbox.images.lookup import ImageBuildContext
from sandbox.policy.container import EffectiveContainerPolicy
from sandbox.store.home import write_atomically

FOLDER = Path(__file__).parents[1] / ".tool_cache" / "extracted"
"""As in a home: of each image a folder."""

_PROGRAMS = frozenset({"init", "relay"})
_WEEK_S = 7 * 86_400
_ENGINE = os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"
_extract = supervisor._extract


def use_again() -> None:
    """From now on this process extracts a program only if no process of the tests has."""
    supervisor._extract = _find_or_extract


def extract_anew() -> None:
    """From now on this process extracts them as users do."""
    supervisor._extract = _extract


def give_to(home: Path) -> None:
    """Put them into a home that has none, for a command that does not run in a process of the tests."""
    place = home / "init"
    if supervisor._extract is not _find_or_extract or not home.exists() or place.exists():
        return
    for image in _list_images():
        for program in filter(_is_whole, image.iterdir()):
            for folder in (place, place / image.name):
                folder.mkdir(mode=0o700, exist_ok=True)
            write_atomically(place / image.name / program.name, program.read_bytes(), mode=supervisor.MODE)


def _list_images() -> list[Path]:
    return [folder for folder in FOLDER.iterdir() if folder.is_dir()] if FOLDER.exists() else []


def _is_whole(program: Path) -> bool:
    """Not one that another process of the tests writes just now: that has another name until it is complete."""
    return program.is_file() and program.name in _PROGRAMS


def _find_or_extract(site: ImageBuildContext, policy: EffectiveContainerPolicy, spec: ContainerSpec) -> bytes:
    endpoint = getattr(site.engine, "endpoint", None)  # of engines in memory: none
    if endpoint is None or endpoint.url != _ENGINE or spec.runtime != "runc":
        return _extract(site, policy, spec)
    kept = FOLDER / spec.image.removeprefix("sha256:") / spec.argv[0].removeprefix("/")
    if kept.exists():
        return kept.read_bytes()
    binary = _extract(site, policy, spec)
    supervisor.require_static_program(binary)
    for folder in (FOLDER, kept.parent):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_atomically(kept, binary, mode=supervisor.MODE)
    for image in _list_images():  # those of images that are built no more
        if image != kept.parent and image.stat().st_mtime < time.time() - _WEEK_S:
            shutil.rmtree(image, ignore_errors=True)
    return binary
