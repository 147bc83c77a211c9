"""The services of a controller, which every use-case gets: built once from a home, settings and the environment."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sandbox.environment_names import may_be_setting
from sandbox.errors import ErrorCode, SandboxError, translate_shortage
from sandbox.files.openat2 import require_openat2
from sandbox.git.shutdown import Shutdown
from sandbox.lazy_dataclass import dataclass
from sandbox.lazy_module import LazyModule
from sandbox.models import Actor
from sandbox.store.home import LOCK_TIMEOUT_S, Home, default_home, resolve_home
from sandbox.workbench.controller.background_threads import BackgroundThreads
from sandbox.workbench.controller.credential_store import CredentialStore
from sandbox.workbench.controller.disk_admission import DiskAdmission
from sandbox.workbench.controller.once import Once
from sandbox.workbench.controller.operations_in_progress import OperationsInProgress
from sandbox.workbench.controller.policies_in_force import Policies
from sandbox.workbench.controller.registered_repositories import RegisteredRepositories
from sandbox.workbench.controller.remote_access import RemoteConnector, TransferCallbacks
from sandbox.workbench.controller.shared_calls import SharedCalls

if TYPE_CHECKING:
    from sandbox import config, images
    from sandbox.config import Settings
    from sandbox.engine import connection, create_options
    from sandbox.engine.protocol import ContainerEngine
    from sandbox.git import user_config
    from sandbox.models import Caller, FetchResult, Permission
    from sandbox.store import liveness, quarantine, run_queue
    from sandbox.store.liveness import LiveController
    from sandbox.store.run_queue import RunQueue
    from sandbox.workbench.controller import callers
    from sandbox.workspaces.tree_workspace import TreeState
else:  # loaded at first use: a listing needs none of them (docs/adr/0003)
    config = LazyModule("sandbox.config")
    images = LazyModule("sandbox.images")
    connection = LazyModule("sandbox.engine.connection")
    create_options = LazyModule("sandbox.engine.create_options")
    user_config = LazyModule("sandbox.git.user_config")
    liveness = LazyModule("sandbox.store.liveness")
    quarantine = LazyModule("sandbox.store.quarantine")
    run_queue = LazyModule("sandbox.store.run_queue")
    callers = LazyModule("sandbox.workbench.controller.callers")


@dataclass(frozen=True)
class Surface:
    """What a surface gives its controller: a progress callback, the actor of journal entries, and a clean-up callback.

    `on_killed_controller`: called once, before the first change, if a controller of this home was killed.
    """

    progress: Callable[[str], None] | None = None
    actor: Actor = Actor.PYTHON
    on_killed_controller: Callable[[Services], None] = lambda _: None


@dataclass
class OnceFlag:
    """A mutable flag: whether something that happens once has happened."""

    is_done: bool = False


@dataclass(frozen=True)
class Services:
    """The collaborators of one controller, shared by its threads. The engine is connected at first use."""

    home: Home
    flags: Mapping[str, Any] = field(repr=False)
    environ: Mapping[str, str] = field(repr=False)
    allow_file: bool
    surface: Surface
    runtime: str | None = None  # of this call: it takes precedence over the profile's and the settings'
    client: Caller | None = None  # the caller of this call; None: the user of this process
    permission: Permission | None = None  # why this call of an agent was allowed
    shared_from: Services | None = None  # the instance that keeps the collaborators of this one (see `Once`)
    rule_comparison: OnceFlag = field(default_factory=OnceFlag)  # whether the rules were compared (see `rule_changes`)
    once_lock: threading.RLock = field(default_factory=threading.RLock)  # see `Once`
    shutdown: Shutdown = field(default_factory=Shutdown)
    background_threads: BackgroundThreads = field(default_factory=BackgroundThreads)
    operations: OperationsInProgress = field(default_factory=OperationsInProgress)
    _engines: list[ContainerEngine] = field(default_factory=list)
    supervisor_paths: dict[str, Path] = field(default_factory=dict)  # PID 1's binary by runtime
    tree_states: dict[str, TreeState] = field(default_factory=dict)  # of the workspaces of kind tree, by id
    fetches: SharedCalls[FetchResult] = field(default_factory=lambda: SharedCalls(LOCK_TIMEOUT_S))

    @Once
    def settings(self) -> Settings:
        """Settings from the configuration file, the environment and the flags. Raises: `invalid_input`."""
        return config.load_settings(self.home.root, self.environ, self.flags)

    @Once
    def policies(self) -> Policies:
        """The policies and profiles in force."""
        return Policies(self.home.root, (lambda: self.settings) if self.has_settings else None)

    @Once
    def credentials(self) -> CredentialStore:
        """The credentials of this home."""
        return CredentialStore(self.home, self.environ)

    @Once
    def remotes(self) -> RemoteConnector:
        """Which remotes this controller may use, and its access to them."""
        transfers = TransferCallbacks(self.surface.progress, self.shutdown)
        return RemoteConnector(self.home, self.settings, self.environ, self.credentials, self.allow_file, transfers)

    @Once
    def disk(self) -> DiskAdmission:
        """The admission of every writer to the disk of this home."""
        return DiskAdmission(self.home, lambda: self.settings.disk, max_bytes=lambda: self.settings.storage.max_bytes)

    @Once
    def repositories(self) -> RegisteredRepositories:
        """The registered repositories, to open."""
        return RegisteredRepositories(self.home, self.settings.git.executable if self.has_settings else "")

    @property
    def has_settings(self) -> bool:
        """Whether a setting may differ from its default. Without any, a command need not load the models of all."""
        return bool(
            self.flags
            or (self.home.root / "config.toml").exists()
            or any(may_be_setting(name) for name in self.environ)
        )

    @Once
    def git_operator(self) -> user_config.OperatorIdentity:
        """The author and committer that plain git would use for this user."""
        return user_config.find_operator_identity(self.environ, self.settings.git.executable)

    @Once
    def engine(self) -> ContainerEngine:
        """The connected engine. Raises: `engine_unavailable`."""
        ours = self.settings.engine
        held = quarantine.QuarantineNotes(self.home.quarantine)
        engine = connection.connect(ours.host, self.environ, ours.timeout_s, held)
        self._engines.append(engine)
        self.presence.note_engine()
        return engine

    @Once
    def guest_engine(self) -> ContainerEngine:
        """The engine, for code that starts guests. Raises: as `engine_facts`."""
        self.require_engine()
        return self.engine

    @Once
    def engine_facts(self) -> Mapping[str, Any]:
        """The capabilities of an engine that starts guests, in the format of Docker's `GET /info`.

        Raises: `engine_unavailable`, also if guests would have other users than the container policy says.
        """
        return self.engine.require_known_users(self.policies.container.container.users)

    def require_engine(self) -> None:
        """Before work that would be in vain without an engine that can start guests. Raises: as `engine_facts`."""
        _ = self.engine_facts

    @Once
    def presence(self) -> LiveController:
        """Marks this controller as alive in the home, so that no other controller removes its temporary files."""
        try:
            return liveness.LiveController(self.home.liveness)
        except OSError as error:
            raise translate_shortage(error) or SandboxError(
                ErrorCode.INTERNAL,
                "The sandbox home cannot be written",
                details=error.strerror or str(error),
                hint=f"You must own {self.home.root}, and its disk must have free space.",
            ) from error

    def with_runtime(self, runtime: str | None) -> Services:
        """The same controller for one call with this runtime. Raises: `engine_unavailable`."""
        if runtime is None:
            return self
        self.engine  # noqa: B018 - connect now, so that the error comes before the call does anything
        return replace(self, runtime=runtime, shared_from=self.shared_from or self)

    def for_call(self, client: Caller | None, permission: Permission | None) -> Services:
        """The same controller for one call of a client; the journal names the client, and why it was allowed."""
        return replace(self, client=client, permission=permission, shared_from=self.shared_from or self)

    @Once
    def process_caller(self) -> Caller:
        """The caller of this process when a call names no client."""
        return callers.default_caller(self.surface.actor, self.environ)

    @property
    def caller(self) -> Caller:
        """The caller of this call."""
        return self.client or self.process_caller

    @Once
    def check_queue(self) -> RunQueue:
        """The queue of checks that wait in this home."""
        self.home.run_queue.mkdir(mode=0o700, exist_ok=True)
        return run_queue.RunQueue(self.home.run_queue, self.settings.container.parallel_on_this_host)

    @property
    def image_build_context(self) -> images.ImageBuildContext:
        """What the functions of `sandbox.images` need to build and find images."""
        return images.ImageBuildContext(self.engine, self.home, self.settings.images, self.environ)

    @Once
    def hosts_file(self) -> Path:
        """The file that every guest gets as /etc/hosts."""
        return self.home.ensure_file("hosts", create_options.HOSTS_FILE.encode())

    def close(self) -> None:
        """Stop background runs that have not ended; then close connections, and mark this controller as ended. While
        operations are in progress in other threads, the last one of them does that when it ends.
        """
        self.background_threads.cancel_all()
        self.background_threads.wait_for_all()
        self.operations.call_after_last(self._release)

    def _release(self) -> None:
        for engine in self._engines:
            engine.close()
        self._engines.clear()
        if (liveness := vars(self.shared_from or self).pop("presence", None)) is not None:
            liveness.end()


def build_services(
    home: Path | str | None,
    environ: Mapping[str, str],
    flags: Mapping[str, Any] | None = None,
    *,
    allow_file: bool,
    surface: Surface | None = None,
) -> Services:
    """Prepare the home and read the settings. Raises: `invalid_input`, `policy_violation` on a kernel too old."""
    require_openat2()
    place = Home(resolve_home(default_home(environ) if home is None else home))
    place.prepare()
    services = Services(place, flags or {}, environ, allow_file, surface or Surface())
    if services.has_settings:
        services.settings  # noqa: B018 - report a mistake in them early; the defaults have none and can wait
    return services
