"""The Debian base of our images: configured, present, pulled or bootstrapped, in this order."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path

from sandbox.byte_sizes import format_bytes
from sandbox.config import ImageSettings
from sandbox.engine.build_output import plain_lines
from sandbox.engine.image_types import Image, Progress
from sandbox.engine.protocol import ImageStore
from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.disk_usage import FreeSpace
from sandbox.lazy_dataclass import dataclass

SUITE = "bookworm"
BOOTSTRAPPED = f"space-sandbox/debian:{SUITE}"
PUBLISHED = f"debian:{SUITE}-slim"
_TOOLS = ("mmdebstrap", "debootstrap")
_PULL_DEADLINE_S = 120.0
_BOOTSTRAP_DEADLINE_S = 900.0
_REPORT_S = 2.0
_LOG_BYTES = 64 * 1024
_BOOTSTRAP_BYTES = 512 * 1024**2  # the packages, what they unpack to, and the tar of it: 130 MB at the end
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PROXIES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
# The published slim images have these settings too. They stay in the image: its children are small, and soon installed,
# since a layer that a crash cuts off is never used and needs no fsync of each file.
_DPKG_SETTINGS = (
    "--dpkgopt=force-unsafe-io",
    "--dpkgopt=path-exclude=/usr/share/man/*",
    "--dpkgopt=path-exclude=/usr/share/locale/*",
    "--dpkgopt=path-exclude=/usr/share/doc/*",
    "--dpkgopt=path-include=/usr/share/doc/*/copyright",
)


class BaseImageSource(StrEnum):
    """How a base image is obtained."""

    USE = "use"
    PULL = "pull"
    BOOTSTRAP = "bootstrap"


@dataclass(frozen=True)
class BaseImageAttempt:
    """One attempt to obtain the base image. `subject`: an image reference or a bootstrap tool."""

    source: BaseImageSource
    subject: str


def plan_attempts(configured: str, present: Collection[str], tools: Collection[str]) -> tuple[BaseImageAttempt, ...]:
    """List the attempts, best first. A configured image is the only one: there is no silent fallback to another.

    `present`: those of the configured reference, `BOOTSTRAPPED` and `PUBLISHED` that are local; `tools`: installed
    bootstrap tools.
    """
    if configured:
        return (BaseImageAttempt(BaseImageSource.USE if configured in present else BaseImageSource.PULL, configured),)
    for known in (BOOTSTRAPPED, PUBLISHED):
        if known in present:
            return (BaseImageAttempt(BaseImageSource.USE, known),)
    return (
        BaseImageAttempt(BaseImageSource.PULL, PUBLISHED),
        *[BaseImageAttempt(BaseImageSource.BOOTSTRAP, tool) for tool in _TOOLS if tool in tools][:1],
    )


def find_present_base(engine: ImageStore, settings: ImageSettings) -> Image | None:
    """Find the base image if the engine has it already; uses no network."""
    for step in plan_attempts(settings.base, _list_present(engine, settings), ()):
        if step.source is BaseImageSource.USE:
            return engine.inspect_image(step.subject)
    return None


def ensure_base(engine: ImageStore, settings: ImageSettings, environ: Mapping[str, str], progress: Progress) -> Image:
    """Obtain the base image by the first attempt that works.

    Raises: `image_missing`, with the failed attempts; `timeout` or `internal` when a bootstrap fails.
    """
    tools = [tool for tool in _TOOLS if shutil.which(tool, path=_SYSTEM_PATH)]
    tried = []
    for step in plan_attempts(settings.base, _list_present(engine, settings), tools):
        try:
            return _obtain(engine, step, settings, environ, progress)
        except SandboxError as error:
            if step.source is BaseImageSource.BOOTSTRAP or error.code is ErrorCode.ENGINE_UNAVAILABLE:
                raise
            progress(error.brief)
            tried.append(f"{error.brief}: {error.details}" if error.details else error.brief)
    raise SandboxError(
        ErrorCode.IMAGE_MISSING,
        f"There is no Debian image to build from: {settings.base or PUBLISHED}",
        details="\n".join(tried),
        hint="Install mmdebstrap or debootstrap, or set images.base to a Debian image of the engine (docker load).",
    )


def _list_present(engine: ImageStore, settings: ImageSettings) -> list[str]:
    references = [settings.base] if settings.base else [BOOTSTRAPPED, PUBLISHED]
    return [reference for reference in references if engine.inspect_image(reference) is not None]


def _obtain(
    engine: ImageStore, step: BaseImageAttempt, settings: ImageSettings, environ: Mapping[str, str], progress: Progress
) -> Image:
    if step.source is BaseImageSource.BOOTSTRAP:
        with _report_end(BOOTSTRAPPED, progress):
            return bootstrap(engine, step.subject, settings.mirror, environ, progress)
    if step.source is BaseImageSource.PULL:
        with _report_end(step.subject, progress):
            progress(f"pulling {step.subject}")
            return engine.pull_image(step.subject, progress, _PULL_DEADLINE_S)
    image = engine.inspect_image(step.subject)
    if image is None:
        raise SandboxError(ErrorCode.IMAGE_MISSING, f"The image '{step.subject}' has just been removed")
    return image


@contextmanager
def _report_end(reference: str, progress: Progress) -> Iterator[None]:
    """Lines until then are of this image. An error has the end of the output, and what failed."""
    try:
        yield
    except SandboxError:
        progress(f"not built: {reference}")
        raise
    progress(f"obtained {reference}")


_OWN_MOUNTS = ("unshare", "--mount")


def bootstrap(engine: ImageStore, tool: str, mirror: str, environ: Mapping[str, str], progress: Progress) -> Image:
    """Create a Debian root file system with `tool` and import it as `BOOTSTRAPPED`. Removes its temporary files.

    They are in the host's temporary directory, which need not be on the disk of a home. Raises: `quota_exceeded` if
    it has too little space.
    """
    _require_space(Path(tempfile.gettempdir()))
    progress(f"bootstrapping {BOOTSTRAPPED} with {tool}")
    with tempfile.TemporaryDirectory(prefix="space-debian-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # the tools switch to other users (_apt, subordinate ids), which need access
        target = folder / "root.tar"
        variables = {
            "PATH": _SYSTEM_PATH,
            "LC_ALL": "C",
            "HOME": name,
            "TMPDIR": name,
            **{key: environ[key] for key in PROXIES if key in environ},
        }
        for argv in bootstrap_commands(tool, target, mirror, is_root=os.geteuid() == 0):
            _run(argv, variables, folder / "log", progress)
        progress(f"importing it into the engine, {format_bytes(target.stat().st_size)}")
        with target.open("rb") as stream:
            return engine.import_image(stream, BOOTSTRAPPED, {"space.sandbox.image": "debian"})


def _require_space(folder: Path) -> None:
    free = FreeSpace.of(folder).free_bytes
    if free < _BOOTSTRAP_BYTES:
        raise SandboxError(
            ErrorCode.QUOTA_EXCEEDED,
            "Too little disk space is free to bootstrap Debian",
            details=f"{folder}: {format_bytes(free)} are free, {format_bytes(_BOOTSTRAP_BYTES)} are needed",
            hint="Free some, set TMPDIR to another disk, or set images.base to a Debian image of the engine.",
            reason="disk",
        )


def bootstrap_commands(tool: str, target: Path, mirror: str, *, is_root: bool) -> list[list[str]]:
    """Return the argv lists that create a root file system's tar at `target`. Empty mirror: the tool's default.

    As root the tools mount /proc, /sys and /dev in their target: in a mount namespace of their own no mount outlives
    them, and no cleanup reaches the host's. Other users have no such right; mmdebstrap makes its own for them.
    """
    mirrors = [mirror] if mirror else []
    options = ["--variant=minbase", "--include=ca-certificates"]
    if tool == "mmdebstrap":
        words = ["mmdebstrap", "--format=tar", *options, *_DPKG_SETTINGS, SUITE, str(target), *mirrors]
        return [[*_OWN_MOUNTS, *words] if is_root else words]
    root = target.with_name("root")
    return [
        [*_OWN_MOUNTS, "debootstrap", *options, SUITE, str(root), *mirrors],
        ["tar", "-C", str(root), "--numeric-owner", "-cf", str(target), "."],
    ]


def _run(argv: list[str], variables: Mapping[str, str], log: Path, progress: Progress) -> None:
    """Run a command to its end in a separate session. Raises: `timeout`, or `internal` with the end of its output."""
    report = _BootstrapReport(log, progress)
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603 - fixed argv of an installed tool, no shell
            argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=dict(variables), start_new_session=True
        )
        try:
            code = _wait(process, report)
        except subprocess.TimeoutExpired as error:
            raise SandboxError(
                ErrorCode.TIMEOUT, f"{argv[0]} did not finish within {_BOOTSTRAP_DEADLINE_S:g} s", details=_tail(log)
            ) from error
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if code != 0:
        raise SandboxError(
            ErrorCode.INTERNAL,
            f"The Debian base image could not be bootstrapped: {argv[0]} ended with exit code {code}",
            details=_tail(log),
            hint="Check the network, images.mirror and the proxy variables; or set images.base to a local image.",
        )


def _wait(process: subprocess.Popen[bytes], report: _BootstrapReport) -> int:
    ends_at = time.monotonic() + _BOOTSTRAP_DEADLINE_S
    while True:
        try:
            code = process.wait(_REPORT_S)
        except subprocess.TimeoutExpired:
            if time.monotonic() >= ends_at:
                raise
            report.pass_on()
        else:
            report.pass_on()
            return code


class _BootstrapReport:
    """Passes on what a tool adds to its log, and how much it has downloaded while that grows."""

    def __init__(self, log: Path, progress: Progress) -> None:
        self._log, self._progress = log, progress
        self._offset = self._loaded = 0
        self._line = "downloading"

    def pass_on(self) -> None:
        """Report new lines; if there are none, how much more was downloaded."""
        loaded = _count_downloaded(self._log.parent)
        with self._log.open("rb") as stream:
            stream.seek(self._offset)
            added = stream.read(_LOG_BYTES)
        end = added.rfind(b"\n") + 1 or len(added)
        self._offset += end
        for line in plain_lines(added[:end].decode("utf-8", "replace")):
            self._line = line.removeprefix("I: ").removesuffix("...")
            self._progress(self._line)
        if not added and loaded > self._loaded:
            self._progress(f"{self._line}, {format_bytes(loaded)}")
        self._loaded = loaded


def _count_downloaded(folder: Path) -> int:
    """Bytes of the packages that apt or debootstrap has fetched, until it removes them; 0 if they cannot be seen."""
    with suppress(OSError):  # one was moved meanwhile
        return sum(path.stat().st_size for path in folder.glob("*/var/cache/apt/archives/**/*.deb"))
    return 0


def _tail(log: Path) -> str:
    return "\n".join(plain_lines(log.read_bytes()[-_LOG_BYTES:].decode("utf-8", "replace"))[-30:])
