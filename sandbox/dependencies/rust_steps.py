"""The steps of a Rust layer: a manifest for the fetch, the commands of fetch and install, names of crates. Pure.

The fetch has a network and runs `cargo generate-lockfile` and `cargo fetch` on a manifest that we wrote: they
build no code. The install has no network, and only unpacks. Build scripts run in checks, which have no network.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from sandbox.dependencies.cargo_lock import CRATE_NAME, CRATE_VERSION, read_cargo_lock
from sandbox.dependencies.cargo_lock import FILE as LOCK_FILE
from sandbox.dependencies.cargo_manifest import FILE, CrateWish, find_workspace, read_cargo_manifests
from sandbox.dependencies.collection import Collection, ReadFile
from sandbox.dependencies.environment import target
from sandbox.dependencies.folder_patterns import resolve_folder
from sandbox.dependencies.layer_plan import EcosystemSteps, LayerPlan, Look, Step, do_not_stop
from sandbox.dependencies.pyproject import FILE as PYPROJECT
from sandbox.models.dependencies import LockedPackage
from sandbox.models.layers import LayerPackage
from sandbox.policy.nested_tables import get_nested

_HEAD = '[package]\nname = "space-sandbox-fetch"\nversion = "0.0.0"\nedition = "2021"\n[lib]\npath = "lib.rs"\n'
_SOURCE = "registry+https://github.com/rust-lang/crates.io-index"
_MAX_MODULES = 20  # of setuptools-rust, that are looked at
_FILE_NAME = re.compile(rf"({CRATE_NAME.pattern})-({CRATE_VERSION.pattern})\.crate")

# SPACE_INDEX: the sparse index of the operator. $1: the date of the commit; RUSTC_BOOTSTRAP allows the one option that
# makes cargo look at dates, which a registry may not have.
_FETCH_SCRIPT = """
set -eu
mkdir cargo archives project
cp Cargo.* lib.rs project/ # copies: it writes into them
export CARGO_HOME="$PWD/cargo"
# a second source with the address of crates.io itself would be an error
[ "${SPACE_INDEX%/}" = https://index.crates.io ] || cat >cargo/config.toml <<END
[source.crates-io]
replace-with = "operator"
[source.operator]
registry = "sparse+${SPACE_INDEX%/}/"
END
cd project
choice="all, as locked"
if ! [ -e Cargo.lock ]; then
    choice="all, as of $1"
    if ! RUSTC_BOOTSTRAP=1 cargo generate-lockfile -q -Z unstable-options --publish-time "$1" 2>error.txt; then
        cat error.txt >&2
        ! grep -q 'config.json failed' error.txt || exit 69 # no registry: other versions would not help
        choice=all
        cargo generate-lockfile -q
    fi
fi
cargo fetch -q
cd ..
cp cargo/registry/cache/*/*.crate archives/
echo "$choice" >selection.txt
"""

# Each crate may fill its own folder only: none can change another one's files.
_INSTALL_SCRIPT = r"""
set -eu
mkdir -p layer/vendor
mv config.toml layer/
refuse() {
    echo "$name.crate $1" >&2
    echo "$name.crate" >refused.txt
    exit 65
}
for crate in archives/*.crate; do
    name=$(basename "$crate" .crate)
    tar -tPzf "$crate" >names || refuse "is no archive, or is damaged"
    ! tar -tvzf "$crate" | grep '^[^-d]' >&2 || refuse "holds something else than files and folders"
    ! grep -E '^/|(^|/)\.\.(/|$)' names >&2 || refuse "holds a path that leaves its folder"
    mkdir unpacked
    tar -xzf "$crate" --no-same-owner --no-same-permissions -C unpacked
    [ "$(ls -A unpacked)" = "$name" ] || refuse "holds files of another folder"
    mv "unpacked/$name" layer/vendor/
    rmdir unpacked
    sum=$(sha256sum "$crate" | cut -d ' ' -f 1)
    rm -rf "layer/vendor/$name/.cargo-checksum.json"
    printf '{"files":{},"package":"%s"}\n' "$sum" >"layer/vendor/$name/.cargo-checksum.json"
done
"""

_CONFIG = f"""# Crates are those of this layer. There is no network in a check.
[source.crates-io]
replace-with = "space-sandbox-layer"
[source.space-sandbox-layer]
directory = "{target("rust")}/vendor"
[net]
offline = true
"""

_FETCH_ENV = {"CARGO_NET_RETRY": "2", "CARGO_HTTP_TIMEOUT": "20", "CARGO_TERM_COLOR": "never"}


def plan_layer(read: ReadFile, needs: Sequence[str]) -> LayerPlan | None:
    """What the project at the root of a tree asks for, or the crate that its Python package is built with; None if
    there is none. Raises: ValueError for `needs`.
    """
    if needs:
        raise ValueError("a layer of Rust has no needs of the profile's own")
    folder, collection = _find_crate(read), Collection(read)
    root = find_workspace(collection, folder) if folder else ""
    wishes = read_cargo_manifests(collection, folder, root)
    read_cargo_lock(collection, root)
    manifest = collection.to_manifest()
    names = {package.name for package in manifest.locked}
    is_complete = bool(names) and all(wish.name in names for wish in wishes)
    pins = tuple(CrateWish(p.name, f"={p.version}", default_features=False) for p in manifest.locked)
    wanted = pins if is_complete else (*pins, *wishes)
    if posixpath.join(folder, FILE) not in manifest.files or not wanted:
        return None
    files = {FILE: write_manifest(wanted), "lib.rs": b""}
    return LayerPlan(
        fetch_files={**files, LOCK_FILE: write_lock(manifest.locked)} if is_complete else files,
        install_files={"config.toml": _CONFIG.encode()},
        locked=manifest.locked,
        wanted=tuple(sorted({f"{wish.name} {wish.requirement}" for wish in wanted})),
        refused=manifest.refused,
    )


def find_root(read: ReadFile, folder: str) -> str:
    """The folder of the workspace of a crate. cargo goes through all of it, also where it starts in a member."""
    return find_workspace(Collection(read), folder)


def _find_crate(read: ReadFile) -> str:
    """The folder of Cargo.toml: where maturin and setuptools-rust look, '' for the top."""
    if read(FILE) is not None:
        return ""
    document = Collection(read).load_toml(PYPROJECT)
    modules = get_nested(document, "tool", "setuptools-rust", "ext-modules")
    named = [get_nested(module, "path") for module in modules[:_MAX_MODULES]] if isinstance(modules, list) else []
    named += [get_nested(document, "tool", "maturin", "manifest-path"), f"rust/{FILE}"]
    files = (resolve_folder("", path) for path in named)
    return next((posixpath.dirname(file) for file in files if file and read(file) is not None), "")


def write_manifest(wishes: Iterable[CrateWish]) -> bytes:
    """A Cargo.toml that asks for these crates, each value of a grammar that needs no escape."""
    return f"{_HEAD}[dependencies]\n{''.join(_format(*numbered) for numbered in enumerate(wishes))}".encode("ascii")


def write_lock(locked: Iterable[LockedPackage]) -> bytes:
    """A Cargo.lock that allows these versions, also yanked ones. Without checksums: the host compares, and names what
    differs.
    """
    entries = (
        f'[[package]]\nname = "{package.name}"\nversion = "{package.version}"\nsource = "{_SOURCE}"\n'
        for package in locked
    )
    return f"version = 3\n{''.join(entries)}".encode("ascii")


def describe_crate(file: str, sha256: str) -> LayerPackage:
    """A package by the name of its archive. Raises: ValueError if it is not the name of one."""
    if not (found := _FILE_NAME.fullmatch(file)):
        raise ValueError(f"{file[:200]!r} is not the name of a crate")
    return LayerPackage(name=found[1], version=found[2], file=file, sha256=sha256)


def _format(number: int, wish: CrateWish) -> str:
    features = ", ".join(f'"{feature}"' for feature in wish.features)
    default = "true" if wish.default_features else "false"
    return (
        f'd{number} = {{ package = "{wish.name}", version = "{wish.requirement}", '
        f"default-features = {default}, features = [{features}] }}\n"
    )


def _find_mismatches(
    _folder: Path, packages: Sequence[LayerPackage], plan: LayerPlan, _look: Look = do_not_stop
) -> tuple[str, ...]:
    known = {(package.name, package.version): package.hashes for package in plan.locked}
    return tuple(
        package.file
        for package in packages
        if f"sha256:{package.sha256}" not in known.get((package.name, package.version), (f"sha256:{package.sha256}",))
    )


STEPS = EcosystemSteps(
    manifests=(FILE, LOCK_FILE),
    plan=plan_layer,
    fetch=Step(_FETCH_SCRIPT, _FETCH_ENV, 900.0),
    describe=describe_crate,
    find_mismatches=_find_mismatches,
    install=Step(_INSTALL_SCRIPT, {}, 600.0),
    find_root=find_root,
    unpacks_only=True,
)
