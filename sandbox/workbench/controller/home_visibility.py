"""Whether the engine sees the files of this home as the controller does. The mounts of every check depend on it."""

from __future__ import annotations

import tempfile
from pathlib import Path

from sandbox import capabilities
from sandbox.engine import images
from sandbox.engine.connection import Engine
from sandbox.engine.container import INSTANCE_LABEL
from sandbox.engine.visibility import Guise, sees
from sandbox.errors import SandboxError
from sandbox.files.overlay import PROBE_PREFIX, mounted_probe, why_not_overlay
from sandbox.models import Probe
from sandbox.workbench.controller.services import Parts


def sight_probes(services: Parts, engine: Engine | SandboxError) -> tuple[Probe, ...]:
    """One line with the answer; no line without an engine on a socket of this host, or without an image."""
    if isinstance(engine, SandboxError) or not engine.local:
        return ()
    try:
        image = images.any_digest(engine)
        return (_try(services, engine, image),) if image else ()
    except SandboxError as error:
        return (capabilities.sight_probe(error.brief),)
    except OSError as error:
        return (capabilities.sight_probe(error.strerror or str(error)),)


def _try(services: Parts, engine: Engine, image: str) -> Probe:
    folder = services.home.repositories

    def is_seen(path: Path) -> bool:
        name = f"sandbox-sight-{services.presence.new_id()}"
        labels = {INSTANCE_LABEL: services.instance, "space.sandbox.run": name}
        return sees(engine, path, Guise(name, image, labels))

    with tempfile.TemporaryDirectory(prefix=PROBE_PREFIX, dir=folder) as made:
        files = is_seen(Path(made))
    if not files or services.settings.workspaces.worktree == "plain" or why_not_overlay(folder):
        return capabilities.sight_probe(files=files)
    with mounted_probe(folder) as inside:
        return capabilities.sight_probe(files=True, mounts=is_seen(inside))
