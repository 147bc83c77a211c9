"""Our images for another architecture than this host's. The product builds them, in an engine of their own, from a
Debian of that architecture; what runs meanwhile does so in QEMU's user-mode emulator, by the kernel's binfmt_misc.

The engine writes this host's architecture into each image (Docker 20.10): it is corrected in the saved file.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from devtools.privatedaemon import PrivateDaemon
from devtools.published import debian_mirror
from devtools.vm.architectures import Platform
from devtools.vm.matrix_rows import Architecture
from devtools.vm.qemu import run_command, tell
from sandbox.files.mount_points import unmount_below
from sandbox.images.catalogue import read_lineage, recipe_digests, tag_of
from sandbox.images.debian import BOOTSTRAPPED, bootstrap_commands
from sandbox.store.home import Home
from sandbox.workbench import Workbench

_REGISTERED = Path("/proc/sys/fs/binfmt_misc")
_BOOTSTRAP_S, _COMMAND_S = 1800.0, 300.0


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
        with BuildEngine(folder / "data") as engine:
            host = engine.url
            _import_debian(folder, architecture, host, debian_mirror(environ))
            with Workbench(folder / "home", environ={**environ, "DOCKER_HOST": host}) as workbench:
                workbench.build_images(tuple(targets), tell)
            for image, target in targets.items():
                saved = folder / f"{image}.tar"
                run_command(["docker", "-H", host, "save", "-o", str(saved), tags[image]], _COMMAND_S, reason=image)
                part = target.with_suffix(".tar.part")
                correct_architecture(saved, part, architecture)
                part.rename(target)


class BuildEngine(PrivateDaemon):
    """Docker with a bridge and names of its own, in the host's network, which builds need. `data`: its images.

    With `--bridge=none` it would remove the bridge of the host's engine (seen: 20.10), and where containerd runs as a
    service, it uses that one.
    """

    programs = ("dockerd", "ip")
    prefix = "matrix-"  # with its number it is the longest name of a bridge: 15 characters

    def __init__(self, data: Path) -> None:
        self._data = data

    def _build_command(self) -> list[str]:
        name, settings = self._folder.name, self._folder / "daemon.json"
        settings.write_text("{}")
        own = {
            "config-file": settings,
            "data-root": self._data,
            "exec-root": self._folder / "exec",
            "pidfile": self._folder / "pid",
            "host": self.url,
            "bridge": name,
            "containerd-namespace": name,
            "containerd-plugins-namespace": f"{name}-plugins",
        }
        less = ("--iptables=false", "--ip6tables=false", "--ip-forward=false")
        return ["dockerd", *less, *(f"--{option}={value}" for option, value in own.items())]

    def _start(self) -> None:
        add = ["ip", "link", "add", self._folder.name, "type", "bridge"]
        run_command(add, _COMMAND_S, reason="a bridge for an engine")
        super()._start()

    def _remove_leftovers(self) -> None:
        unmount_below(self._data)
        if Path("/sys/class/net", self._folder.name).exists():
            delete = ["ip", "link", "delete", self._folder.name]
            run_command(delete, _COMMAND_S, reason="the bridge of an engine")


EMULATION_NEEDS = ("update-binfmts", "arch-test", *BuildEngine.programs)
"""Programs of this host, beside those of every row."""


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
