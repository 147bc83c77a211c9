"""Our images for another architecture than this host's. The product builds them, in an engine of their own, from a
Debian of that architecture; what runs meanwhile does so in QEMU's user-mode emulator, by the kernel's binfmt_misc.

The engine writes this host's architecture into each image (Docker 20.10): it is corrected in the saved file.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from devtools.published import debian_mirror
from devtools.vm.architectures import Platform
from devtools.vm.matrix_rows import Architecture
from devtools.vm.qemu import run_command, tell
from sandbox.files.mount_points import unmount_below
from sandbox.images.catalogue import read_lineage, recipe_digests, tag_of
from sandbox.images.debian import BOOTSTRAPPED, bootstrap_commands
from sandbox.store.home import Home
from sandbox.workbench import Workbench

EMULATION_NEEDS = ("update-binfmts", "arch-test", "dockerd", "ip")
"""Programs of this host, beside those of every row."""
_REGISTERED = Path("/proc/sys/fs/binfmt_misc")
_BOOTSTRAP_S, _COMMAND_S, _ENGINE_S = 1800.0, 300.0, 60.0


def emulate_programs(platform: Platform) -> None:
    """Programs of that architecture run on this host from now on, also below a changed root, as after each start of a
    host with Debian's emulator. Raises: RuntimeError.
    """
    name = f"qemu-{platform.machine}"
    if not (_REGISTERED / name).exists():
        run_command(["update-binfmts", "--enable", name], _COMMAND_S, reason=f"programs of {platform.machine}")


def find_tags(names: Sequence[str]) -> dict[str, str]:
    """The tag that the product gives to each image, by the recipes of this checkout."""
    with tempfile.TemporaryDirectory() as folder:
        lines = {name: read_lineage(Home(Path(folder)), name) for name in names}
        return {name: tag_of(name, recipe_digests(line, "")[-1]) for name, line in lines.items()}


def build_foreign_images(
    targets: Mapping[str, Path], architecture: Architecture, cache: Path, environ: Mapping[str, str]
) -> None:
    """Build images and save each, by name, as a file. Takes about a quarter of an hour. Needs `emulate_programs`.

    Raises: RuntimeError, OSError, SandboxError.
    """
    tags = find_tags(tuple(targets))
    with tempfile.TemporaryDirectory(dir=cache, prefix="engine-") as name:
        folder = Path(name)
        with _start_engine(folder) as host:
            _import_debian(folder, architecture, host, debian_mirror(environ))
            with Workbench(folder / "home", environ={**environ, "DOCKER_HOST": host}) as workbench:
                workbench.build_images(tuple(targets), tell)
            for image, target in targets.items():
                saved = folder / f"{image}.tar"
                run_command(["docker", "-H", host, "save", "-o", str(saved), tags[image]], _COMMAND_S, reason=image)
                part = target.with_suffix(".tar.part")
                correct_architecture(saved, part, architecture)
                part.rename(target)


@contextmanager
def _start_engine(folder: Path) -> Iterator[str]:
    """An engine with files, names and a bridge of its own; its address. The host's engine and its images are untouched.

    It shares the host's network, which builds need. With `--bridge=none` it would remove the bridge of the host's
    engine (seen: 20.10), and where containerd runs as a service, it uses that one.
    """
    with tempfile.TemporaryDirectory(prefix="matrix-") as short:  # the name of a socket is at most 107 bytes
        settings = folder / "daemon.json"
        settings.write_text("{}")
        host, name = f"unix://{short}/engine", f"matrix{os.getpid()}"
        argv = ["dockerd", "--config-file", str(settings), "--data-root", str(folder / "data"), "--exec-root",
                f"{short}/exec", "--pidfile", f"{short}/pid", "--host", host, f"--bridge={name}", "--iptables=false",
                "--ip6tables=false", "--ip-forward=false", f"--containerd-namespace={name}",
                f"--containerd-plugins-namespace={name}-plugins"]  # fmt: skip
        with _bridge(name), (folder / "engine.log").open("wb") as log:
            process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)  # noqa: S603 - fixed
            try:
                _wait_for_engine(host, folder / "engine.log")
                yield host
            finally:
                process.terminate()
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_ENGINE_S)
                process.kill()
                process.wait()
                for place in (folder, Path(short)):
                    unmount_below(place)


@contextmanager
def _bridge(name: str) -> Iterator[None]:
    run_command(["ip", "link", "add", name, "type", "bridge"], _COMMAND_S, reason="a bridge for an engine")
    try:
        yield
    finally:
        run_command(["ip", "link", "delete", name], _COMMAND_S, reason="the bridge of an engine")


def _wait_for_engine(host: str, log: Path) -> None:
    ends_at = time.monotonic() + _ENGINE_S
    while True:
        try:
            run_command(["docker", "-H", host, "version"], _COMMAND_S, reason="an engine of its own")
        except RuntimeError as error:
            if time.monotonic() > ends_at:
                raise RuntimeError(f"{error}\n{log.read_text(errors='replace')[-1500:]}") from error
            time.sleep(0.5)
        else:
            return


def _import_debian(folder: Path, architecture: Architecture, host: str, mirror: str) -> None:
    """The product's own Debian, of another architecture."""
    tell(f"installing the Debian of the images for {architecture}")
    tar = folder / "debian.tar"
    for argv in bootstrap_commands("mmdebstrap", tar, mirror, is_root=os.geteuid() == 0):
        place = argv.index("mmdebstrap") + 1
        words = [*argv[:place], f"--architectures={architecture}", *argv[place:]]
        run_command(words, _BOOTSTRAP_S, reason=f"Debian for {architecture}")
    run_command(
        ["docker", "-H", host, "import", str(tar), BOOTSTRAPPED], _COMMAND_S, reason=f"Debian for {architecture}"
    )
    tar.unlink()


def correct_architecture(saved: Path, target: Path, architecture: Architecture) -> None:
    """Write what `docker save` made of one image anew, with another architecture in its configuration.

    Raises: `KeyError` and other errors for what is no such file.
    """
    with tarfile.open(saved) as source, tarfile.open(target, "w") as sink:
        (manifest,) = json.load(_open(source, "manifest.json"))
        was = manifest["Config"]
        settings = json.load(_open(source, was))
        content = json.dumps({**settings, "architecture": str(architecture)}).encode()
        manifest["Config"] = f"{hashlib.sha256(content).hexdigest()}.json"
        replaced = {
            was: (manifest["Config"], content),
            "manifest.json": ("manifest.json", json.dumps([manifest]).encode()),
        }
        for member in source:
            if member.name in replaced:
                member.name, content = replaced[member.name]
                member.size = len(content)
                sink.addfile(member, io.BytesIO(content))
            else:
                sink.addfile(member, source.extractfile(member) if member.isfile() else None)


def _open(source: tarfile.TarFile, name: str) -> io.BufferedReader:
    file = source.extractfile(name)
    if file is None:
        raise KeyError(name)
    return file  # type: ignore[return-value]  # typeshed: IO[bytes]
