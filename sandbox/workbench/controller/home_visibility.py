"""Whether the engine sees the files of this home as the controller does, and the controller its processes.

The mounts of every check depend on the first, the proofs and counters of every guest on the second.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from sandbox import capabilities
from sandbox.engine.container_labels import INSTANCE_LABEL, RUN_LABEL
from sandbox.engine.container_types import ProbeContainer
from sandbox.engine.guest_process import sees_processes_of
from sandbox.engine.protocol import ContainerEngine
from sandbox.errors import SandboxError
from sandbox.files.overlay_mounts import PROBE_PREFIX, find_overlay_obstacle, probe_mount
from sandbox.models import Probe
from sandbox.workbench.controller.services import Services


def visibility_probes(services: Services, engine: ContainerEngine | SandboxError) -> tuple[Probe, ...]:
    """One line with the answer; no line without an engine on a socket of this host, or without an image."""
    if isinstance(engine, SandboxError) or not engine.is_local:
        return ()
    try:
        image = engine.find_any_image_digest()
        return (_probe_visibility(services, engine, image),) if image else ()
    except SandboxError as error:
        return (capabilities.visibility_probe(error.brief),)
    except OSError as error:
        return (capabilities.visibility_probe(error.strerror or str(error)),)


def process_probes(engine: ContainerEngine | SandboxError) -> tuple[Probe, ...]:
    """One line; none without an engine on a socket of this host."""
    path = "" if isinstance(engine, SandboxError) else engine.endpoint.socket_path
    if not path:
        return ()
    try:
        return (capabilities.processes_probe(seen=sees_processes_of(path)),)
    except OSError as error:
        return (capabilities.processes_probe(seen=False, unknown=error.strerror or str(error)),)


def _probe_visibility(services: Services, engine: ContainerEngine, image: str) -> Probe:
    folder = services.home.repositories

    def is_seen(path: Path) -> bool:
        name = f"sandbox-sight-{services.presence.new_id()}"
        labels = {INSTANCE_LABEL: services.home.instance_id, RUN_LABEL: name}
        return engine.can_mount(path, ProbeContainer(name, image, labels))

    with tempfile.TemporaryDirectory(prefix=PROBE_PREFIX, dir=folder) as made:
        files = is_seen(Path(made))
    if not files or services.settings.workspaces.worktree == "plain" or find_overlay_obstacle(folder):
        return capabilities.visibility_probe(files=files)
    with probe_mount(folder) as inside:
        return capabilities.visibility_probe(files=True, mounts=is_seen(inside))
