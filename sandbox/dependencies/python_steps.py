"""The steps of a Python layer: files for the fetch, the commands of fetch and install, and the names of wheels. Pure.

The fetch has a network and runs pip and uv only: `--only-binary :all:` keeps both from running the build of a package,
also for its metadata. The install has no network; there packages may run code (`.pth` files run when bytecode is
compiled).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from sandbox.dependencies.collection import ReadFile
from sandbox.dependencies.layer_plan import EcosystemSteps, LayerPlan, Step
from sandbox.dependencies.python_manifest import MANIFESTS, read_python_manifest, select_requirements
from sandbox.dependencies.requirement_text import parse_requirement
from sandbox.models.dependencies import LockedPackage, Manifest, RefusedEntry, Requirement
from sandbox.models.dependencies import RequirementRole as Role
from sandbox.models.layers import LayerPackage

# Each try takes less, or is less exact, than the one before. $1: the date of the commit.
_FETCH_SCRIPT = """
set -u
try() {
    name=$1 file=$2
    shift 2
    rm -f resolved.txt
    uv pip compile -q --python /usr/bin/python3 --only-binary :all: --generate-hashes --no-header --no-annotate \\
        -o resolved.txt "$@" "$file" 2>error.txt && echo "$name" >selection.txt && return
    cat error.txt >&2
    ! grep -q 'error sending request' error.txt || exit 69 # no registry: fewer requirements would not help
    return 1
}
resolve() {
    if [ -s locked.txt ] && try "all, as locked" all.in -c locked.txt; then return; fi
    for input in all tests runtime; do
        if try "$input, as of $1" $input.in --exclude-newer "$1"; then return; fi
        if try "$input" $input.in; then return; fi
    done
    return 1
}
resolve "$1" || exit 65
exec pip download -q --no-deps --only-binary :all: --require-hashes --dest wheels -r resolved.txt
"""

_INSTALL_SCRIPT = """
set -eu
uv venv -q --relocatable --no-project --python /usr/bin/python3 layer
uv pip install -q --offline --no-index --no-deps --no-build --link-mode copy --compile-bytecode \\
    --python layer/bin/python wheels/*.whl
"""

_FETCH_ENV = {
    "UV_OFFLINE": "0",
    "UV_NO_CONFIG": "1",
    "UV_NO_CACHE": "1",
    "UV_PYTHON_DOWNLOADS": "never",
    "UV_HTTP_TIMEOUT": "20",
    "UV_HTTP_RETRIES": "2",
}
_INSTALL_ENV = {"UV_NO_CONFIG": "1", "UV_NO_CACHE": "1", "UV_PYTHON_DOWNLOADS": "never"}


def plan_layer(read: ReadFile, needs: Sequence[str]) -> LayerPlan | None:
    """What the project at the root of a tree asks for; None if that is no package. `needs`: as `write_fetch_files`."""
    manifest = select_requirements(read_python_manifest(read))
    if not needs_layer(manifest):
        return None
    return LayerPlan(
        fetch_files=write_fetch_files(manifest, needs),
        locked=manifest.locked,
        wanted=tuple(sorted({f"{r.name}{r.specifier}" for r in manifest.requirements})),
        refused=manifest.refused,
    )


def needs_layer(manifest: Manifest) -> bool:
    """Whether a project asks for packages: what only builds it is in the image."""
    return any(requirement.role is not Role.BUILD for requirement in manifest.requirements)


def write_fetch_files(manifest: Manifest, needs: Sequence[str]) -> dict[str, bytes]:
    """The files that the fetch sees, written anew from data. `needs`: requirements of the profile's checks.

    Raises: ValueError for a need that is no plain requirement.
    """
    own = [_require_plain(text) for text in needs]
    required = list(manifest.requirements)
    without_build = [requirement for requirement in required if requirement.role is not Role.BUILD]
    runtime = [requirement for requirement in required if requirement.role is Role.RUNTIME]
    return {
        "all.in": _write_lines(format_requirement(r) for r in (*required, *own)),
        "tests.in": _write_lines(format_requirement(r) for r in (*without_build, *own)),
        "runtime.in": _write_lines(format_requirement(r) for r in (*runtime, *own)),
        "locked.txt": _write_lines(_format_constraints(manifest.locked)),
    }


def format_requirement(requirement: Requirement) -> str:
    """One line of a requirements file."""
    extras = f"[{','.join(requirement.extras)}]" if requirement.extras else ""
    marker = f" ; {requirement.marker}" if requirement.marker else ""
    return f"{requirement.name}{extras}{requirement.specifier}{marker}"


def describe_wheel(file: str, sha256: str) -> LayerPackage:
    """A package by the name of its wheel. Raises: ValueError if it is not the name of one."""
    try:
        name, version, _, _ = parse_wheel_filename(file)
    except InvalidWheelFilename as error:
        raise ValueError(f"{file[:200]!r} is not the name of a wheel") from error
    return LayerPackage(name=name, version=str(version), file=file, sha256=sha256)


def find_mismatches(packages: Iterable[LayerPackage], locked: Iterable[LockedPackage]) -> tuple[str, ...]:
    """Files of which the lock file has hashes, and another one was fetched."""
    known: dict[tuple[str, str], set[str]] = {}
    for entry in locked:
        known.setdefault((entry.name, entry.version), set()).update(entry.hashes)
    return tuple(
        package.file
        for package in packages
        if (hashes := known.get((package.name, package.version))) and f"sha256:{package.sha256}" not in hashes
    )


def _format_constraints(locked: Iterable[LockedPackage]) -> Iterable[str]:
    """A package that is locked at several versions, each with a marker, is not constrained."""
    versions: dict[str, set[str]] = {}
    for package in locked:
        versions.setdefault(package.name, set()).add(package.version)
    return (f"{name}=={min(found)}" for name, found in sorted(versions.items()) if len(found) == 1)


def _require_plain(text: str) -> Requirement:
    found = parse_requirement(text, Role.TEST, "the profile")
    if isinstance(found, RefusedEntry):
        raise ValueError(f"{text!r} is refused: {found.reason.value}")
    return found


def _write_lines(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in dict.fromkeys(lines)).encode("ascii")


def _find_mismatches(_folder: Path, packages: Sequence[LayerPackage], plan: LayerPlan) -> tuple[str, ...]:
    return find_mismatches(packages, plan.locked)


STEPS = EcosystemSteps(
    manifests=MANIFESTS,
    plan=plan_layer,
    fetch=Step(_FETCH_SCRIPT, _FETCH_ENV, 900.0),
    archives="wheels",
    describe=describe_wheel,
    find_mismatches=_find_mismatches,
    install=Step(_INSTALL_SCRIPT, _INSTALL_ENV, 600.0),
)
