"""Build a layer: fetch its archives, look at them on the host, install them without a network, seal and publish."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from pathlib import Path

from sandbox.byte_sizes import format_bytes
from sandbox.dependencies.ecosystems import find_steps
from sandbox.dependencies.layer_plan import (
    ABSENT,
    LEFT_OUT,
    REFUSED,
    SELECTION,
    SHORT_OF,
    UNFIT,
    WITHOUT_EXTENSION,
    EcosystemSteps,
    LayerPlan,
    Step,
    list_unlocked,
)
from sandbox.dependencies.requirement_text import refuse
from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.checkout import remove_tree
from sandbox.files.guest_files import read_guest_file
from sandbox.files.sealing import TreeSize, copy_sealed_tree, seal_tree
from sandbox.models import Check, CheckRun, Limits, Verdict
from sandbox.models.dependencies import RefusalReason, RefusedEntry
from sandbox.models.egress import EgressAccess
from sandbox.models.layers import RESOURCES, Layer, LayerPackage, LayerRule, Resolution, Resource, Shortage
from sandbox.store.home import GIT_MASK
from sandbox.store.layers import LayerStore, draw_folder
from sandbox.workbench.checks.callbacks import Watch, report_step
from sandbox.workbench.checks.fetch import FetchRequest, fetch
from sandbox.workbench.checks.guest_setup import GuestSetup
from sandbox.workbench.checks.layer_attempts import OTHER_HASH, require_not_stopped
from sandbox.workbench.checks.run import build_room_recorder, new_run_id
from sandbox.workbench.checks.shared_layers import open_shared_layers
from sandbox.workbench.checks.step_rooms import StepRoom, open_step_room, run_step
from sandbox.workbench.controller.disk_admission import Demand, Writer
from sandbox.workbench.controller.services import Services
from sandbox.workspaces.own_disk import has_disk, measure_own_disk

MAX_ARCHIVES = 12_000  # more than a lock file has entries, with what a fetch adds
ARCHIVE_BYTES = 1024**3
SELECTION_BYTES = 2_000
_RELEASED = Limits(tmp_bytes=1024**3)


@dataclass(frozen=True)
class BuildRequest:
    """A layer to build. `as_of`: no package that is newer is chosen, as long as that is possible."""

    rule: LayerRule
    request: str
    plan: LayerPlan
    setup: GuestSetup
    as_of: datetime
    version: int
    platform: str


@dataclass(frozen=True)
class _Archives:
    """What a fetch brought: verified archives in `folder`, which is ours. `lacking`: what it left out."""

    folder: Path
    packages: tuple[LayerPackage, ...]
    selection: str
    lacking: tuple[RefusedEntry, ...]
    accesses: tuple[EgressAccess, ...]


def build_layer(services: Services, request: BuildRequest, watch: Watch) -> Layer:
    """Build and publish the layer of a request, or find that its packages are one that is there. A build that is cut
    off leaves only a room, which reconciliation removes.

    Raises: `egress_refused`, `network_error`; `policy_violation` for archives that differ from the lock file, are not
    wheels or hold what no package may; `quota_exceeded` for those that hold too much to be compared; `internal` when
    they cannot be installed; as `fetch`.
    """
    store, steps = LayerStore(services.home), find_steps(request.rule.ecosystem)
    began = time.monotonic()
    staging = services.home.clean_room(new_run_id(services.presence))
    staging.mkdir(mode=0o700)
    try:
        with report_step(watch.building, f"Fetching the {request.rule.ecosystem} packages that the project asks for"):
            archives = _fetch_archives(services, request, watch, staging)
        key = compute_key(request, archives.packages)
        shared = open_shared_layers(services)
        layer = store.find(key)
        if layer is None and shared:
            layer = shared.take(key, staging)
        if layer is None:
            text = f"Installing {len(archives.packages)} packages into the layer {key[:12]}"
            with report_step(watch.building, text):
                layer = _install(services, request, archives, watch, (key, began))
            if shared and layer.shortage is None:
                shared.add(layer)
    finally:
        remove_tree(staging)
    store.save_resolution(
        Resolution(
            request=request.request,
            layer=layer.key,
            selection=archives.selection,
            refused=(
                *request.plan.refused,
                *archives.lacking,
                *list_unlocked(steps, archives.packages, request.plan.locked),
            ),
            accesses=archives.accesses,
            resolved_at=datetime.now(UTC),
        )
    )
    return layer


def compute_key(request: BuildRequest, packages: tuple[LayerPackage, ...]) -> str:
    """The key of a layer: equal keys mean equal archives and files, installed by equal steps in equal images. Pure."""
    setup, files = request.setup, request.plan.install_files
    parts = [request.version, request.rule.ecosystem, setup.image_digest, request.platform, setup.runtime]
    hashed = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    text = json.dumps([*parts, sorted((p.file, p.sha256) for p in packages), hashed], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def require_installed(run: CheckRun, refused: Sequence[str]) -> None:
    """Raises: `policy_violation` naming an archive that the install `refused`; else `internal` if it failed."""
    if run.verdict is Verdict.PASSED:
        return
    if refused:
        raise SandboxError(
            ErrorCode.POLICY_VIOLATION,
            f"An archive holds what no package may, so the layer was not built: {refused[0]}",
            details=run.stderr_tail[-2000:],
            hint="None of its packages was used. Lock another version of it, and tell its registry.",
        )
    raise SandboxError(
        ErrorCode.INTERNAL,
        f"The packages of a layer could not be installed: {run.verdict.value}",
        details=run.stderr_tail[-2000:],
        hint="The last lines of the installer say why. layers.fetch = 'never' runs checks without the layer.",
    )


def require_real_size(size: TreeSize, most_bytes: int) -> None:
    """Raises: `policy_violation` for more bytes than the guest's disk had, which are holes: all layers share
    `layers.max_bytes`, and one that seems to fill it would drive the others out.
    """
    if size.bytes > most_bytes:
        raise SandboxError(
            ErrorCode.POLICY_VIOLATION,
            f"The tree says that it has {format_bytes(size.bytes)}, and its disk had {format_bytes(most_bytes)}",
            hint="A package of it wrote files with holes. None of its packages was used.",
        )


def list_lacking(folder: Path, plan: LayerPlan) -> tuple[RefusedEntry, ...]:
    """What a fetch left out of what a plan asks for: the registry has no version that fits, or none fits the others."""
    asked = {*plan.wanted, *plan.asked}
    return tuple(
        refuse(text, reason, "the registry")
        for reason, name in ((RefusalReason.ABSENT, ABSENT), (RefusalReason.UNFIT, UNFIT))
        for text in _read_known_lines(folder / name, asked)
    )


def find_shortage(run: CheckRun, workspace: Path, missing: Sequence[str]) -> tuple[Resource, ...]:
    """What an install ran short of: by the kernel, which does not say for which archive, or by the words of an archive
    that is `missing`. One that succeeded in a later round is complete.

    A process that the kernel killed for its memory fails the whole install.
    """
    if not missing:
        return ()
    lines = {f"{resource} {file}": resource for resource in RESOURCES for file in missing}
    found = {lines[line] for line in _read_known_lines(workspace / SHORT_OF, lines)}
    if run.usage.forks_refused:
        found.add("processes")
    return tuple(resource for resource in RESOURCES if resource in found)


def _with_shortage(layer: Layer, of: tuple[Resource, ...], before: Layer | None) -> Layer:
    """The layer under a key of its own: another build of these archives may bring what is missing, and no verdict with
    the one is an answer with the other. `before`: what the request led to; the next build waits for its tries, too,
    for each may lose another package.
    """
    missing = [layer.left_out, layer.without_extension]
    key = hashlib.sha256(json.dumps([layer.key, missing], sort_keys=True).encode()).hexdigest()
    tries = 1 if before is None or before.shortage is None else before.shortage.tries + 1
    shortage = Shortage(of=of, tries=tries, tried_at=layer.built_at)
    return layer.model_copy(update={"key": key, "shortage": shortage, "folder": draw_folder(key)})


def _fetch_archives(services: Services, request: BuildRequest, watch: Watch, staging: Path) -> _Archives:
    as_of = request.as_of.strftime("%Y-%m-%dT%H:%M:%SZ")
    steps = find_steps(request.rule.ecosystem)
    check = _write_check(services, "fetch", steps.fetch, as_of)
    setup = replace(request.setup, layers=())
    wanted = FetchRequest(request.rule.ecosystem, request.rule.ecosystem, check, setup, request.plan.fetch_files)
    with fetch(services, wanted, watch) as fetched:
        fetched.require_success(request.rule.ecosystem)
        packages = tuple(_take_archives(fetched.folder / steps.archives, staging, steps))
        selection = _read_selection(fetched.folder / SELECTION)
        lacking = list_lacking(fetched.folder, request.plan)
    if wrong := steps.find_mismatches(staging, packages, request.plan, partial(require_not_stopped, watch)):
        raise SandboxError(
            ErrorCode.POLICY_VIOLATION,
            f"An archive has another hash than the lock file says: {wrong[0]}",
            details="\n".join(wrong[:20]),
            hint="The registry serves other files than those that were locked. None of them was used.",
            reason=OTHER_HASH,
        )
    return _Archives(staging, packages, selection, lacking, fetched.accesses)


_Describe = Callable[[str, str], LayerPackage]


def _take_archives(folder: Path, target: Path, steps: EcosystemSteps) -> list[LayerPackage]:
    """Copy the archives of a fetch, which has ended, to a folder of ours, and hash what was copied."""
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise _unusable("no folder of archives") from error
    try:
        with os.scandir(handle) as entries:
            names = sorted(entry.name for entry in islice(entries, MAX_ARCHIVES + 1))
        if not names and not steps.may_be_empty:
            raise _unusable("no archives")
        if len(names) > MAX_ARCHIVES:
            raise _unusable(f"more than {MAX_ARCHIVES} archives")
        return [_take_archive(handle, target / name, steps.describe) for name in names]
    finally:
        os.close(handle)


def _take_archive(folder: int, target: Path, describe: _Describe) -> LayerPackage:
    unusable = _unusable(f"an archive that is no file of at most {ARCHIVE_BYTES} bytes")
    try:
        fd = os.open(target.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=folder)
    except OSError as error:
        raise unusable from error
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_size > ARCHIVE_BYTES:
            raise unusable
        with os.fdopen(fd, "rb", closefd=False) as stream, target.open("xb") as copy:
            shutil.copyfileobj(stream, copy, 1 << 20)
    finally:
        os.close(fd)
    target.chmod(0o444)
    with target.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    try:
        return describe(target.name, digest)
    except ValueError as error:
        raise _unusable(str(error)) from error


def _read_selection(path: Path) -> str:
    content = read_guest_file(path, SELECTION_BYTES)
    if content is None:
        raise _unusable(f"no file {SELECTION}")
    return ascii(content.decode("ascii", "replace").strip())[1:-1]


def _read_known_lines(path: Path, known: Iterable[str]) -> tuple[str, ...]:
    """The known lines of a file that code of packages may have changed. Other lines are ignored."""
    lines = (read_guest_file(path, MAX_ARCHIVES * 300) or b"").decode("utf-8", "replace").splitlines()
    return tuple(sorted(set(known) & set(lines)))


def _install(
    services: Services, request: BuildRequest, archives: _Archives, watch: Watch, key_and_start: tuple[str, float]
) -> Layer:
    """Install the archives in a guest without a way out, and publish what it wrote."""
    key, began = key_and_start
    store = LayerStore(services.home)
    steps = find_steps(request.rule.ecosystem)
    recorder = build_room_recorder(services, replace(request.setup, layers=()), request.rule.ecosystem)
    check = _write_check(services, "install", steps.install)
    given = {**request.plan.install_files, ".git": GIT_MASK}
    with open_step_room(services, check, given, _demand_of(archives)) as room:
        directories = room.directories
        shutil.move(archives.folder, directories.workspace / steps.archives)
        (directories.workspace / steps.archives).chmod(0o755)
        recorder = replace(recorder, logs=room.folder / "logs")
        run = run_step(services, recorder, (room.run_id, check, directories), watch, request.rule.ecosystem)
        files = [package.file for package in archives.packages]
        refused = directories.workspace / REFUSED
        require_installed(run, _read_known_lines(refused, files) if steps.unpacks_only else ())
        left_out, incomplete = (
            _read_known_lines(directories.workspace / name, files) for name in (LEFT_OUT, WITHOUT_EXTENSION)
        )
        short_of = find_shortage(run, directories.workspace, (*left_out, *incomplete))
        if left_out:
            watch.building(f"Left out of the layer, because it cannot be built: {', '.join(left_out)}")
        if incomplete:
            watch.building(f"Built without an extension, which does not compile: {', '.join(incomplete)}")
        with _take_built(services, room, directories.workspace / steps.built) as (built, size):
            require_real_size(size, check.limits.disk_bytes)
            layer = Layer(
                key=key,
                ecosystem=request.rule.ecosystem,
                packages=tuple(p for p in archives.packages if p.file not in left_out),
                left_out=left_out,
                without_extension=incomplete,
                image_digest=request.setup.image_digest,
                platform=request.platform,
                runtime=request.setup.runtime,
                folder=draw_folder(key),
                bytes=size.bytes,
                files=size.files,
                built_at=datetime.now(UTC),
                wall_time_s=round(time.monotonic() - began, 3),
            )
            if short_of:
                watch.building(f"The build ran short of {', '.join(short_of)}: what is missing is built again later")
                layer = _with_shortage(layer, short_of, store.find_resolved(request.request))
            # other manifests may have led to the same packages meanwhile
            return store.publish_unless_known(layer, built)


def _demand_of(archives: _Archives) -> Demand:
    sizes = [path.stat().st_size for path in archives.folder.iterdir()]
    return Demand(sum(sizes), len(sizes))


@contextmanager
def _take_built(services: Services, room: StepRoom, built: Path) -> Iterator[tuple[Path, TreeSize]]:
    """Seal what a guest installed; yields a tree of the home's file system, and its size. The guest has ended.

    A tree on the room's own disk is copied to the room's folder.
    """
    size = seal_tree(built, (os.geteuid(), os.getegid()))
    if not has_disk(room.folder):
        yield built, size
        return
    with services.disk.admit(Writer.LAYER, Demand(measure_own_disk(room.folder).used_bytes, size.files)):
        yield copy_sealed_tree(built, room.folder / "built"), size


def _write_check(services: Services, name: str, step: Step, *arguments: str) -> Check:
    argv = ("sh", "-c", step.script, "sh", *arguments)
    limits = services.policies.container.container.within_ceiling(_RELEASED)
    limits = limits.model_copy(update={"cpus": min(limits.cpus, os.cpu_count() or 1)})
    return Check(id=name, label=name, argv=argv, env=dict(step.env), timeout_s=step.timeout_s, limits=limits)


def _unusable(what: str) -> SandboxError:
    return SandboxError(
        ErrorCode.POLICY_VIOLATION, f"The fetch brought {what}", hint="It was not used (docs/dependencies.md)."
    )
