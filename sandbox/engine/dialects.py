"""What differs between the products that serve Docker's API: one row for each.

All else of this package speaks to each product in the same way. A guest is proven by the same facts of the kernel on
every product: posture.py, mounts.py, guest_group.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from sandbox.engine import docker_containers
from sandbox.engine.docker_api import DockerApi
from sandbox.engine.products import Product
from sandbox.lazy_dataclass import dataclass
from sandbox.lazy_module import LazyModule

if TYPE_CHECKING:
    from sandbox.engine import podman_containers
else:  # loaded for Podman only (docs/adr/0080)
    podman_containers = LazyModule("sandbox.engine.podman_containers")

Options = Mapping[str, Any]


@dataclass(frozen=True)
class Dialect:
    """One product.

    `create`: create a container from options, compare it, return `inspect`. `compare`: list what differs in one that
    exists. `can_create`: whether the sources of its mounts are found. `own_files`: files that it mounts into guests by
    itself. `own_variables`: environment variables that it adds, which checks do not get. `tag_prefixes`: in front of
    names of images that have no registry. `choose_build_group`: the name to send with a build so that its steps run
    below the control group of this name. `keeps_stdin`: whether a guest's stdin stays open when its controller
    disconnects; a guest without it cannot be asked later, and is not kept for the next check.
    """

    create: Callable[[DockerApi, str, Options], dict[str, Any]]
    compare: Callable[[DockerApi, Options, Mapping[str, Any]], tuple[str, ...]]
    can_create: Callable[[DockerApi, str, Options], bool]
    choose_build_group: Callable[[str], str] = str
    own_files: frozenset[str] = frozenset()
    own_variables: frozenset[str] = frozenset()
    tag_prefixes: tuple[str, ...] = ()
    keeps_stdin: bool = True

    def remove_own_variables(self, env: list[str]) -> list[str]:
        """The environment of a container without what the engine added."""
        return [entry for entry in env if entry.partition("=")[0] not in self.own_variables]

    def plain_tag(self, tag: str) -> str:
        """The name of an image as Docker has it."""
        prefix = next((p for p in self.tag_prefixes if tag.startswith(p)), "")
        return tag.removeprefix(prefix)


_DIALECTS = {
    Product.DOCKER: Dialect(
        create=docker_containers.create,
        compare=docker_containers.compare,
        can_create=docker_containers.can_create,
    ),
    Product.PODMAN: Dialect(
        create=lambda *given: podman_containers.create(*given),
        compare=lambda *given: podman_containers.compare(*given),
        can_create=lambda *given: podman_containers.can_create(*given),
        choose_build_group=lambda group: podman_containers.choose_build_group(group),
        own_files=frozenset({"/run/.containerenv"}),
        own_variables=frozenset({"container", "TERM", "HOSTNAME"}),
        tag_prefixes=("localhost/", "docker.io/library/", "docker.io/"),
        keeps_stdin=False,  # its monitor closes it (seen: conmon 2.1.6)
    ),
}


def find_dialect(engine: DockerApi) -> Dialect:
    """The row of an engine's product."""
    return _DIALECTS[engine.product]
