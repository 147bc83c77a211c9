"""Settings of one controller: `$SANDBOX_HOME/config.toml`, overridden by `SANDBOX_*` variables, overridden by flags.

Unknown keys are errors. Variables are `SANDBOX_<SECTION>_<KEY>`, e.g. `SANDBOX_ENGINE_HOST`,
`SANDBOX_PROFILES_PYTHON_IMAGE`.
"""

from __future__ import annotations

import difflib
import functools
import logging
import operator
import os
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    field_validator,
)
from pydantic_core import PydanticCustomError

from sandbox.document_errors import describe_errors, describe_unknown_key, describe_value_error, parse_toml
from sandbox.environment_names import HOME, OF_THE_PROGRAM, PREFIX, may_be_setting
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models.checks import MAX_TIMEOUT_S, ChosenLimits, Environment, Jobs
from sandbox.models.ids import PackageName, SimpleName
from sandbox.shipped_files import find_resources as find_resources

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_log = logging.getLogger(__name__)

_HINT = "docs/configuration.md lists every key."
_MAX_AT_ONCE = 10_000
_SIMILARITY = 0.8  # of 1, as difflib measures it
_SLIGHT_SIMILARITY = 0.6
_HINTS_BY_PREFIX = {
    "REPOSITORIES_": "Set the checks of a repository in config.toml (docs/configuration.md).",
    "LIMITS_": "Limits belong to a check; set them in its profile (docs/profiles.md).",
    "PROFILE": "Profiles have SANDBOX_PROFILES_<NAME>_IMAGE and SANDBOX_PROFILES_<NAME>_RUNTIME.",
}


ProxyUrl = Annotated[str, StringConstraints(pattern=r"^(|(https?|socks5h?)://[A-Za-z0-9.\[\]:-]{1,260}/?)$")]
"""Without user and password: the URL is in arguments of programs."""

CAPABILITIES = ("arch", "cgroup", "cpus", "memory", "runtime")
"""What a task may require beside labels; no label has one of these names."""

MAX_LABELS = 16

LabelKey = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9._/-]{0,61}[a-z0-9])?$")]
LabelValue = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$")]


def _split_pairs(value: object) -> object:
    """`a=b,c=d` as a mapping, so that an environment variable can say it; anything else unchanged.

    Raises: ValueError for a part without `=`, and for a name that is there twice.
    """
    if not isinstance(value, str):
        return value
    found: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in value.split(","))):
        key, equals, text = part.partition("=")
        if not equals:
            raise ValueError(f"'{part[:80]}' is not NAME=VALUE")
        if key in found:
            raise ValueError(f"'{key[:80]}' is there twice")
        found[key] = text
    return found


Labels = Annotated[dict[LabelKey, LabelValue], BeforeValidator(_split_pairs), Field(max_length=MAX_LABELS)]
"""Names and values chosen by the operator, or what a task requires of a worker: labels and `CAPABILITIES`."""

_ABOVE = "above_bound"  # pydantic's type of an error


def _at_most(most: int) -> BeforeValidator:
    """Report a larger number, infinity included, as `_ABOVE`. Files that earlier versions accepted have such numbers
    for `practically for ever`: `load_settings` takes the bound instead.
    """

    def require(value: object) -> object:
        try:
            number = float(value) if isinstance(value, str) else value
        except ValueError:
            return value  # pydantic says what is expected
        if isinstance(number, int | float) and number > most:
            raise PydanticCustomError(_ABOVE, "should be at most {most}", {"most": most})
        return value

    return BeforeValidator(require)


Days = Annotated[float, Field(ge=0), _at_most(36_500)]
"""A hundred years: a time that long ago can still be computed."""

Pace = Annotated[float, Field(ge=0), _at_most(31_536_000)]
"""Seconds between two rounds of the same work, at most a year. 0: none."""

Deadline = Annotated[float, Field(gt=0), _at_most(int(MAX_TIMEOUT_S))]
Bytes = Annotated[int, Field(ge=0), _at_most(2**60)]
"""At most 1 EiB, which the kernel and each file format can say."""

SomeBytes = Annotated[int, Field(gt=0), _at_most(2**60)]
Count = Annotated[int, Field(ge=0), _at_most(10**9)]
AtOnce = Annotated[int, Field(ge=0), _at_most(_MAX_AT_ONCE)]
"""How much is done or kept ready at the same time."""


class _SettingsSection(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class RemoteSettings(_SettingsSection):
    """Which remotes are allowed. The command line may always use local paths; agent tools need `allow_file`.

    `timeout_s`: of each git command; reached: git is killed, `timeout`.
    `max_fetch_bytes`: of the pack that a fetch downloads; reached: git is killed, `quota_exceeded`.
    `max_fetch_memory_bytes`: of each git process of a fetch; reached: `quota_exceeded`. A fetch begins with less.
    `max_lfs_bytes`: of the files of one tree that Git LFS keeps; reached: `quota_exceeded` before anything is fetched.
    `lfs_hosts`: hosts, as `HOST` or `HOST:PORT`, that objects of Git LFS may come from besides the remote's own.
    `github_hosts`, `gitlab_hosts`: host names of GitHub Enterprise and self-hosted GitLab.
    `plain_hosts`: host names of git servers without pull requests: what is pushed there needs no answer of a forge.
    `api_urls`: URL of a forge's API by host name, if it is not the usual one; it receives the host's token.
    `proxy`: URL of the proxy for https and http remotes and for APIs of forges; empty: git uses none, APIs that of the
    environment. `proxies`: by host name, instead of `proxy`; empty: none for this host.
    """

    allow_file: bool = False
    allow_http: bool = False
    timeout_s: Deadline = 900.0
    max_fetch_bytes: SomeBytes = 8 * 1024**3
    max_fetch_memory_bytes: SomeBytes = 216 * 1024**2  # as all fetches together
    max_lfs_bytes: SomeBytes = 2 * 1024**3
    lfs_hosts: tuple[str, ...] = ()
    github_hosts: tuple[str, ...] = ()
    gitlab_hosts: tuple[str, ...] = ()
    plain_hosts: tuple[str, ...] = ()
    api_urls: dict[str, str] = Field(default_factory=dict)
    proxy: ProxyUrl = ""
    proxies: dict[str, ProxyUrl] = Field(default_factory=dict)

    def proxy_of(self, hostname: str) -> str | None:
        """The proxy for a host; '' for none, None without a setting."""
        named = {name.lower(): url for name, url in self.proxies.items()}
        return named.get(hostname.lower(), self.proxy or None)


class GitSettings(_SettingsSection):
    """`executable`: the git to run instead of the one on the fixed search path.

    Its real, absolute path. Refused at its first use unless only root or our own user can replace it.
    """

    executable: str = ""


class EngineSettings(_SettingsSection):
    """`host`: engine endpoint (`unix:///path`, `tcp://host:port`); empty: resolved as the docker command does."""

    host: str = ""
    timeout_s: Deadline = 60.0


class ImageSettings(_SettingsSection):
    """`base`: Debian image that ours are built from; empty: one that is present, else pulled, else bootstrapped.

    `mirror`: Debian archive for the bootstrap; empty: the public default of the bootstrap tool.
    `ca_bundle`: CA file trusted for downloads of an image build; the image itself does not trust it.
    `build_network`: network of image builds (never of checks).
    `build`: `auto`: an image of a recipe that a check needs and the engine lacks is built first; `never`: such a check
    is an error that names the command.
    `keep_days`: how long an image is kept after the last home of the engine stopped using it.
    """

    base: str = ""
    mirror: str = ""
    ca_bundle: str = "/etc/ssl/certs/ca-certificates.crt"
    build_network: str = "host"
    build: Literal["auto", "never"] = "auto"
    keep_days: Days = 30.0


class RegistrySettings(_SettingsSection):
    """Where packages are fetched from, by URL: the first of each list is the index, the others are further hosts.

    Empty: the registries in the settings of this host's pip or npm, else the public ones. A host that is named here or
    there may have a private address; a public registry's may not.
    `ca_file`: their CA certificates; empty: the file in the settings of pip or npm, else `images.ca_bundle`.
    """

    python: tuple[str, ...] = ()
    node: tuple[str, ...] = ()
    rust: tuple[str, ...] = ()
    go: tuple[str, ...] = ()
    perl: tuple[str, ...] = ()
    ca_file: str = ""


class LayerSettings(_SettingsSection):
    """Dependencies of repositories (docs/dependencies.md).

    `fetch`: `auto`: packages that a repository's manifests ask for are fetched before its checks run, when a person or
    a program asks for them; agents use layers that are there. `never`: only layers that are there are used.
    `max_bytes`: of all layers together; more: `gc` removes those that were used least recently.
    `keep_days`: how long a layer is kept after its last use.
    """

    fetch: Literal["auto", "never"] = "auto"
    max_bytes: SomeBytes = 20 * 1024**3
    keep_days: Days = 30.0


class ProfileSettings(_SettingsSection):
    """`image`: any local image, or the name of a folder under `images/`, instead of the profile's image.

    `packages`: Debian packages for its checks, beside those of the profile.
    `runtime`: engine runtime for this profile's checks, instead of `container.runtime`.
    `timeout_factor`: multiplies the deadline of each of its checks, for a host that is slower or busier than most. A
    deadline set for one repository is taken as it is.
    `require`: what a worker of a cluster must have to get a task with this profile (docs/cluster.md).
    """

    image: str = ""
    packages: tuple[PackageName, ...] = ()
    runtime: str = ""
    require: Labels = Field(default_factory=dict)
    timeout_factor: float = Field(default=1.0, gt=0, le=100.0)


class ContainerSettings(_SettingsSection):
    """`runtime`: engine runtime for checks; a runtime that the engine lacks is an error, never a fallback.

    `keep`: a task's container is kept for its next check; false: each check gets a new one, as in a clean room.
    `keep_bytes`: a container that holds more in memory after a check (/tmp, home, /dev/shm, kernel) is not kept.
    `idle_s`: how long a task's container is kept without a check, and, for at least 60 s, a check that runs without its
    controller; then its supervisor ends it.
    `parallel`: how many checks of this home run in parallel, in all processes; others wait. 0: two for each CPU.
    `users_folder`: where root controllers record which user ids guests have; the same for all homes of a host.
    `compiler_cache`: `auto`: clean rooms of the default branch's commits fill a cache of compiled files, which other
    rooms of the repository read; `never`: every room compiles from scratch.
    `tenant`: for whom this controller works: a label of containers, runs and journal entries. Empty: no label.
    """

    runtime: str = "runc"
    keep: bool = True
    keep_bytes: Bytes = 512 * 1024**2
    idle_s: int = Field(default=600, ge=10, le=31_536_000)
    parallel: AtOnce = 0
    users_folder: Path = Path("/var/lib/space-sandbox/users")
    tenant: str = Field(default="", pattern=r"^([a-z0-9][a-z0-9._-]{0,62})?$")
    compiler_cache: Literal["auto", "never"] = "auto"

    @property
    def parallel_on_this_host(self) -> int:
        """How many checks run in parallel, at least 1."""
        return self.parallel or 2 * (os.cpu_count() or 1)


class WorkspaceSettings(_SettingsSection):
    """`worktree`: layout of new worktrees; `auto`: overlays where this host supports them, else plain checkouts.

    `disk`: `image` gives each new overlay a file system of its own, whose size is the disk limit of its checks; `watch`
    counts files while a check runs; `auto`: the first where this host supports it, else the second.

    `keep_unused_days`: how long a pristine checkout is kept that no worktree is mounted over, and facts of commits and
    trees that can be computed again.
    `pre_create`, `post_create`: the operator's commands, as argv, before and after a clone workspace is created.
    """

    worktree: Literal["auto", "overlay", "plain"] = "auto"
    disk: Literal["auto", "image", "watch"] = "auto"
    keep_unused_days: Days = 7.0
    pre_create: tuple[str, ...] = ()
    post_create: tuple[str, ...] = ()


class PoolSettings(_SettingsSection):
    """Spare tasks, which are made ahead so that `task create` and its first check answer at once (docs/serve.md).

    `size`: how many, for the repositories that were worked in last; 0: none. Each has a worktree and an idle container.
    """

    size: AtOnce = 0


class DiskSettings(_SettingsSection):
    """Free space on the home's file system. 0: none is kept free.

    `min_free_bytes`, `min_free_files`: below it no clone, fetch, checkout, check or image build starts
    (`quota_exceeded`), and running checks are stopped (`disk_limit`).
    `reserve_bytes`, `reserve_files`: below it no writer starts, also no edit or commit; only closing, cleaning,
    removing and `gc` may use it.
    """

    min_free_bytes: Bytes = 2 * 1024**3
    min_free_files: Count = 10_000
    reserve_bytes: Bytes = 64 * 1024**2
    reserve_files: Count = 500


class StorageSettings(_SettingsSection):
    """How much this home may hold on its disk; images are the engine's. 0: no limit.

    `max_bytes`: in all. Reached: `gc` and the daemon remove what can be made or fetched again, then verdicts, logs and
    artifacts of old runs, those used least recently first; never what exists only here. If that is not enough, no
    clone, fetch, checkout, check or image build starts (`quota_exceeded`).
    `repository_max_bytes`: of each repository. Reached: the same is removed of this repository, and no work is refused.
    """

    max_bytes: Bytes = 0
    repository_max_bytes: Bytes = 0


class KeepSettings(_SettingsSection):
    """How much `gc` keeps of what is finished. It never removes what exists only here: open tasks, commits that were
    not pushed, uncommitted changes, journals of their tasks. 0: no limit.

    `closed_tasks_days`: the record, runs and snapshots of a closed task, counted from its closing.
    `runs`: records and logs of runs, for each task and repository; the oldest go first.
    `logs_bytes`: of the logs of each task and repository; the oldest go first, their records stay.
    `verdicts`: cached verdicts of the home; the oldest go first, and their checks run again.
    `artifacts_days`: artifacts of runs; the contents that no run names are deleted.
    `approvals_days`: a decided or expired approval, counted from when it was found to be over.
    `background_runs`: records of background runs of the home.
    `quarantine_days`: a cache clone that a repair set aside, if the new clone has all its commits; a task of a cluster
    that went on on another host.
    `journal_bytes`: a longer journal is named. A journal is never cut.
    `journals_days`: the journal of a task that was forgotten, counted from its last entry. Its last digest stays.
    `repack_days`: a cache clone is packed again after this time if it changed, and sooner if it has many files.
    """

    closed_tasks_days: Days = 180.0
    runs: Count = 1000
    logs_bytes: Bytes = 2 * 1024**3
    verdicts: Count = 20_000
    artifacts_days: Days = 30.0
    approvals_days: Days = 30.0
    background_runs: Count = 500
    quarantine_days: Days = 30.0
    journal_bytes: Bytes = 256 * 1024**2
    journals_days: Days = 730.0
    repack_days: Days = 7.0


class GateSettings(_SettingsSection):
    """`require`: which steps need a verified tree before it leaves this host. `require_candidate`: where the profile
    has `[launch]`, these steps also need a candidate of the tree that passed. `accept`: what counts for them: that
    every check `passed`, or also a comparison with the base that shows `no-new-failures` (docs/verify.md).
    `excusing_branches`: patterns such as `release/*` of branches that excuse failures in such a comparison, besides the
    default one; `*` stands for any characters, also `/`.
    """

    require: Literal["none", "pr-ready", "push", "pr"] = "pr-ready"
    require_candidate: bool = False
    accept: Literal["passed", "no-new-failures"] = "passed"
    excusing_branches: tuple[str, ...] = ()


class ReceiptSettings(_SettingsSection):
    """Receipts of verdicts (docs/receipts.md).

    `signing_key`: file with a private Ed25519 key in PEM, instead of the home's own key.
    `trusted_keys`: files with public keys, as `receipt verify --key` takes them, instead of the home's own; in the
    variable, separated by colons.
    `trust_config`: file with the ClientTrustConfig of a private Sigstore instance; empty: the public one.
    `pull_requests`: a pull request of a verified tree gets a receipt: it is pushed as a git note, and the description
    has its digest and how to check it.
    """

    signing_key: str = ""
    trusted_keys: tuple[str, ...] = ()
    trust_config: str = ""
    pull_requests: bool = False

    @field_validator("trusted_keys", mode="before")
    @classmethod
    def _split_variable(cls, value: object) -> object:
        return tuple(filter(None, value.split(":"))) if isinstance(value, str) else value


class CacheSettings(_SettingsSection):
    """A verdict cache that several homes share, such as the jobs of a CI (docs/ci.md).

    `url`: a directory, or a URL of fsspec such as `s3://bucket/folder` (extra `fsspec`); empty: none. Entries are
    receipts; one that no trusted key signed is not used.
    `write`: passed verdicts of this home are added, signed with its key.
    `layers`: layers of packages are shared there, too (docs/dependencies.md).
    `images`: images that `images share` has put there are taken instead of built (docs/images.md).
    `artifacts`: artifacts of runs on a cluster are shared there, when a caller reads them (docs/cluster.md).
    """

    url: str = ""
    write: bool = True
    layers: bool = False
    images: bool = False
    artifacts: bool = False


class CredentialSettings(_SettingsSection):
    """`store`: where `credentials set` stores secrets; `auto`: the system keyring if it is usable, else the file."""

    store: Literal["file", "keyring", "auto"] = "file"


class PersonSettings(_SettingsSection):
    """Name and email of commits. Empty: from the operator's git configuration, else those of the sandbox."""

    name: str = ""
    email: str = ""


class CommitSettings(_SettingsSection):
    """`max_file_bytes`: a larger new file is committed only if the caller names it.

    `trailer`: end the message with lines that say what program made the commit, and for which task.
    `sign_off`: also end it with `Signed-off-by:` and the author, as `git commit --signoff` does.
    """

    max_file_bytes: SomeBytes = 5 * 1024**2
    trailer: bool = True
    sign_off: bool = False


class AgentSettings(_SettingsSection):
    """`result_bytes`: of a tool's result or error as JSON; reached: the longest fields are cut, and it says so.

    `sessions`: that one HTTP server keeps for clients of protocols before 2026-07-28; reached: the session that was
    idle longest ends.
    `on_disconnect`: what happens to a running check when its client cancels the call or disconnects: `keep` lets it
    run to its end or deadline, `stop` kills it.
    """

    result_bytes: int = Field(default=50 * 1024, ge=4096, le=16 * 1024**2)
    sessions: int = Field(default=500, ge=1, le=10_000)
    on_disconnect: Literal["keep", "stop"] = "keep"


_RECEIVER_URL = r"^(https://[^\s@]+|http://(127\.0\.0\.1|localhost)[:/][^\s@]*)$"


class WebhookSettings(_SettingsSection):
    """`[[serve.webhook]]`: where the daemon sends events. `url`: https, or http on this host. `secret_file`: holds the
    key of the signature, at least 32 characters, readable by its owner only. `kinds`: which events; empty: all.
    """

    url: str = Field(pattern=_RECEIVER_URL)
    secret_file: Path
    kinds: tuple[Literal["task", "check", "approval", "push", "pr", "disk", "repository"], ...] = ()


class ServeSettings(_SettingsSection):
    """`sandbox serve`; the first two also of `sandbox worker`. `reconcile_s`: how often it removes what killed
    controllers left and what `keep.*` gives up, as `gc` does; also when it starts. `storage_s`: how often it measures
    the home, if `storage` sets a limit, and removes what is too much. `follow_s`: how often it asks forges about open
    pull requests. 0: never. `desktop`: whether it shows questions on this desktop, where notify-send and a session bus
    are. `webhook`: where it sends events. `otlp_url`: of an OpenTelemetry collector (extra `otel`), https, or http on
    this host; empty: none.
    """

    reconcile_s: Pace = 3600.0
    storage_s: Pace = 600.0
    follow_s: Pace = 300.0
    desktop: bool = True
    webhook: tuple[WebhookSettings, ...] = Field(default=(), max_length=20)
    otlp_url: str = Field(default="", pattern=f"^$|{_RECEIVER_URL}")

    @field_validator("webhook")
    @classmethod
    def _refuse_duplicates(cls, value: tuple[WebhookSettings, ...]) -> tuple[WebhookSettings, ...]:
        """Two that differ in the key only are meant: the receiver changes from one to the other."""
        if len({(one.url, one.secret_file, frozenset(one.kinds)) for one in value}) < len(value):
            raise ValueError("two have the same url, secret_file and kinds")
        return value


_SERVER_HOST = re.compile(r"\[[0-9A-Fa-f:.]+\]|[\w.-]+")
_PORT = re.compile(r"[0-9]{1,5}")


class ClusterSettings(_SettingsSection):
    """Several hosts (docs/cluster.md). `address`: host and port of the Temporal server; empty: there is no cluster.

    `tls`: how it is spoken to; `auto`: encrypted, except on this host. `ca_file`: certificates of its authority, PEM;
    empty: those of the system. `certificate_file`, `key_file`: what this host shows it. `api_key_file`: a key of at
    least 32 characters, readable by its owner only; never sent without TLS.
    `namespace`: of that server. `name`: of the cluster; workers and callers of one cluster have the same.
    `hub`: URL of a git repository that all workers can push to, which carries tasks between them; empty: a task is lost
    with its worker. `lost_after_s`: how long a worker may be silent; reached: its tasks go to other workers.
    `role`: what `sandbox worker` of this home does: `work` takes tasks; `publish` pushes tasks and opens their pull
    requests with the credentials of this home, and does not run their operations.
    `publishes`: with that role: patterns of the repositories that it clones and publishes, as `host/path` or
    `host:port/path`, with `*` for any characters; empty: every repository that is asked for over the server.
    In a variable separated by commas.
    `slots`: of a worker: how many operations it carries out at once before it takes no more tasks; those of its own
    tasks are still carried out. 0: as many as `container.parallel` says.
    `labels`: of a worker, beside what it says of its host; a task may require them. In a variable: `zone=a,gpu=yes`.
    """

    address: str = ""
    tls: Literal["auto", "on", "off"] = "auto"
    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None
    api_key_file: Path | None = None
    namespace: str = "default"
    name: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]{0,39}$")] = "space-sandbox"
    hub: str = ""
    lost_after_s: float = Field(default=10.0, ge=2.0, le=3600.0)
    role: Literal["work", "publish"] = "work"
    publishes: tuple[Annotated[str, StringConstraints(pattern=r"^[^\s/:]+(:[0-9]+)?/\S+$", max_length=500)], ...] = ()
    slots: AtOnce = 0
    labels: Labels = Field(default_factory=dict)

    @field_validator("address")
    @classmethod
    def _require_port(cls, value: str) -> str:
        """The client library ends with a `ValueError` for some of the others, and takes a missing port as 443."""
        host, _, port = value.rpartition(":")
        if value and not (_SERVER_HOST.fullmatch(host) and _PORT.fullmatch(port) and 0 < int(port) < 2**16):
            raise ValueError("it must be host:port, such as temporal.example.org:7233 or [::1]:7233")
        return value

    @field_validator("publishes", mode="before")
    @classmethod
    def _split_patterns(cls, value: object) -> object:
        return tuple(filter(None, map(str.strip, value.split(",")))) if isinstance(value, str) else value

    @field_validator("labels")
    @classmethod
    def _keep_capabilities(cls, value: dict[str, str]) -> dict[str, str]:
        if taken := sorted(set(value) & set(CAPABILITIES)):
            raise ValueError(f"'{taken[0]}' is no label: the worker itself says what its host has")
        return value


class CheckSettings(_SettingsSection):
    """Overrides of one check of a repository. `limits`: only the named ones are overridden."""

    timeout_s: Deadline | None = None
    jobs: Annotated[Jobs | None, _at_most(_MAX_AT_ONCE)] = None
    limits: ChosenLimits = Field(default_factory=dict)


class ProjectSettings(_SettingsSection):
    """`[[repositories.<id>.project]]`: one of several projects of a repository. `subpath`: its folder, '' for the top.

    `profile`: '' as the folder matches. `image`, `limits`, `env`: of its checks, before those of the repository.
    """

    name: SimpleName
    subpath: str
    profile: str = ""
    image: str = ""
    limits: ChosenLimits = Field(default_factory=dict)
    env: Environment = Field(default_factory=dict, max_length=100)


class RepositorySettings(_SettingsSection):
    """For one repository only. `checks`: overrides by check id. `packages`: Debian packages for all of its checks.
    `max_bytes`: instead of `storage.repository_max_bytes`.
    `require`: what a worker of a cluster must have to get a task of this repository, before that of its profile.

    `project`: its projects, beside those of `sandbox repo set`, which replace one of the same name.
    """

    packages: tuple[PackageName, ...] = ()
    max_bytes: Bytes | None = None
    checks: dict[str, CheckSettings] = Field(default_factory=dict)
    require: Labels = Field(default_factory=dict)
    project: tuple[ProjectSettings, ...] = Field(default=(), max_length=32)

    @field_validator("project")
    @classmethod
    def _require_different_names(cls, value: tuple[ProjectSettings, ...]) -> tuple[ProjectSettings, ...]:
        names = [project.name for project in value]
        if doubled := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"two projects are named '{doubled[0]}'")
        return value


class Settings(_SettingsSection):
    """All settings of one controller."""

    remotes: RemoteSettings = RemoteSettings()
    git: GitSettings = GitSettings()
    engine: EngineSettings = EngineSettings()
    images: ImageSettings = ImageSettings()
    registries: RegistrySettings = RegistrySettings()
    layers: LayerSettings = LayerSettings()
    profiles: dict[str, ProfileSettings] = Field(default_factory=dict)
    repositories: dict[str, RepositorySettings] = Field(default_factory=dict)
    container: ContainerSettings = ContainerSettings()
    workspaces: WorkspaceSettings = WorkspaceSettings()
    pool: PoolSettings = PoolSettings()
    disk: DiskSettings = DiskSettings()
    storage: StorageSettings = StorageSettings()
    keep: KeepSettings = KeepSettings()
    gate: GateSettings = GateSettings()
    receipts: ReceiptSettings = ReceiptSettings()
    cache: CacheSettings = CacheSettings()
    credentials: CredentialSettings = CredentialSettings()
    author: PersonSettings = PersonSettings()
    committer: PersonSettings = PersonSettings()
    commit: CommitSettings = CommitSettings()
    agent: AgentSettings = AgentSettings()
    serve: ServeSettings = ServeSettings()
    cluster: ClusterSettings = ClusterSettings()


def load_settings(home: Path, environ: Mapping[str, str], flags: Mapping[str, Any] | None = None) -> Settings:
    """Merge file, variables and flags (a nested mapping of the same shape). A number above a bound that means
    practically for ever is taken as the bound, with a warning in the log.

    Raises: `invalid_input` naming the file or variable and the wrong key, or a variable that looks like a typo of ours.
    """
    _require_names(flags or {})
    path = home / "config.toml"
    data = _read_file(path)
    variables = _find_variables(environ)
    for key, name in variables.items():
        nested: dict[str, Any] = {key[-1]: environ[name]}
        for part in reversed(key[:-1]):
            nested = {part: nested}
        _merge(data, nested)
    _merge(data, flags or {})

    def find_source(error: ErrorDetails) -> str:
        keys = tuple(map(str, error["loc"]))
        return "the settings of this call" if _sets(flags or {}, keys) else variables.get(keys, str(path))

    try:
        return _validate(data, find_source)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise _validation_error(first, find_source(first)) from error


def _validate(data: dict[str, Any], find_source: Callable[[ErrorDetails], str]) -> Settings:
    """The settings; in `data`, numbers above their bounds become the bounds. Raises: ValidationError for the others."""
    try:
        return Settings.model_validate(data)
    except ValidationError as error:
        found = error.errors(include_url=False)
    for one in found:
        if one["type"] == _ABOVE:
            *tables, key = one["loc"]
            table: Any = functools.reduce(operator.getitem, tables, data)  # type: ignore[arg-type]  # of any depth
            table[key] = most = one["ctx"]["most"]
            name = ".".join(map(str, one["loc"]))
            _log.warning(
                "configuration key '%s': more than %s counts as %s (set by %s)", name, most, most, find_source(one)
            )
    return Settings.model_validate(data)


def _sets(flags: Mapping[str, Any], keys: Sequence[str]) -> bool:
    """Whether flags set a key, or a part of its value."""
    value: Any = flags
    for key in keys:
        if not isinstance(value, Mapping):
            return True
        if key not in value:
            return False
        value = value[key]
    return True


def _require_names(flags: Mapping[Any, Any]) -> None:
    """Refuse a key that is no text: it would be reported as one of the file."""
    for name, value in flags.items():
        if not isinstance(name, str):
            raise SandboxError(
                ErrorCode.INVALID_INPUT,
                f"A setting's name must be str, not {type(name).__name__}",
                details="Set by the settings of this call",
                hint=_HINT,
            )
        if isinstance(value, Mapping):
            _require_names(value)


def load_settings_with_sources(
    home: Path, environ: Mapping[str, str], flags: Mapping[str, Any] | None
) -> dict[str, tuple[object, str]]:
    """All settings by key, with value and source: a file or variable, `flags`, or '' for a default.

    Raises: as `load_settings`.
    """
    settings = load_settings(home, environ, flags)
    path = home / "config.toml"
    sources = dict.fromkeys(_flatten(_read_file(path)), str(path))
    sources.update({".".join(key): name for key, name in _find_variables(environ).items()})
    sources.update(dict.fromkeys(_flatten(flags or {}), "flags"))
    return {key: (value, sources.get(key, "")) for key, value in _flatten(settings.model_dump()).items()}


def _flatten(data: Mapping[str, Any], prefix: str = "") -> dict[str, object]:
    """Flatten nested tables: keys with dots."""
    flat: dict[str, object] = {}
    for key, value in data.items():
        name = f"{prefix}{key}"
        flat.update(_flatten(value, f"{name}.") if isinstance(value, Mapping) and value else {name: value})
    return flat


def _validation_error(error: ErrorDetails, source: str) -> SandboxError:
    """`source`: the file or variable that sets the value."""
    section, key = str(error["loc"][0]), str(error["loc"][-1])
    unlimited = section in {"keep", "storage"} or (section, key) == ("repositories", "max_bytes")
    unknown = error["type"] == "extra_forbidden"
    why = describe_unknown_key(error, Settings) if unknown else describe_value_error(error)
    return SandboxError(
        ErrorCode.INVALID_INPUT,
        f"Configuration key '{'.'.join(map(str, error['loc']))}': {why}",
        details=f"Set by {source}",
        hint=f"0 means no limit. {_HINT}" if unlimited else _HINT,
    )


def _read_file(path: Path) -> dict[str, Any]:
    try:
        return parse_toml(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SandboxError(
            ErrorCode.INVALID_INPUT, f"Cannot read the configuration {path}", details=describe_errors(error), hint=_HINT
        ) from error


def _find_variables(environ: Mapping[str, str]) -> dict[tuple[str, ...], str]:
    """Map keys to the variables that set them, even if there is no such key."""
    variables: dict[tuple[str, ...], str] = {}
    for name in sorted(environ):
        if not may_be_setting(name):
            continue
        key = _find_key(name)
        if key is None:
            _reject_typo(name)
        else:
            variables[key] = name
    return variables


def describe_ignored_variables(environ: Mapping[str, str]) -> str:
    """One sentence on the variables with our prefix that no setting has, with similar settings; '' without any.

    They may be another program's, or a guess at a setting. One that is very similar to ours is refused elsewhere.
    """
    found = [name for name in environ if may_be_setting(name) and _find_key(name) is None]
    if not found:
        return ""
    words = [name.upper().removeprefix(PREFIX) for name in found]
    near = [difflib.get_close_matches(word, _list_variables(), n=1, cutoff=_SLIGHT_SIMILARITY) for word in words]
    meant = sorted({PREFIX + name for names in near for name in names})
    said = f"{', '.join(sorted(found))}: no setting has this name, so it is ignored"
    return f"{said}; similar: {', '.join(meant)}" if meant else said


def is_setting(variable: str) -> bool:
    """Whether an environment variable sets a key or the log level; `SANDBOX_HOME` is not a setting."""
    if variable in OF_THE_PROGRAM:
        return variable != HOME
    return may_be_setting(variable) and _find_key(variable) is not None


def _find_key(name: str) -> tuple[str, ...] | None:
    """The key that a variable sets; None if it is in no section of ours."""
    section, *rest = name.lower().removeprefix(PREFIX.lower()).split("_")
    if not rest or section == "repositories" or section not in Settings.model_fields:
        return None
    if section != "profiles":
        return section, "_".join(rest)
    words = 2 if rest[-2:] == ["timeout", "factor"] else 1
    return ("profiles", "-".join(rest[:-words]), "_".join(rest[-words:])) if len(rest) > words else None


def _reject_typo(name: str) -> None:
    """Other programs have variables with our prefix; one that is similar to ours is a typo. Raises: `invalid_input`."""
    name_after_prefix = name.upper().removeprefix(PREFIX)
    why = next((text for start, text in _HINTS_BY_PREFIX.items() if name_after_prefix.startswith(start)), "")
    near = difflib.get_close_matches(name_after_prefix, _list_variables(), n=3, cutoff=_SIMILARITY)
    if why or near:
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            f"The variable {name} is not a setting",
            details=why or f"Did you mean: {', '.join(PREFIX + meant for meant in near)}?",
            hint=f"docs/configuration.md lists every key; or remove {name} from the environment.",
        )


def _list_variables() -> list[str]:
    names = [name.removeprefix(PREFIX) for name in OF_THE_PROGRAM]
    for section, field in Settings.model_fields.items():
        keys = getattr(field.annotation, "model_fields", {})
        names += [f"{section}_{key}".upper() for key in keys]
    return names


def _merge(target: dict[str, Any], extra: Mapping[str, Any]) -> None:
    for key, value in extra.items():
        if not isinstance(value, Mapping):
            target[key] = value
        elif isinstance(target.setdefault(key, {}), dict):  # validation reports anything else
            _merge(target[key], value)
