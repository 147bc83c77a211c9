"""One run of the suite: the user's settings, engine and git, and the scratch directory, shared by all entries."""

from __future__ import annotations

import re
import secrets
import shutil
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Self

from sandbox.attack.harness.guests import Guests
from sandbox.attack.harness.probes import probes
from sandbox.attack.harness.scene import SECRET, Scene
from sandbox.attack.harness.scratch import ScratchDirectory, find_abandoned, instances_of, unmount_and_delete
from sandbox.config import Settings
from sandbox.engine.connection import DockerEngine, connect
from sandbox.engine.container_labels import INSTANCE_LABEL
from sandbox.engine.unhardened import UnhardenedContainers, delete_image
from sandbox.errors import SandboxError
from sandbox.git.process import SAFE_PATH, git_version
from sandbox.images import ImageBuildContext as ImageSite
from sandbox.images import resolve_image
from sandbox.policy.container import UserIds
from sandbox.store.guest_users import GuestUsers
from sandbox.store.home import Home

_PASSED_VARIABLES = ("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH")


GRACE_S = 10.0
"""How long an interrupted entry may take to end."""
TOKEN = SECRET.decode().strip()
"""Is in the environment of every scene's controller, as a token of the user may be."""


@dataclass
class AttackRun:
    """One run. As a context manager it removes all it made: containers, mounts, the scratch directory."""

    settings: Settings
    environ: Mapping[str, str] = field(repr=False)
    policies: Path | None = None  # of the user's home
    scratch: ScratchDirectory = field(default_factory=ScratchDirectory)

    def __post_init__(self) -> None:
        self.root = self.scratch.root
        self.instance = secrets.token_hex(8)
        self._open: list[Scene] = []
        self._guests: Guests | None = None
        self._template: Path | None = None
        self.images: list[str] = []  # tags of hostile images
        self.current_thread: threading.Thread | None = None  # the current entry

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Clean up. After an interrupt or a deadline an entry may still run: it ends when its guest is removed."""
        if self._guests is not None:
            self._guests.close()
        try:
            self._end_guests()
            if self.current_thread is not None and self.current_thread.is_alive():
                self.current_thread.join(GRACE_S)
                self._end_guests()
            for scene in [*self._open]:
                self.delete_scene(scene)
            for tag in self.images:
                delete_image(self.engine, tag)
        finally:
            if "engine" in self.__dict__:
                self.engine.close()
            self.scratch.delete()
            self._users.release_of_missing_homes()

    def _end_guests(self) -> None:
        """Remove every container of this run."""
        instances = [Home(scene.home).instance_id for scene in self._open if (scene.home / "instance").exists()]
        if "engine" in self.__dict__:
            instances.append(self.instance)
        for instance in instances:
            self.engine.remove_containers({INSTANCE_LABEL: instance})

    def remove_abandoned(self) -> None:
        """Remove what killed runs left. What needs the engine is kept if no engine answers."""
        for root in find_abandoned():
            with suppress(SandboxError):
                for instance in instances_of(root):
                    self.engine.remove_containers({INSTANCE_LABEL: instance})
                unmount_and_delete(root)

    @cached_property
    def engine(self) -> DockerEngine:
        """The user's engine, for soft containers and the clean-up. Raises: `engine_unavailable`."""
        self.scratch.record_instance(self.instance)
        return connect(self.settings.engine.host, self.environ, self.settings.engine.timeout_s)

    @property
    def soft_containers(self) -> UnhardenedContainers:
        """Runs soft containers of this run. Raises: `engine_unavailable`."""
        return UnhardenedContainers(self.engine, self.runtime, {INSTANCE_LABEL: self.instance})

    @property
    def runtime(self) -> str:
        """The runtime of guests; soft containers use it too."""
        return self.settings.container.runtime

    def image(self, name: str) -> str:
        """Digest of one of our images. Raises: `image_missing`."""
        return resolve_image(
            ImageSite(self.engine, Home(self.root / "images"), self.settings.images, self.environ), name
        )

    @property
    def _users(self) -> GuestUsers:
        """The user ids of guests of this host, in which the homes of victims have leases."""
        return GuestUsers(self.settings.container.users_folder, UserIds().ids, self.root)

    @property
    def git_program(self) -> str:
        """The product's git, for the controls."""
        return self.settings.git.executable or shutil.which("git", path=SAFE_PATH) or "git"

    @cached_property
    def git_version(self) -> tuple[int, ...]:
        """The version of that git."""
        found = re.search(r"(\d{1,9})\.(\d{1,9})(?:\.(\d{1,9}))?", git_version(self.root, self.settings.git.executable))
        return tuple(int(part or 0) for part in found.groups()) if found else (0, 0, 0)

    @property
    def guests(self) -> Guests:
        """The one scene of all entries about containers, created on first use."""
        if self._guests is None:
            self._guests = Guests(self, self.create_scene("guests"), probes(self.runtime))
        return self._guests

    def create_scene(self, name: str) -> Scene:
        """Create a victim; its controller has the user's settings."""
        root = self.root / name
        root.mkdir()
        scene = Scene(
            root,
            settings=self.settings.model_dump(),
            environ={**{k: v for k, v in self.environ.items() if k in _PASSED_VARIABLES}, "GITHUB_TOKEN": TOKEN},
            git_program=self.git_program,
            policies=self.policies,
            template=self._template,
        )
        scene.host = self
        if self._template is None:
            self._template = Path(shutil.copytree(scene.remote, self.root / "template.git", symlinks=True))
        self._open.append(scene)
        return scene

    @contextmanager
    def scene(self, name: str) -> Iterator[Scene]:
        """A victim for one entry, deleted afterwards."""
        scene = self.create_scene(name)
        try:
            yield scene
        finally:
            self.delete_scene(scene)

    def delete_scene(self, scene: Scene) -> None:
        """Delete a victim: its guests first, then its files."""
        if (scene.home / "instance").exists():
            self.engine.remove_containers({INSTANCE_LABEL: Home(scene.home).instance_id})
        scene.close()
        unmount_and_delete(scene.root)
        self._open.remove(scene)
