"""The steps of a Python layer: files for the fetch, the commands of fetch and install, and the names of wheels. Pure.

The fetch has a network and runs pip, uv and images/python/choose_packages.py: `--only-binary :all:` keeps them from
running the build of a package, also for its metadata. The install has no network; there packages may run code (source
distributions are built, `.pth` files run when bytecode is compiled).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_version,
    parse_sdist_filename,
    parse_wheel_filename,
)

from sandbox.dependencies.collection import ReadFile
from sandbox.dependencies.layer_plan import EcosystemSteps, LayerPlan, Look, ProjectDescription, Step, do_not_stop
from sandbox.dependencies.python_manifest import MANIFESTS, read_python_manifest, select_requirements
from sandbox.dependencies.requirement_text import parse_requirement
from sandbox.models.dependencies import LockedPackage, Manifest, RefusedEntry, Requirement
from sandbox.models.dependencies import RequirementRole as Role
from sandbox.models.layers import LayerPackage

# images/python/choose_packages.py chooses. $1: the date of the commit.
_FETCH_SCRIPT = """
set -eu
python3 /usr/local/lib/sandbox/choose_packages.py "$1"
[ -s resolved.txt ] || exit 0
exec pip download -q --no-deps --only-binary :all: --require-hashes --dest wheels -r resolved.txt
"""

# A source distribution that cannot be built is left out, and the layer says so; they may need each other. Some go on
# without an extension that does not compile: the log has the warnings of setuptools, and of those that copy MarkupSafe.
# What it ran short of is noted with its name, for it may succeed in a later round: the kernel counts no full disk, and
# no memory that was refused.
_INSTALL_SCRIPT = """
set -eu
uv venv -q --relocatable --no-project --python /usr/bin/python3 layer
install() {
    uv pip install -q --offline --no-index --no-deps --no-build --link-mode hardlink --compile-bytecode \\
        --python layer/bin/python "$@"
}
note_shortage() {
    ! grep -q 'No space left on device' one.log || echo "disk $1" >>short-of.txt
    ! grep -Eq 'Cannot allocate memory|MemoryError|out of memory' one.log || echo "memory $1" >>short-of.txt
    ! grep -Eq 'Resource temporarily unavailable|start new thread' one.log || echo "processes $1" >>short-of.txt
}
sources=
for archive in wheels/*; do
    case $archive in
    *.whl) set -- "$@" "$archive" ;;
    *) sources="$sources $archive" ;;
    esac
done
[ $# = 0 ] || install "$@"
more=1
while [ -n "$sources" ] && [ -n "$more" ]; do
    more= pending=$sources sources=
    for archive in $pending; do
        rm -rf built
        if PATH=$PWD/layer/bin:$PATH uv build --offline --no-index --wheel --no-build-isolation \\
            --python layer/bin/python --out-dir built "$archive" >one.log 2>&1 &&
            install built/*.whl >>one.log 2>&1; then
            more=1
            if grep -Eq 'building extension .* failed|extension could not be compiled' one.log; then
                echo "${archive#wheels/}" >>without-extension.txt
                note_shortage "${archive#wheels/}"
            fi
        else
            cat one.log >>build.log
            note_shortage "${archive#wheels/}"
            sources="$sources $archive"
        fi
    done
done
rm -rf uv-cache # the files of the layer have no other name then
for archive in $sources; do echo "${archive#wheels/}"; done >left-out.txt
[ -z "$sources" ] || tail -n 50 build.log >&2
"""

_FETCH_ENV = {
    "UV_OFFLINE": "0",
    "UV_NO_CONFIG": "1",
    "UV_CACHE_DIR": "/tmp/uv",  # noqa: S108 -- of the guest, which is alone
    "UV_PYTHON_DOWNLOADS": "never",
    "UV_HTTP_TIMEOUT": "20",
    "UV_HTTP_RETRIES": "2",
}
_INSTALL_ENV = {"UV_NO_CONFIG": "1", "UV_CACHE_DIR": "uv-cache", "UV_PYTHON_DOWNLOADS": "never"}

# No git history is visible to a guest: tools that ask it for a version are given one.
_DESCRIBE_ENV = dict.fromkeys(("SETUPTOOLS_SCM_PRETEND_VERSION", "PDM_BUILD_SCM_VERSION", "PBR_VERSION"), "0.0.0")

BACK_ENDS = frozenset(
    {"setuptools", "wheel", "hatchling", "hatch-vcs", "hatch-fancy-pypi-readme", "setuptools-scm", "flit-core"}
    | {"poetry-core", "pdm-backend", "editables"}
)
"""What builds a project without a layer: images/python/requirements.in."""
_MAY_EXCLUDE_NEWEST = re.compile(r"<|==|~=|!=")
_PLAIN_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!-]*")


def plan_layer(read: ReadFile, needs: Sequence[str]) -> LayerPlan | None:
    """What the project at the root of a tree asks for; None if that is no package. `needs`: as `write_fetch_files`."""
    manifest = select_requirements(read_python_manifest(read))
    if not needs_layer(manifest):
        return None
    return LayerPlan(
        fetch_files=write_fetch_files(manifest, needs),
        locked=manifest.locked,
        wanted=tuple(sorted({f"{r.name}{r.specifier}" for r in manifest.requirements})),
        asked=tuple(sorted({format_requirement(r).partition(" ;")[0] for r in manifest.requirements})),
        refused=manifest.refused,
    )


def needs_description(read: ReadFile) -> bool:
    """Whether the project's build computes what it needs to run, and no file that is data says it."""
    manifest = read_python_manifest(read)
    is_said = any(r.role is Role.RUNTIME for r in manifest.requirements) or "PKG-INFO" in manifest.files
    return manifest.computed and not is_said and not manifest.locked


def needs_layer(manifest: Manifest) -> bool:
    """Whether a project asks for packages: the usual build back-ends are in the image, and are the newest there."""
    return any(
        r.role is not Role.BUILD or r.name not in BACK_ENDS or _MAY_EXCLUDE_NEWEST.search(r.specifier)
        for r in manifest.requirements
    )


def write_fetch_files(manifest: Manifest, needs: Sequence[str]) -> dict[str, bytes]:
    """The files that the fetch sees, written anew from data. `needs`: requirements of the profile's checks.

    Raises: ValueError for a need that is no plain requirement.
    """
    own = [_require_plain(text) for text in needs]
    by_role = {role: [r for r in manifest.requirements if r.role is role] for role in Role}
    return {
        "required.in": _write_lines(format_requirement(r) for r in (*by_role[Role.RUNTIME], *own)),
        "tests.in": _write_lines(map(format_requirement, by_role[Role.TEST])),
        "development.in": _write_lines(map(format_requirement, by_role[Role.DEVELOPMENT])),
        "build.in": _write_lines(map(format_requirement, by_role[Role.BUILD])),
        "locked.txt": _write_lines(_format_constraints(manifest.locked)),
    }


def format_requirement(requirement: Requirement) -> str:
    """One line of a requirements file."""
    extras = f"[{','.join(requirement.extras)}]" if requirement.extras else ""
    marker = f" ; {requirement.marker}" if requirement.marker else ""
    return f"{requirement.name}{extras}{requirement.specifier}{marker}"


def describe_archive(file: str, sha256: str) -> LayerPackage:
    """A package by the name of its wheel or source distribution. Raises: ValueError if it is not the name of one."""
    try:
        name, version = parse_wheel_filename(file)[:2] if file.endswith(".whl") else parse_sdist_filename(file)
        if not _PLAIN_FILE.fullmatch(file):
            raise InvalidSdistFilename(file)
    except (InvalidWheelFilename, InvalidSdistFilename) as error:
        raise ValueError(f"{file[:200]!r} is not the name of a wheel or source distribution") from error
    return LayerPackage(name=name, version=str(version), file=file, sha256=sha256)


def find_mismatches(packages: Iterable[LayerPackage], locked: Iterable[LockedPackage]) -> tuple[str, ...]:
    """Files of which the lock file has hashes, and another one was fetched. A registry that calls `1.0.0` `1.0`, or
    `1.0+x`, gives package managers what they ask for by `==1.0.0`, so it is the same version here, too.
    """
    known: dict[tuple[str, str], set[str]] = {}
    for entry in locked:
        known.setdefault(_identify(entry), set()).update(entry.hashes)
    return tuple(
        package.file
        for package in packages
        if (hashes := known.get(_identify(package))) and f"sha256:{package.sha256}" not in hashes
    )


def _identify(package: LayerPackage | LockedPackage) -> tuple[str, str]:
    return package.name, _write_version_form(package.version)


def _write_version_form(version: str) -> str:
    return canonicalize_version(version.partition("+")[0])


def _format_constraints(locked: Iterable[LockedPackage]) -> Iterable[str]:
    """A package that is locked at several versions is constrained to those that have a marker."""
    versions: dict[str, dict[str, str]] = {}
    for package in locked:
        versions.setdefault(package.name, {})[package.version] = package.marker
    for name, found in sorted(versions.items()):
        for version, marker in sorted(found.items()):
            if marker or len(found) == 1:
                yield f"{name}=={version}" + (f" ; {marker}" if marker and len(found) > 1 else "")


def _require_plain(text: str) -> Requirement:
    found = parse_requirement(text, Role.TEST, "the profile")
    if isinstance(found, RefusedEntry):
        raise ValueError(f"{text!r} is refused: {found.reason.value}")
    return found


def _write_lines(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in dict.fromkeys(lines)).encode("ascii")


def _find_mismatches(
    _folder: Path, packages: Sequence[LayerPackage], plan: LayerPlan, _look: Look = do_not_stop
) -> tuple[str, ...]:
    return find_mismatches(packages, plan.locked)


STEPS = EcosystemSteps(
    manifests=MANIFESTS,
    plan=plan_layer,
    fetch=Step(_FETCH_SCRIPT, _FETCH_ENV, 900.0),
    archives="wheels",
    version_form=_write_version_form,
    describe=describe_archive,
    find_mismatches=_find_mismatches,
    install=Step(_INSTALL_SCRIPT, _INSTALL_ENV, 600.0),
    description=ProjectDescription(
        Step("python3 /usr/local/lib/sandbox/describe_project.py /report/PKG-INFO", _DESCRIBE_ENV, 120.0),
        "PKG-INFO",
        ("Name", "Requires-Dist"),
        needs_description,
    ),
)
