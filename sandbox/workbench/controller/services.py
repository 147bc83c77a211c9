"""What every use-case needs, built once from a home directory, settings and the environment."""

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
from sandbox.git.shutdown import Ending
from sandbox.models import Actor
from sandbox.store.home import Home, default_home, home_at
from sandbox.workbench.controller.background_threads import BackgroundThreads
from sandbox.workbench.controller.lazy import Lazy
from sandbox.workbench.controller.once import Once

if TYPE_CHECKING:
    from sandbox import config, credentials, images, profiles, remotes
    from sandbox.config import Settings
    from sandbox.credentials import Credential
    from sandbox.engine import connection, create_options, ownership
    from sandbox.git import credential_helper, object_cache, transport, user_config
    from sandbox.git.object_cache import Known
    from sandbox.models import Caller, Permission
    from sandbox.policy import approvals, commit, container, writes
    from sandbox.policy.approvals import ApprovalPolicy
    from sandbox.policy.commit import CommitPolicy
    from sandbox.policy.container import ShippedPolicy
    from sandbox.policy.writes import PathPolicy
    from sandbox.profiles import Profile
    from sandbox.remotes import Remote
    from sandbox.store import keyring, liveness, quarantine, run_queue
    from sandbox.store.keyring import Keyring
    from sandbox.store.liveness import Presence
    from sandbox.store.run_queue import Turns
    from sandbox.workbench.controller import callers
else:  # a listing needs none of them (docs/adr/0003)
    config = Lazy("sandbox.config")
    credentials = Lazy("sandbox.credentials")
    images = Lazy("sandbox.images")
    profiles = Lazy("sandbox.profiles")
    remotes = Lazy("sandbox.remotes")
    connection = Lazy("sandbox.engine.connection")
    create_options = Lazy("sandbox.engine.create_options")
    ownership = Lazy("sandbox.engine.ownership")
    credential_helper = Lazy("sandbox.git.credential_helper")
    object_cache = Lazy("sandbox.git.object_cache")
    transport = Lazy("sandbox.git.transport")
    user_config = Lazy("sandbox.git.user_config")
    approvals = Lazy("sandbox.policy.approvals")
    commit = Lazy("sandbox.policy.commit")
    container = Lazy("sandbox.policy.container")
    writes = Lazy("sandbox.policy.writes")
    keyring = Lazy("sandbox.store.keyring")
    liveness = Lazy("sandbox.store.liveness")
    quarantine = Lazy("sandbox.store.quarantine")
    run_queue = Lazy("sandbox.store.run_queue")
    callers = Lazy("sandbox.workbench.controller.callers")

_ResultT = TypeVar("_ResultT")


@dataclass(frozen=True)
class Surface:
    """What the surface that drives a controller gives it: how it reports, who it is, how it cleans up.

    `after_a_kill`: called once, before the first change, when a controller of this home was killed.
    """

    progress: Callable[[str], None] | None = None
    actor: Actor = Actor.PYTHON
    after_a_kill: Callable[[Parts], None] = lambda _: None


@dataclass
class Look:
    """Whether something that is looked at once was looked at."""

    is_done: bool = False


@dataclass(frozen=True)
class Parts:
    """Collaborators of one controller, for all its threads. The engine is connected on first use."""

    home: Home
    flags: Mapping[str, Any]
    environ: Mapping[str, str]
    allow_file: bool
    surface: Surface
    runtime: str | None = None  # what this call asked for: it goes before the profile's and the settings'
    client: Caller | None = None  # for whom this call is; None: for the user of this process
    allowed: Permission | None = None  # how this call of an agent came to be allowed
    shares: Parts | None = None  # the controller whose collaborators these are
    first_look: Look = field(default_factory=Look)  # at policies and settings that may have changed
    first_uses: threading.RLock = field(default_factory=threading.RLock)
    ending: Ending = field(default_factory=Ending)
    threads: BackgroundThreads = field(default_factory=BackgroundThreads)
    _engines: list[connection.Engine] = field(default_factory=list)
    supervisors: dict[str, Path] = field(default_factory=dict)  # PID 1's binary by runtime, as first found
    _known: dict[Path, tuple[tuple[int, ...], Known]] = field(default_factory=dict)

    @Once
    def settings(self) -> Settings:
        """What the file, the variables and the flags say. Raises: `invalid_input`."""
        return config.load_settings(self.home.root, self.environ, self.flags)

    @Once
    def shipped_policy(self) -> ShippedPolicy:
        """The container policy as shipped: for what no operator's file changes, which is then of no importance here."""
        return container.load_container_policy(config.resources("policies"))

    @Once
    def policy(self) -> ShippedPolicy:
        """The container policy in force: as shipped, with `$SANDBOX_HOME/policies/container.toml` on top."""
        own = self.home.root / "policies" / "container.toml"
        return (
            container.with_own(self.shipped_policy, own, create_options.protected)
            if own.exists()
            else self.shipped_policy
        )

    @Once
    def paths(self) -> PathPolicy:
        """Which paths edits may write: as shipped, with the operator's `$SANDBOX_HOME/policies/paths.toml` on top."""
        name = Path("paths.toml")
        return writes.load_path_policy(config.resources("policies") / name, self.home.root / "policies" / name)

    @Once
    def approval_policy(self) -> ApprovalPolicy:
        """Which calls of agents a person decides about: as shipped, with the operator's on top."""
        name = Path("approvals.toml")
        return approvals.load_approval_policy(config.resources("policies") / name, self.home.root / "policies" / name)

    @Once
    def operator(self) -> user_config.Operator:
        """Whom plain git would name in a commit of this user."""
        return user_config.operator_identity(self.environ, self.settings.git.executable)

    @Once
    def commit_policy(self) -> CommitPolicy:
        """What a commit does not take in unasked: as shipped, with the operator's on top."""
        shipped, own = commit.load_commit_policy(config.resources("policies")), self.home.root / "policies/commit.toml"
        return commit.with_own(shipped, own) if own.exists() else shipped

    @Once
    def profiles(self) -> dict[str, Profile]:
        """Shipped profiles, replaced by name by those in `$SANDBOX_HOME/profiles/`."""
        workspace = PurePosixPath(self.shipped_policy.container.mounts.workspace)
        return profiles.load_profiles(
            (config.resources("policies") / "profiles", self.home.root / "profiles"), workspace
        )

    @Once
    def credentials(self) -> tuple[Credential, ...]:
        """Credentials by host, secrets wrapped."""
        return credentials.load_credentials(self.home.root, self.environ)

    @Once
    def engine(self) -> connection.Engine:
        """Raises: `engine_unavailable`."""
        engine = connection.connect(self.settings.engine.host, self.environ, self.settings.engine.timeout_s)
        engine = replace(engine, ward=quarantine.Quarantine(self.home.quarantine))
        self._engines.append(engine)
        self.presence.note_engine()
        return engine

    @Once
    def guest_engine(self) -> connection.Engine:
        """The engine, for what starts guests. Raises: `engine_unavailable`, also for one that maps users."""
        ownership.require_same_users(self.engine)
        return self.engine

    @Once
    def presence(self) -> Presence:
        """That we are at work in this home: what we make for ourselves is not swept meanwhile."""
        try:
            return liveness.Presence(self.home.presence)
        except OSError as error:
            raise SandboxError(
                ErrorCode.INTERNAL,
                "The sandbox home cannot be written",
                details=error.strerror or str(error),
                hint=f"{self.home.root} has to be yours, on a disk with room.",
            ) from error

    def under(self, runtime: str | None) -> Parts:
        """The same controller, for one call that asks for a runtime. Raises: `engine_unavailable`."""
        if not runtime:
            return self
        twin = replace(self, runtime=runtime)
        ours = {"settings": self.settings, "engine": self.engine, "presence": self.presence, "turns": self.turns}
        twin.__dict__.update(ours)  # one of each
        return twin

    def acting(self, client: Caller | None, allowed: Permission | None) -> Parts:
        """The same controller, for one call of a client; the journal says who it was, and how it was allowed."""
        return replace(self, client=client, allowed=allowed, shares=self.shares or self)

    @Once
    def user(self) -> Caller:
        """For whom this process works."""
        return callers.default_caller(self.surface.actor, self.environ)

    @property
    def caller(self) -> Caller:
        """For whom this call is."""
        return self.client or self.user

    @Once
    def turns(self) -> Turns:
        """The line of checks that wait in this home."""
        self.home.turns.mkdir(mode=0o700, exist_ok=True)
        return run_queue.Turns(self.home.turns, self.settings.container.parallel or 2 * (os.cpu_count() or 1))

    @property
    def image_site(self) -> images.Site:
        """Where images are built and found."""
        return images.Site(self.engine, self.home, self.settings.images, self.environ)

    @Once
    def hosts(self) -> Path:
        """The file every guest gets as /etc/hosts."""
        return self.home.keep("hosts", create_options.HOSTS.encode())

    @Once
    def instance(self) -> str:
        """Random id of this home, on every container we make: another controller's containers are never touched."""
        return self.home.keep("instance", secrets.token_hex(8).encode(), fixed=False).read_text()

    @property
    def guest_user(self) -> tuple[int, int]:
        """Who the guest is: a uid that owns nothing here when we are root, else ourselves (doctor says so)."""
        user = self.shipped_policy.container.user
        return (user.uid, user.gid) if os.geteuid() == 0 else (os.geteuid(), os.getegid())

    @property
    def file_owner(self) -> tuple[int, int] | None:
        """Owner to give to worktree files; None when we may not give any away."""
        return self.guest_user if os.geteuid() == 0 else None

    def remote(self, url: str) -> Remote:
        """Parse under this surface's rules."""
        allow_file = self.allow_file or self.settings.remotes.allow_file
        ours = self.settings.remotes
        forges = remotes.map_hosts({h.setting: getattr(ours, h.setting) for h in remotes.FORGE_HOSTS.values()})
        try:
            return remotes.parse_remote(url, allow_file=allow_file, allow_http=ours.allow_http, forges=forges)
        except SandboxError as error:
            if allow_file and not url.startswith("-") and os.path.isdir(url):  # noqa: PTH112 - never raises
                error.hint = f"A directory of this host is written as a path: ./{url}"
            raise

    @property
    def keyring(self) -> Keyring:
        """The system keyring, as far as this home uses it."""
        return keyring.Keyring(self.instance, self.environ)

    def _completed(self, entry: Credential) -> Credential:
        secret = self.keyring.find(entry.host)
        if secret is None:
            raise SandboxError(
                ErrorCode.AUTH_FAILED,
                f"The system keyring has no secret for {entry.host} any more",
                hint=f"Store it again: sandbox credentials set {entry.host}",
            )
        return credentials.make_credential(**{**dict(entry), "secret": secret})

    def access(self, remote: Remote) -> transport.Access:
        """What network git may use for one remote."""
        port = remote.port or {"https": 443, "ssh": 22}.get(remote.protocol)
        credential = credentials.credential_for(self.credentials, remote.hostname, port, remote.protocol)
        if credential is not None and credential.keyring and remote.protocol == "https":
            credential = self._completed(credential)
        return transport.Access(
            remote,
            credential,
            self.home.known_hosts,
            self.environ,
            progress=self.surface.progress,
            timeout_s=self.settings.remotes.timeout_s,
            git=self.settings.git.executable,
            max_fetch_bytes=self.settings.remotes.max_fetch_bytes,
            ending=self.ending,
        )

    def authenticated(self, remote: Remote, action: Callable[[transport.Access], _ResultT]) -> _ResultT:
        """Do something with a remote; when it refuses us and we know no secret, once more with the user's helper's."""
        access = self.access(remote)
        try:
            return action(access)
        except SandboxError as error:
            known = access.credential is not None and bool(access.credential.secret.get_secret_value())
            if error.code is not ErrorCode.AUTH_FAILED or remote.protocol != "https" or known:
                raise
            found = self._helped(remote.url.split("/")[2], access.credential)
            if found is None:
                raise
        return action(replace(access, credential=found))

    def _helped(self, authority: str, known: Credential | None) -> Credential | None:
        """What the user's own helper has for a host, with the CA file that we have for it."""
        found = credential_helper.ask_helper(authority, self.environ, self.settings.git.executable)
        if found is None:
            return None
        return found.model_copy(update={"ca_file": known.ca_file if known else None})

    def token(self, remote: Remote) -> Credential | None:
        """What opens the API of a remote's forge: the secret for https to its host, of whatever kind the remote is."""
        port = remote.port if remote.protocol == "https" else None
        found = credentials.credential_for(self.credentials, remote.hostname, port or 443)
        if found is not None and found.keyring:
            found = self._completed(found)
        if found is not None and found.secret.get_secret_value():
            return found
        return self._helped(f"{remote.hostname}:{port}" if port else remote.hostname, found)

    def known(self, clone: Path) -> Known:
        """What git said about a cache clone, as long as it is the same one. Raises: OSError when there is none."""
        folder, head = clone.stat(), (clone / "HEAD").stat()
        same = (folder.st_dev, folder.st_ino, head.st_ino, head.st_ctime_ns)
        with self.first_uses:
            before = self._known.get(clone)
            if before is None or before[0] != same:
                before = self._known[clone] = (same, object_cache.Known())
            return before[1]

    def close(self) -> None:
        """Give back connections; we are not at work any more. Background runs that have not ended are stopped."""
        self.threads.cancel_all()
        self.threads.wait_for_all()
        for engine in self._engines:
            engine.close()
        self._engines.clear()
        if (liveness := self.__dict__.pop("presence", None)) is not None:
            liveness.end()


def build_parts(
    home: Path | str | None,
    environ: Mapping[str, str],
    flags: Mapping[str, Any] | None = None,
    *,
    allow_file: bool,
    surface: Surface | None = None,
) -> Parts:
    """Prepare the home and read the settings. Raises: `invalid_input`, `policy_violation` on a kernel too old."""
    require_openat2()
    place = Home(home_at(home or default_home(environ)))
    place.prepare()
    parts = Parts(place, flags or {}, environ, allow_file, surface or Surface())
    if flags or (place.root / "config.toml").exists() or any(_may_set(name) for name in environ):
        parts.settings  # noqa: B018 - a mistake in them is told first; the defaults have none and can wait
    return parts


def _may_set(variable: str) -> bool:
    """What is no setting of these is refused when it is nearly one; the three that everybody has are none."""
    return variable.upper().startswith("SANDBOX_") and variable not in {"SANDBOX_HOME", "SANDBOX_LOG", "SANDBOX_DEBUG"}
