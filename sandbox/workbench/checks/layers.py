"""Give the checks of a tree the packages that its manifests ask for: find their layer, or build it.

Manifests are read as data (sandbox/dependencies), packages are fetched by a guest with a way out that runs no foreign
code (fetch.py), and installed by a guest without one (layer_builds.py). A layer that is known costs two small files.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, TypeAlias

from sandbox.checks.execute import GuestLayer
from sandbox.dependencies.environment import build_environment, target
from sandbox.egress.client_settings import UnusableRegistry
from sandbox.egress.registries import find_registries
from sandbox.engine.create_options import PATH, LayerMount
from sandbox.errors import ErrorCode, SandboxError
from sandbox.git.objects import commit_time, tree_of
from sandbox.lazy_dataclass import dataclass
from sandbox.lazy_module import LazyModule
from sandbox.lazy_pattern import lazy_pattern
from sandbox.models import Actor, Task
from sandbox.models.dependencies import RefusalReason, RefusedEntry
from sandbox.profiles import Profile
from sandbox.store.layers import LayerSource, LayerStore
from sandbox.workbench.checks.callbacks import Watch
from sandbox.workbench.checks.guest_setup import GuestSetup, resolve_guest_setup, shorten_names
from sandbox.workbench.checks.layer_attempts import FETCH_FAILURES, OTHER_HASH, STOPPED, attempt
from sandbox.workbench.checks.verdict_keys import PLATFORM
from sandbox.workbench.controller.services import Services
from sandbox.workbench.repositories.commit_facts import TreeSource
from sandbox.workbench.repositories.profile_checks import load_owner_profile

if TYPE_CHECKING:
    from sandbox.dependencies.layer_plan import LayerPlan, ProjectDescription
    from sandbox.models.layers import Layer, LayerRule
    from sandbox.workbench.checks import descriptions, layer_builds, manifests
else:  # loaded when a layer is not known yet (docs/adr/0003)
    descriptions = LazyModule("sandbox.workbench.checks.descriptions")
    layer_builds = LazyModule("sandbox.workbench.checks.layer_builds")
    manifests = LazyModule("sandbox.workbench.checks.manifests")

VERSION = 7
"""Increment it whenever the same manifests or packages give another layer: with other steps, or another environment."""

_ELSEWHERE = frozenset({RefusalReason.URL, RefusalReason.VERSION_CONTROL, RefusalReason.OPTION})
_NO_PACKAGE = lazy_pattern(r"-(?!e\b|-editable\b)")  # `--index-url` and the like in a requirements file
_NAMED = (RefusalReason.ABSENT, RefusalReason.UNFIT, RefusalReason.ANOTHER_VERSION, RefusalReason.LIMIT)
_NAME = lazy_pattern(r"[^\s<>=!~;\[]*")
_NOT_FETCHED = "the packages that the project asks for"


def find_last_tree(services: Services, task: Task) -> TreeSource:
    """The tree that says which packages a task needs: a change of a manifest counts once it is committed."""
    _, git = services.repositories.open(task.repo_id)
    return TreeSource(task.repo_id, git, tree_of(git, task.head_commit), task.head_commit)


def find_owner_tree(services: Services, owner_id: str) -> tuple[Profile, TreeSource]:
    """The profile and the tree whose packages a task needs, or a repository: those of its default branch.

    Raises: `not_found`; `conflict` for a closed task.
    """
    found = services.repositories.find_owner_commit(owner_id)
    tree = TreeSource(found.repository.id, found.git, tree_of(found.git, found.commit), found.commit)
    return load_owner_profile(services, found), tree


def add_known_layers(services: Services, setup: GuestSetup, profile: Profile, tree: TreeSource) -> GuestSetup:
    """The setup with the layer that the tree's manifests led to before; without one if there is none yet, or if no
    registry can be used: this does not fetch.
    """
    is_off = services.settings.layers.fetch == "never"
    why = "layers.fetch is 'never'" if is_off else "an agent asks for them with space_repo_prepare"
    absent: list[str] = []

    def note(_rule: LayerRule, request: str, _plan: LayerPlan) -> Layer | None:
        known = LayerStore(services.home).find_resolved(request)  # one that is to be built again
        if known is None:
            absent.append(f"{_NOT_FETCHED} were not fetched ({why})")
        return known

    try:
        found = _add_layers(services, setup, profile, tree, (note, lambda _: None))
        return replace(found, without_layers=next(iter(absent), ""))
    except UnusableRegistry:
        return setup


def add_layers(
    services: Services, setup: GuestSetup, profile: Profile, tree: TreeSource, watch: Watch, *, refresh: bool = False
) -> GuestSetup:
    """As `add_known_layers`, and builds a layer that is missing, if a person or a program asks and the setting
    `layers.fetch` allows it.

    `refresh`: choose the packages anew, also for manifests that led to a layer before. When packages cannot be fetched,
    or could not a few minutes ago, the checks run without the layer, or with the one that is there; `watch.building`
    and `watch.warn` say why. If the build of the one that is there ran short of something and a further build fails,
    for any reason, they run with the one that is there, too. Raises: `policy_violation` for a package with another
    hash than the lock file's; as `build_layer`.
    """
    if services.surface.actor is Actor.AGENT or services.settings.layers.fetch == "never":
        return add_known_layers(services, setup, profile, tree)

    absent: list[str] = []

    def build(rule: LayerRule, request: str, plan: LayerPlan) -> Layer | None:
        try:
            return build_missing(rule, request, plan)
        except SandboxError as error:
            store = LayerStore(services.home)
            known = store.find_resolved(request)
            is_optional = not refresh and known is not None and known.shortage is not None
            serves = is_optional and error.reason != OTHER_HASH
            if error.code not in FETCH_FAILURES and error.reason != STOPPED and not serves:
                raise
            if known is not None:
                store.count_try(known)
            text = _explain_absence(error, known=known is not None)
            watch.building(text)
            watch.warn(text)
            if known:
                return known
            why = error.brief.rpartition(" could not be fetched: ")[2]
            absent.append(f"{_NOT_FETCHED} could not be fetched ({why})")
            return None

    build_missing = _builder(services, setup, tree, watch, retry=refresh, refresh=refresh)
    describe = _describer(services, setup, tree, watch)
    found = _add_layers(services, setup, profile, tree, (build, describe), refresh=refresh)
    _warn_of_packages(watch, found)
    return replace(found, without_layers=next(iter(absent), ""))


def _warn_of_packages(watch: Watch, found: GuestSetup) -> None:
    """Name the packages that checks have to do without, or have in another version than the lock file says."""
    if names := found.from_elsewhere:
        watch.warn(
            f"Left out, for a manifest takes it from elsewhere than a registry: {shorten_names(names)}. "
            "Tests that need it may fail (docs/dependencies.md, What of a manifest is refused)."
        )
    if names := found.absent:
        watch.warn(
            f"Left out, for the registry has no version that fits: {shorten_names(names)}. "
            "Tests and commands that need it fail (docs/dependencies.md, What of a manifest is refused)."
        )
    if names := found.unfit:
        watch.warn(
            f"Left out, for no versions of the development packages fit together: {shorten_names(names)}. "
            "Tests and commands that need one fail (docs/dependencies.md, What of a manifest is refused)."
        )
    if names := found.unread:
        watch.warn(
            f"Not read, for it is larger or more than is read: {shorten_names(names)}. Packages may be missing, or of "
            "other versions than the lock file's (docs/dependencies.md, What of a manifest is refused)."
        )
    if names := found.unlocked:
        watch.warn(
            f"Not as the lock file says, so that it has no hash of them: {shorten_names(names)}. The registry lacks "
            "versions of it, or they do not fit together (docs/dependencies.md, What of a manifest is refused)."
        )


def prepare_setups(
    services: Services,
    parts: Iterable[Profile],
    tree: TreeSource,
    watch: Watch,
    *,
    refresh: bool = False,
) -> dict[str, GuestSetup]:
    """The image, services and layers of each part of a profile, by the name of its project. `refresh`: as `add_layers`.

    Raises: as `resolve_guest_setup` and `add_layers`.
    """
    setups = {}
    for part in parts:
        setup = resolve_guest_setup(services, part, watch.building)
        setups[part.project_name] = add_layers(services, setup, part, tree, watch, refresh=refresh)
    return setups


@dataclass(frozen=True)
class MissingLayer:
    """A layer that is not there, and what it would hold."""

    rule: LayerRule
    plan: LayerPlan


def find_missing_layers(services: Services, profile: Profile, tree: TreeSource) -> tuple[MissingLayer, ...]:
    """What `build_layers` would fetch for a tree: all that its manifests ask for while the image is missing, for a
    layer belongs to one.

    Raises: as `find_registries` and `require_fetch_allowed`; `engine_unavailable`.
    """
    require_fetch_allowed(services)
    if not profile.layers:
        return ()
    try:
        setup = resolve_guest_setup(services, profile)
    except SandboxError as error:
        if error.code is not ErrorCode.IMAGE_MISSING:
            raise
        plans = ((rule, manifests.plan_layer(tree.git, tree.tree, rule)) for rule in profile.layers)
        return tuple(MissingLayer(rule, plan) for rule, plan in plans if plan)
    missing: list[MissingLayer] = []

    def note(rule: LayerRule, _request: str, plan: LayerPlan) -> None:
        missing.append(MissingLayer(rule, plan))

    _add_layers(services, setup, profile, tree, (note, lambda _: None))
    return tuple(missing)


def require_fetch_allowed(services: Services) -> None:
    """Raises: `policy_violation` if the setting `layers.fetch` is `never`."""
    if services.settings.layers.fetch == "never":
        raise SandboxError(
            ErrorCode.POLICY_VIOLATION,
            "layers.fetch is 'never', so no packages are fetched",
            hint="The operator sets it to 'auto' in the configuration (docs/dependencies.md).",
        )


def build_layers(
    services: Services, setup: GuestSetup, profile: Profile, tree: TreeSource, watch: Watch, *, refresh: bool = False
) -> tuple[Layer, ...]:
    """The layers that the tree's manifests ask for; missing ones are built for any caller. `refresh`: as `add_layers`.

    An attempt that failed a moment ago is repeated. Raises: a `conflict` with reason `stopped` when `watch.cancelled`;
    `policy_violation` if the setting `layers.fetch` is `never`; as `build_layer`.
    """
    require_fetch_allowed(services)
    store = LayerStore(services.home)
    build = _builder(services, setup, tree, watch, retry=True, refresh=refresh)
    steps = build, _describer(services, setup, tree, watch)
    used = _add_layers(services, setup, profile, tree, steps, refresh=refresh).layers
    return tuple(layer for layer in (store.find(one.key) for one in used) if layer is not None)


def _builder(
    services: Services, setup: GuestSetup, tree: TreeSource, watch: Watch, *, retry: bool, refresh: bool
) -> _Build:
    def build(rule: LayerRule, request: str, plan: LayerPlan) -> Layer | None:
        _require_asked(services)
        store = LayerStore(services.home)
        with attempt(services.home, request, watch, retry=retry):
            if not refresh and (known := store.find_complete(request)):  # another one has built it meanwhile
                return known
            alone = replace(setup, services=())  # the steps of a layer are no checks of the profile
            wanted = layer_builds.BuildRequest(rule, request, plan, alone, _date_of(tree), VERSION, PLATFORM)
            return layer_builds.build_layer(services, wanted, watch)

    return build


def _require_asked(services: Services) -> None:
    """An agent's call that was not asked about, because its layers were there, may not fetch if one has gone since.

    Raises: `approval_required`.
    """
    if services.permission is not None and services.permission.how == "known":
        raise SandboxError(
            ErrorCode.APPROVAL_REQUIRED,
            "A layer has just been removed, so a person has to approve that its packages are fetched again",
            hint="Make the same call again; it can ask for approval.",
        )


def _describer(services: Services, setup: GuestSetup, tree: TreeSource, watch: Watch) -> _Describe:
    """An agent's question lists what manifests say as data, so no more is asked for then."""

    def describe(description: ProjectDescription) -> str | None:
        if services.surface.actor is Actor.AGENT:
            return None
        return descriptions.describe_project(services, replace(setup, layers=()), description, tree, watch)

    return describe


def _explain_absence(error: SandboxError, *, known: bool) -> str:
    """The cause and what to do, on one line: it stands before the runs of the checks."""
    seen = next(iter(error.details.splitlines()), "")
    which = "With the packages that were chosen before" if known else "Without the packages that the project asks for"
    return " ".join(filter(None, [f"{which}: {error.brief}.", seen if seen not in error.brief else "", error.hint]))


@contextmanager
def hold_layers(services: Services, owner: str, *setups: GuestSetup) -> Iterator[None]:
    """Keep the layers of these setups from being removed while checks of `owner` use them. Raises: `not_found`."""
    store = LayerStore(services.home)
    with ExitStack() as stack:
        for used in (layer for setup in setups for layer in setup.layers):
            stack.enter_context(store.use(used.key, owner))
        yield


_Build: TypeAlias = "Callable[[LayerRule, str, LayerPlan], Layer | None]"
_Describe: TypeAlias = "Callable[[ProjectDescription], str | None]"


def _add_layers(
    services: Services,
    setup: GuestSetup,
    profile: Profile,
    tree: TreeSource,
    steps: tuple[_Build, _Describe],
    *,
    refresh: bool = False,
) -> GuestSetup:
    store = LayerStore(services.home)
    build, describe = steps
    layers, unbuilt, from_elsewhere = [], list[str](), dict[str, str]()
    others: dict[RefusalReason, list[str]] = {reason: [] for reason in _NAMED}
    for rule in profile.layers:
        source, plan = _find_request(services, setup, rule, tree, describe)
        request = source.request
        if not request:
            continue
        layer = None if refresh else store.find_complete(request)
        if layer is None:  # also if it was removed a moment ago: a check never starts without what it asks for unsaid
            plan = plan or manifests.plan_layer(tree.git, tree.tree, rule, source.described)
            layer = build(rule, request, plan) if plan else None
        if layer:
            layers.append(_mount(store, layer))
            unbuilt += layer.left_out
            for entry in store.list_refused(request):  # several lists may have one package
                if entry.reason in others:
                    others[entry.reason].append(
                        _name_unread(entry) if entry.reason is RefusalReason.LIMIT else entry.text
                    )
                elif entry.reason in _ELSEWHERE and not _NO_PACKAGE.match(entry.text):
                    name = _NAME.match(entry.text)
                    from_elsewhere.setdefault(name[0] if name else "", f"{entry.text} ({entry.reason.value})")
    return replace(
        setup,
        layers=tuple(layers),
        from_elsewhere=tuple(from_elsewhere.values()),
        absent=tuple(others[RefusalReason.ABSENT]),
        unfit=tuple(others[RefusalReason.UNFIT]),
        unbuilt=tuple(unbuilt),
        unread=tuple(others[RefusalReason.LIMIT]),
        unlocked=tuple(others[RefusalReason.ANOTHER_VERSION]),
    )


def _name_unread(entry: RefusedEntry) -> str:
    return entry.text if entry.text == entry.origin else f"{entry.origin} ({entry.text})"


def _find_request(
    services: Services, setup: GuestSetup, rule: LayerRule, tree: TreeSource, describe: _Describe
) -> tuple[LayerSource, LayerPlan | None]:
    """What a tree asks for; and the plan, if manifests had to be read.

    The repository is part of it. A commit's author writes its date, and with it decides which versions are chosen; a
    stranger must not choose for others who ask for the same (docs/adr/0163).
    """
    store = LayerStore(services.home)
    registries = find_registries(rule.ecosystem, services.settings.registries, services.environ)
    inside = [str(host.destination) for host in registries.hosts if host.may_be_internal]  # decides what is reached
    where = [*registries.indexes, *inside]
    context = [VERSION, _identify_rule(rule), setup.image_digest, setup.runtime, PLATFORM, where, tree.repo_id]
    added = setup.added  # files of the room in which the project is asked; no part of a key where there are none
    files = [[bool(added.submodules), added.lfs, added.submodules_with_lfs]] if added.submodules or added.lfs else []
    source = _digest([tree.tree, *context, *files])
    if known := store.find_source(source):
        return known, None
    description = manifests.find_description(tree.git, tree.tree, rule)
    described = describe(description) if description else ""
    request = ""
    if plan := manifests.plan_layer(tree.git, tree.tree, rule, described or ""):
        written = [
            {name: text.decode() for name, text in part.items()} for part in (plan.fetch_files, plan.install_files)
        ]
        locked = sorted((p.name, p.version, p.hashes) for p in plan.locked)
        request = _digest([written, locked, *context])
    found = LayerSource(request=request, described=described or "")
    if described is not None:  # else it is asked another time
        store.save_source(source, found)
    return found, plan


def _identify_rule(rule: LayerRule) -> dict[str, object]:
    """The rule as part of a layer's identity; that of a rule without a folder is as in older versions."""
    return rule.model_dump(exclude=set() if rule.folder else {"folder"})


def _mount(store: LayerStore, layer: Layer) -> GuestLayer:
    mount = LayerMount(store.tree(layer), PurePosixPath(target(layer.ecosystem)))
    return GuestLayer(layer.key, mount, build_environment(layer.ecosystem, PATH))


def _date_of(tree: TreeSource) -> datetime:
    return datetime.fromtimestamp(commit_time(tree.git, tree.commit), UTC)


def _digest(parts: list[object]) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
