"""The steps of a Go layer: a go.mod for the fetch, the commands of fetch and install, and the names of archives. Pure.

The fetch has a network and runs `go mod download` in a module that we wrote: it compiles no code, runs none, and asks
no version control. The host compares each archive with go.sum. The install has no network, and only unpacks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from sandbox.dependencies.collection import Collection, ReadFile
from sandbox.dependencies.go_hashes import ContentBudget, hash_module_file, hash_zip
from sandbox.dependencies.go_modules import (
    FILE,
    MODULE_PATH,
    MODULE_VERSION,
    SUMS,
    VENDORED,
    WORKSPACE,
    GoModule,
    read_go_module,
    read_go_sums,
    read_workspace,
)
from sandbox.dependencies.layer_plan import EcosystemSteps, LayerPlan, Look, Step, do_not_stop
from sandbox.models.layers import LayerPackage

_ARCHIVE = re.compile(r"([a-z0-9!%._~+-][A-Za-z0-9!%._~+-]*)@([a-z0-9!.+-]+)\.(zip|mod)")
_ESCAPED = re.compile(r"!([a-z])")
_FIRST_AUTOMATIC_VENDOR = 14  # from this version in go.mod on, go uses the folder `vendor` by itself
_STUBS = 60

# Archives have flat names, `example.com%2Fmodule@v1.0.0.zip`: no character of a module's path is a `%`.
_FETCH_SCRIPT = r"""
set -eu
mkdir archives module
export GOMODCACHE="$PWD/cache" GOPATH="$PWD/gopath"
for file in stub-*.mod; do
    [ -e "$file" ] || continue
    mkdir "${file%.mod}"
    cp "$file" "${file%.mod}/go.mod"
done
cp fetch.mod module/go.mod # a copy: go may write into it
(cd module && go mod download)
cd cache/cache/download
find . -path '*/@v/*' \( -name '*.zip' -o -name '*.mod' \) | while read -r file; do
    cp "$file" "../../../archives/$(printf '%s\n' "${file#./}" | sed 's|/@v/|@|; s|/|%2F|g')"
done
echo "as go.mod says, with the hashes of go.sum" >../../../selection.txt
"""

# The archives become a proxy of files, from which go unpacks by its own rules. The zips are not needed afterwards.
_INSTALL_SCRIPT = r"""
set -eu
export GOMODCACHE="$PWD/layer" GOPATH="$PWD/gopath" GOPROXY="file://$PWD/layer/cache/download"
for file in archives/*; do
    name=$(basename "$file" | sed 's|%2F|/|g; s|@|/@v/|')
    place=layer/cache/download/$name
    mkdir -p "$(dirname "$place")"
    cp "$file" "$place"
    version=$(basename "${name%.*}" | sed 's|!\([a-z]\)|\u\1|g')
    printf '{"Version":"%s"}\n' "$version" >"${place%.*}.info"
done
mkdir module proxy
mv layer/cache/download proxy/
export GOPROXY="file://$PWD/proxy/download"
cd module
printf 'module space.invalid/install\n\ngo 1.16\n' >go.mod
find ../proxy/download -path '*/@v/*.zip' | sed 's|^../proxy/download/||; s|/@v/|@|; s|\.zip$||; s|!\([a-z]\)|\u\1|g' |
    xargs -r -n 100 go mod download
cd ..
(cd proxy/download && find . -name '*.mod' -o -name '*.info') | while read -r file; do
    mkdir -p "layer/cache/download/$(dirname "$file")"
    cp "proxy/download/$file" "layer/cache/download/$file"
done
find layer/cache/download \( -name '*.zip' -o -name '*.lock' \) -delete
"""

_ENV = {
    "GOENV": "off",
    "GOFLAGS": "-mod=mod -modcacherw",
    "GOINSECURE": "",
    "GONOPROXY": "",
    "GONOSUMDB": "",
    "GOPRIVATE": "",
    "GOSUMDB": "off",  # only what go.sum has a hash of is used: the host compares, and go again in each check
    "GOTOOLCHAIN": "local",
    "GOVCS": "*:off",
    "GOWORK": "off",
    "GO111MODULE": "on",
}


def plan_layer(read: ReadFile, needs: Sequence[str]) -> LayerPlan | None:
    """What the module at the root of a tree asks for; None if that is no other module, if the modules are in the tree
    (`vendor`), or if there is no go.sum, without which go does not build. Raises: ValueError for `needs`.
    """
    if needs:
        raise ValueError("a layer of Go has no needs of the profile's own")
    collection = Collection(read)
    module = read_go_module(collection)
    if module is None or (module.go_number >= _FIRST_AUTOMATIC_VENDOR and read(VENDORED) is not None):
        return None
    read_go_sums(collection)
    _add_workspace(collection, module)
    stubs = _read_stubs(collection, module)
    manifest = collection.to_manifest()
    wanted = sorted({f"{path} {version}" for one in (module, *stubs.values()) for path, version in one.requires})
    if not (manifest.locked or collection.is_cut) or not wanted:
        return None  # a go.sum that is cut gives the host no hash: go compares each module with it in the check
    names = {folder: f"stub-{number}" for number, folder in enumerate(stubs)}
    files = {f"{names[folder]}.mod": write_module(stub) for folder, stub in stubs.items()}
    return LayerPlan(
        fetch_files={**files, "fetch.mod": write_module(module, names)},
        locked=manifest.locked,
        wanted=tuple(wanted),
        refused=manifest.refused,
    )


def write_module(module: GoModule, folders: dict[str, str] | None = None) -> bytes:
    """A go.mod with the same data. `folders`: names of the folders that stand for modules of the tree; without them
    no module is replaced, as go does with the go.mod of a dependency.
    """
    lines = [f"module {module.path}", f"go {module.go}"]
    lines += [f"require {path} {version}" for path, version in module.requires]
    if folders is not None:
        lines += [f"exclude {path} {version}" for path, version in module.excludes]
        lines += [f"replace {path} {version} => {other} {at}" for path, version, other, at in module.replaces]
        lines += [f"replace {path} {version} => ../{folders[place]}" for path, version, place in module.folders]
    return "".join(f"{line}\n" for line in dict.fromkeys(lines)).encode("ascii")


def describe_archive(file: str, sha256: str) -> LayerPackage:
    """A module by the name of its archive; `VERSION/go.mod` is the version of a go.mod, as in go.sum.

    Raises: ValueError if it is not the name of one.
    """
    found = _ARCHIVE.fullmatch(file)
    path = _unescape(found[1].replace("%2F", "/")) if found else ""
    version = _unescape(found[2]) if found else ""
    if not found or not MODULE_PATH.fullmatch(path) or not MODULE_VERSION.fullmatch(version):
        raise ValueError(f"{file[:200]!r} is not the name of a module's archive")
    suffix = "/go.mod" if found[3] == "mod" else ""
    return LayerPackage(name=path, version=f"{version}{suffix}", file=file, sha256=sha256)


def _unescape(text: str) -> str:
    return _ESCAPED.sub(lambda found: found[1].upper(), text)


def _add_workspace(collection: Collection, module: GoModule) -> None:
    """Modules that go.work uses stand for themselves, as those that go.mod replaces by a folder."""
    known = {path for path, _, _ in module.folders}
    for folder in read_workspace(collection):
        other = read_go_module(collection, folder)
        if other is not None and other.path not in {*known, module.path}:
            module.folders.append((other.path, "", folder))


def _read_stubs(collection: Collection, module: GoModule) -> dict[str, GoModule]:
    """The modules of folders that stand for others, by folder."""
    stubs: dict[str, GoModule] = {}
    for path, _, folder in module.folders[:_STUBS]:
        stubs[folder] = read_go_module(collection, folder) or GoModule(path=path)
    module.folders = [found for found in module.folders if found[2] in stubs]
    return stubs


def _find_mismatches(
    folder: Path, packages: Sequence[LayerPackage], plan: LayerPlan, look: Look = do_not_stop
) -> tuple[str, ...]:
    """Raises: `quota_exceeded` for modules that hold too much together."""
    return tuple(_list_mismatches(folder, packages, plan.list_hashes(), ContentBudget(look)))


def _list_mismatches(
    folder: Path, packages: Sequence[LayerPackage], known: dict[tuple[str, str], set[str]], budget: ContentBudget
) -> Iterable[str]:
    for package in packages:
        hashes = known.get((package.name, package.version))
        if hashes is None:
            continue
        path = folder / package.file
        try:
            find_hash = hash_module_file if package.version.endswith("/go.mod") else hash_zip
            found = find_hash(path, budget)
        except ValueError:
            found = ""
        if found not in hashes:
            yield package.file


STEPS = EcosystemSteps(
    manifests=(FILE, WORKSPACE, VENDORED, *SUMS),
    plan=plan_layer,
    fetch=Step(_FETCH_SCRIPT, _ENV, 900.0),
    describe=describe_archive,
    find_mismatches=_find_mismatches,
    install=Step(_INSTALL_SCRIPT, _ENV, 600.0),
)
