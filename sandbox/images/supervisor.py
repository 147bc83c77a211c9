"""The guest's PID 1 on the host: extracted from the image `init` once, then a file to bind into every guest.

The engine has the binary, but a bind mount needs a host path. So a guest of that image, as confined as any other,
prints the binary (`/init --hand-out`); the relay of guests that fetch comes from the same image in the same way. The
engine's `cp` and archive endpoints are not used: they follow links of the image. The output is verified before it is
stored: it must be a complete, statically linked program, because it cannot use a loader of the image it will run in.
"""

from __future__ import annotations

import os
import shutil
import stat
import struct
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from sandbox.engine.container_labels import INSTANCE_LABEL, RUN_LABEL
from sandbox.engine.container_types import Streams
from sandbox.engine.create_options import ContainerSpec, create_options
from sandbox.errors import ErrorCode, SandboxError
from sandbox.guest_labels import make_guest_folder
from sandbox.images.build import SUPERVISOR
from sandbox.images.lookup import ImageBuildContext
from sandbox.images.resolve import resolve_image
from sandbox.lazy_dataclass import dataclass
from sandbox.models import Limits, Verdict
from sandbox.policy.container import EffectiveContainerPolicy
from sandbox.store.home import write_atomically

MODE = 0o555
MIN_BYTES, MAX_BYTES = 16 * 1024, 16 * 1024**2
_HAND_OUT = "--hand-out"
_DEADLINE_S = 120.0
_KEEP_S = 7 * 24 * 3600.0  # another process may be about to bind an older one
_ELF64 = struct.Struct("<4sBB10xHHIQQQIHHHHHH")  # elf(5): identification, then Elf64_Ehdr, little-endian
_SEGMENT = struct.Struct("<II5Q")  # the beginning of Elf64_Phdr: type, flags, offset, two addresses, two sizes
_PT_LOAD, _PT_INTERP = 1, 3


@dataclass(frozen=True)
class SupervisorExtractor:
    """The guest that prints the binary: its container's name, its user, its runtime, and the instance it belongs to."""

    name: str
    user: tuple[int, int]
    runtime: str
    instance: str


def ensure_supervisor(
    site: ImageBuildContext,
    policy: EffectiveContainerPolicy,
    extractor: SupervisorExtractor,
    image: str = SUPERVISOR,
    digest: str = "",
) -> Path:
    """Return the host path of PID 1's binary from the engine's current image `image`. Costs one request to the engine,
    none with the image's `digest`.

    The first call for an image runs the extractor; it is safe in several processes at once. Raises: `image_missing`,
    with the command that builds it, `internal` for an image that prints anything else, `invalid_input` for a home on a
    noexec file system, and the errors of the engine adapter.
    """
    return _ensure_program(site, policy, extractor, digest or resolve_image(site, image), "init")


def ensure_relay(site: ImageBuildContext, policy: EffectiveContainerPolicy, extractor: SupervisorExtractor) -> Path:
    """Return the host path of the relay's binary (images/init/relay.c), as `ensure_supervisor` does for PID 1."""
    return _ensure_program(site, policy, extractor, resolve_image(site, SUPERVISOR), "relay")


def _ensure_program(
    site: ImageBuildContext, policy: EffectiveContainerPolicy, extractor: SupervisorExtractor, digest: str, program: str
) -> Path:
    path = site.home.supervisors / digest.removeprefix("sha256:") / program
    if not is_usable_binary(path):
        with site.home.locked("supervisor"):
            if not is_usable_binary(path):
                _extract_to(site, policy, extractor, digest, path)
    return path


def is_usable_binary(path: Path) -> bool:
    """Whether the file is usable, by one stat: a regular file of plausible size with the published mode and owner."""
    try:
        seen = path.lstat()
    except OSError:
        return False
    ours = stat.S_ISREG(seen.st_mode) and stat.S_IMODE(seen.st_mode) == MODE and seen.st_uid == os.geteuid()
    return ours and MIN_BYTES <= seen.st_size <= MAX_BYTES


def _extract_to(
    site: ImageBuildContext, policy: EffectiveContainerPolicy, extractor: SupervisorExtractor, digest: str, path: Path
) -> None:
    make_guest_folder(path.parent.parent)
    make_guest_folder(path.parent)
    _require_executable(path.parent)
    with _empty_folder(path.parent) as folder:
        binary = _extract(site, policy, _container_spec(policy, extractor, (digest, path.name), folder))
    require_static_program(binary)
    write_atomically(path, binary, mode=MODE)
    _remove_old(site.home.supervisors, path.parent)


@contextmanager
def _empty_folder(beside: Path) -> Iterator[Path]:
    """An empty workspace: the guest needs no files."""
    with tempfile.TemporaryDirectory(dir=beside, prefix=".workspace-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


_LIMITS = Limits(memory_bytes=256 * 1024**2, cpus=1.0, pids=256)  # gVisor itself has 80 threads


def _container_spec(
    policy: EffectiveContainerPolicy, extractor: SupervisorExtractor, source: tuple[str, str], folder: Path
) -> ContainerSpec:
    """`source`: the image's digest and the program's name in it."""
    digest, program = source
    return ContainerSpec(
        name=extractor.name,
        image=digest,
        argv=(f"/{program}", _HAND_OUT),
        cwd=PurePosixPath(policy.container.mounts.workspace),
        env={},
        limits=policy.container.within_ceiling(_LIMITS),
        workspace=folder,
        git_mask=None,
        report=None,
        user=extractor.user,
        runtime=extractor.runtime,
        labels={INSTANCE_LABEL: extractor.instance, RUN_LABEL: extractor.name},
        cpuset="",
        workspace_read_only=True,
    )


def _extract(site: ImageBuildContext, policy: EffectiveContainerPolicy, spec: ContainerSpec) -> bytes:
    """Return the guest's output, at most one byte more than the maximum."""
    binary, errors = bytearray(), bytearray()
    streams = Streams(
        lambda chunk: binary.extend(chunk[: MAX_BYTES + 1 - len(binary)]),
        lambda chunk: errors.extend(chunk[: 2000 - len(errors)]),
    )

    def too_much() -> Verdict | None:
        return Verdict.OUTPUT_LIMIT if len(binary) > MAX_BYTES else None

    options = create_options(spec, policy)
    ending = site.engine.run_to_end(spec.name, options, streams, deadline_s=_DEADLINE_S, stop_condition=too_much)
    if ending.stop_verdict is None and (ending.timed_out or ending.exit_code != 0):
        why = "did not finish" if ending.timed_out else f"ended with exit code {ending.exit_code}"
        raise _unusable(f"{' '.join(spec.argv)} {why}. {errors.decode('utf-8', 'replace')}")
    return bytes(binary)


def require_static_program(binary: bytes) -> None:
    """Raises: `internal` for bytes that are not a complete, statically linked 64-bit program. Pure."""
    if not MIN_BYTES <= len(binary) <= MAX_BYTES:
        raise _unusable(f"It printed {len(binary)} bytes; a supervisor has {MIN_BYTES} to {MAX_BYTES}.")
    magic, word, order, _, _, _, _, segments, sections, _, _, size, count, s_size, s_count, _ = _ELF64.unpack_from(
        binary
    )
    if (magic, word, order) != (b"\x7fELF", 2, 1):
        raise _unusable("It did not print a 64-bit program.")
    if sections + s_size * s_count > len(binary) or segments + size * count > len(binary):
        raise _unusable("It printed an incomplete program.")
    found = [_SEGMENT.unpack_from(binary, segments + size * i) for i in range(count)] if size >= _SEGMENT.size else []
    kinds = {segment[0] for segment in found}
    if _PT_LOAD not in kinds or _PT_INTERP in kinds:
        raise _unusable("It printed a program that is not linked statically.")
    if any(kind == _PT_LOAD and offset + stored > len(binary) for kind, _, offset, _, _, stored, _ in found):
        raise _unusable("It printed an incomplete program.")


def _require_executable(folder: Path) -> None:
    """Raises: `invalid_input` for a noexec file system: a bind mount keeps its flags."""
    if os.statvfs(folder).f_flag & os.ST_NOEXEC:
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            f"No program can run from {folder}: its file system is mounted noexec",
            hint="The guests' first process is started from there. Use another home with --home or SANDBOX_HOME.",
        )


def _remove_old(supervisors: Path, current: Path) -> None:
    """Remove the folders of images that were replaced long ago. A running guest keeps the binary that it has bound."""
    for folder in supervisors.iterdir():
        if folder != current and folder.is_dir() and time.time() - folder.stat().st_mtime > _KEEP_S:
            shutil.rmtree(folder, ignore_errors=True)


def _unusable(details: str) -> SandboxError:
    return SandboxError(
        ErrorCode.INTERNAL,
        f"The image '{SUPERVISOR}' does not print a supervisor",
        details=details,
        hint=f"Build it again: sandbox images build {SUPERVISOR} --no-cache",
    )
