"""Builds of images: admitted to the disk, and in the control group of all guests.

The steps of a build run code of others: packages, their scripts, source distributions. So they share the bound on
memory, processes and CPU that guests have together (docs/adr/0138).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from sandbox.images import ImageBuildContext
from sandbox.workbench.controller.disk_admission import Writer
from sandbox.workbench.controller.guest_memory import find_guest_group
from sandbox.workbench.controller.services import Services


@contextmanager
def open_build(services: Services) -> Iterator[ImageBuildContext]:
    """What the functions of `sandbox.images` need to build. Raises: `quota_exceeded`; as `find_guest_group`."""
    with services.disk.admit(Writer.IMAGE):
        yield replace(services.image_build_context, cgroup_parent=find_guest_group(services).parent)
