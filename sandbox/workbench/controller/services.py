"""The services of a controller, which every use-case gets: built once from a home, settings and the environment."""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, TypeVar

from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.openat2 import require_openat2
from sandbox.git.shutdown import Shutdown
from sandbox.models import Actor
from sandbox.store.home import Home, default_home, resolve_home
from sandbox.workbench.controller.background_threads import BackgroundThreads
from sandbox.workbench.controller.lazy import LazyModule
from sandbox.workbench.controller.once import Once

if TYPE_CHECKING:
    from sandbox import config, credentials, images, profiles, remotes
    from sandbox.config import Settings
    from sandbox.credentials import Credential
    from sandbox.engine import connection, create_options
    from sandbox.engine.protocol import ContainerEngine
    from sandbox.git import credential_helper, object_cache, transport, user_config
    from sandbox.git.object_cache import ObjectCache
    from sandbox.models import Caller, Permission
    from sandbox.policy import approvals, commit, container, writes
    from sandbox.policy.approvals import ApprovalPolicy
    from sandbox.policy.commit import CommitPolicy
    from sandbox.policy.container import EffectiveContainerPolicy
    from sandbox.policy.writes import PathPolicy
    from sandbox.profiles import Profile
    from sandbox.remotes import Remote
    from sandbox.store import keyring, liveness, quarantine, run_queue
    from sandbox.store.keyring import Keyring
    from sandbox.store.liveness import LiveController
    from sandbox.store.run_queue import RunQueue
    from sandbox.workbench.controller import callers
else:  # loaded at first use: a listing needs none of them (docs/adr/0003)
    config = LazyModule("sandbox.config")
    credentials = LazyModule("sandbox.credentials")
    images = LazyModule("sandbox.images")
    profiles = LazyModule("sandbox.profiles")
    remotes = LazyModule("sandbox.remotes")
    connection = LazyModule("sandbox.engine.connection")
    create_options = LazyModule("sandbox.engine.create_options")
    credential_helper = LazyModule("sandbox.git.credential_helper")
    object_cache = LazyModule("sandbox.git.object_cache")
    transport = LazyModule("sandbox.git.transport")
    user_config = LazyModule("sandbox.git.user_config")
    approvals = LazyModule("sandbox.policy.approvals")
    commit = LazyModule("sandbox.policy.commit")
    container = LazyModule("sandbox.policy.container")
    writes = LazyModule("sandbox.policy.writes")
    keyring = LazyModule("sandbox.store.keyring")
    liveness = LazyModule("sandbox.store.liveness")
    quarantine = LazyModule("sandbox.store.quarantine")
    run_queue = LazyModule("sandbox.store.run_queue")
    callers = LazyModule("sandbox.workbench.controller.callers")

_ResultT = TypeVar("_ResultT")


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
    flags: Mapping[str, Any]
    environ: Mapping[str, str]
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
    _engines: list[ContainerEngine] = field(default_factory=list)
    supervisor_paths: dict[str, Path] = field(default_factory=dict)  # PID 1's binary by runtime
    _object_caches: dict[Path, tuple[tuple[int, ...], ObjectCache]] = field(default_factory=dict)

    @Once
    def settings(self) -> Settings:
        """Settings from the configuration file, the environment and the flags. Raises: `invalid_input`."""
        return config.load_settings(self.home.root, self.environ, self.flags)

    @Once
    def shipped_policy(self) -> EffectiveContainerPolicy:
        """The container policy as shipped, for values that no operator's file can change."""
        return container.load_container_policy(config.find_resources("policies"))

    @Once
    def policy(self) -> EffectiveContainerPolicy:
        """The container policy in force: the shipped one with `$SANDBOX_HOME/policies/container.toml` applied."""
        own = self.home.root / "policies" / "container.toml"
        return (
            container.merge_operator_container_policy(self.shipped_policy, own, create_options.is_protected_variable)
            if own.exists()
            else self.shipped_policy
        )

    @Once
    def path_policy(self) -> PathPolicy:
        """The paths that edits may write: the shipped policy with `$SANDBOX_HOME/policies/paths.toml` applied."""
        name = Path("paths.toml")
        return writes.load_path_policy(config.find_resources("policies") / name, self.home.root / "policies" / name)

    @Once
    def approval_policy(self) -> ApprovalPolicy:
        """The agent calls that need a person's decision: the shipped policy with the operator's file applied."""
        name = Path("approvals.toml")
        return approvals.load_approval_policy(
            config.find_resources("policies") / name, self.home.root / "policies" / name
        )

    @Once
    def git_operator(self) -> user_config.OperatorIdentity:
        """The author and committer that plain git would use for this user."""
        return user_config.find_operator_identity(self.environ, self.settings.git.executable)

    @Once
    def commit_policy(self) -> CommitPolicy:
        """The new files that a commit refuses by default: the shipped policy with the operator's file applied."""
        shipped, own = (
            commit.load_commit_policy(config.find_resources("policies")),
            self.home.root / "policies/commit.toml",
        )
        return commit.merge_operator_commit_policy(shipped, own) if own.exists() else shipped

    @Once
    def profiles(self) -> dict[str, Profile]:
        """Shipped profiles; a profile in `$SANDBOX_HOME/profiles/` replaces the shipped one of the same name."""
        workspace = PurePosixPath(self.shipped_policy.container.mounts.workspace)
        return profiles.load_profiles(
            (config.find_resources("policies") / "profiles", self.home.root / "profiles"), workspace
        )

    @Once
    def credentials(self) -> tuple[Credential, ...]:
        """Credentials in matching order, secrets wrapped."""
        return credentials.load_credentials(self.home.root, self.environ)

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
        """The engine, for code that starts guests. Raises: `engine_unavailable`, also if the engine maps users."""
        self.engine.require_same_users()
        return self.engine

    @Once
    def presence(self) -> LiveController:
        """Marks this controller as alive in the home, so that no other controller removes its temporary files."""
        try:
            return liveness.LiveController(self.home.liveness)
        except OSError as error:
            raise SandboxError(
                ErrorCode.INTERNAL,
                "The sandbox home cannot be written",
                details=error.strerror or str(error),
                hint=f"You must own {self.home.root}, and its disk must have free space.",
            ) from error

    def with_runtime(self, runtime: str | None) -> Services:
        """The same controller for one call with this runtime. Raises: `engine_unavailable`."""
        if not runtime:
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
        return run_queue.RunQueue(self.home.run_queue, self.settings.container.parallel or 2 * (os.cpu_count() or 1))

    @property
    def image_build_context(self) -> images.ImageBuildContext:
        """What the functions of `sandbox.images` need to build and find images."""
        return images.ImageBuildContext(self.engine, self.home, self.settings.images, self.environ)

    @Once
    def hosts_file(self) -> Path:
        """The file that every guest gets as /etc/hosts."""
        return self.home.ensure_file("hosts", create_options.HOSTS_FILE.encode())

    @Once
    def instance_id(self) -> str:
        """Random id of this home, a label of all its containers: containers of other homes are never touched."""
        return self.home.ensure_file("instance", secrets.token_hex(8).encode(), fixed=False).read_text()

    @property
    def pristine_owner(self) -> tuple[int, int] | None:
        """uid and gid for the files of pristine checkouts; None when this process may not change owners."""
        user = self.shipped_policy.container.user
        return (user.uid, user.gid) if os.geteuid() == 0 else None

    def parse_remote(self, url: str) -> Remote:
        """Parse a remote URL under the rules of this surface and the settings. Raises: `invalid_input`."""
        allow_file = self.allow_file or self.settings.remotes.allow_file
        ours = self.settings.remotes
        forges = remotes.map_hosts({h.setting: getattr(ours, h.setting) for h in remotes.FORGE_HOSTS.values()})
        try:
            return remotes.parse_remote(url, allow_file=allow_file, allow_http=ours.allow_http, forges=forges)
        except SandboxError as error:
            if allow_file and not url.startswith("-") and os.path.isdir(url):  # noqa: PTH112 - never raises
                error.hint = f"For a directory of this host write a path: ./{url}"
            raise

    @property
    def keyring(self) -> Keyring:
        """The entries of this home in the system keyring."""
        return keyring.Keyring(self.instance_id, self.environ)

    def _add_keyring_secret(self, entry: Credential) -> Credential:
        secret = self.keyring.find(entry.host)
        if secret is None:
            raise SandboxError(
                ErrorCode.AUTH_FAILED,
                f"The system keyring no longer has a secret for {entry.host}",
                hint=f"Store it again: sandbox credentials set {entry.host}",
            )
        return credentials.make_credential(**{**dict(entry), "secret": secret})

    def remote_access(self, remote: Remote) -> transport.RemoteAccess:
        """What git may use to reach one remote over the network: its credential, limits and deadline."""
        port = remote.port or {"https": 443, "ssh": 22}.get(remote.protocol)
        credential = credentials.find_credential(self.credentials, remote.hostname, port, remote.protocol)
        if credential is not None and credential.keyring and remote.protocol == "https":
            credential = self._add_keyring_secret(credential)
        return transport.RemoteAccess(
            remote,
            credential,
            self.home.known_hosts,
            self.environ,
            progress=self.surface.progress,
            timeout_s=self.settings.remotes.timeout_s,
            git=self.settings.git.executable,
            max_fetch_bytes=self.settings.remotes.max_fetch_bytes,
            shutdown=self.shutdown,
        )

    def run_with_access(self, remote: Remote, action: Callable[[transport.RemoteAccess], _ResultT]) -> _ResultT:
        """Run `action` on a remote. If the remote refuses it and we have no secret, run it once more with the secret of
        the user's credential helper.
        """
        access = self.remote_access(remote)
        try:
            return action(access)
        except SandboxError as error:
            known = access.credential is not None and bool(access.credential.secret.get_secret_value())
            if error.code is not ErrorCode.AUTH_FAILED or remote.protocol != "https" or known:
                raise
            found = self._ask_credential_helper(remote.url.split("/")[2], access.credential)
            if found is None:
                raise
        return action(replace(access, credential=found))

    def _ask_credential_helper(self, authority: str, configured: Credential | None) -> Credential | None:
        """The credential of the user's git credential helper for a host, with the CA file that we have for it."""
        found = credential_helper.ask_helper(authority, self.environ, self.settings.git.executable)
        if found is None:
            return None
        return found.model_copy(update={"ca_file": configured.ca_file if configured else None})

    def find_forge_credential(self, remote: Remote) -> Credential | None:
        """The credential for the API of a remote's forge: the one for https to its host, also if the remote is ssh."""
        port = remote.port if remote.protocol == "https" else None
        found = credentials.find_credential(self.credentials, remote.hostname, port or 443)
        if found is not None and found.keyring:
            found = self._add_keyring_secret(found)
        if found is not None and found.secret.get_secret_value():
            return found
        return self._ask_credential_helper(f"{remote.hostname}:{port}" if port else remote.hostname, found)

    def get_object_cache(self, clone: Path) -> ObjectCache:
        """The object cache of a cache clone, a new one if the clone was replaced. Raises: OSError without a clone."""
        folder, head = clone.stat(), (clone / "HEAD").stat()
        same = (folder.st_dev, folder.st_ino, head.st_ino, head.st_ctime_ns)
        with self.once_lock:
            before = self._object_caches.get(clone)
            if before is None or before[0] != same:
                before = self._object_caches[clone] = (same, object_cache.ObjectCache())
            return before[1]

    def close(self) -> None:
        """Stop background runs that have not ended, close connections, and mark this controller as ended."""
        self.background_threads.cancel_all()
        self.background_threads.wait_for_all()
        for engine in self._engines:
            engine.close()
        self._engines.clear()
        if (liveness := self.__dict__.pop("presence", None)) is not None:
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
    place = Home(resolve_home(home or default_home(environ)))
    place.prepare()
    services = Services(place, flags or {}, environ, allow_file, surface or Surface())
    if flags or (place.root / "config.toml").exists() or any(_may_be_setting(name) for name in environ):
        services.settings  # noqa: B018 - report a mistake in them early; the defaults have none and can wait
    return services


def _may_be_setting(variable: str) -> bool:
    """Whether a variable is a setting, or a misspelt one, which is an error. The three exceptions are no settings."""
    return variable.upper().startswith("SANDBOX_") and variable not in {"SANDBOX_HOME", "SANDBOX_LOG", "SANDBOX_DEBUG"}
