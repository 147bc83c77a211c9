"""The steps of a Perl layer: the files of fetch and install, and the names of archives. Pure, but for reading ours.

The fetch has a network and runs our perl_fetch.pl only: CPAN's clients run Makefile.PL to learn what a distribution
needs, ours reads its META file as data (docs/adr/0169). The install has no network; there distributions are built.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from sandbox.dependencies import carton_snapshot
from sandbox.dependencies.carton_snapshot import LockedModule, read_snapshot
from sandbox.dependencies.collection import Collection, ReadFile
from sandbox.dependencies.layer_plan import EcosystemSteps, LayerPlan, Look, Step, do_not_stop, read_script
from sandbox.dependencies.perl_description import DESCRIPTION
from sandbox.dependencies.perl_manifest import (
    BUILD_SCRIPTS,
    CPANFILE,
    DIST_INI,
    META_JSON,
    META_YML,
    read_perl_manifests,
)
from sandbox.dependencies.perl_values import PerlWish, add_wish, split_distribution
from sandbox.models.layers import LayerPackage

_FETCH, _INSTALL, _MODULES = "perl_fetch.pl", "perl_install.pl", "modules.json"
_SEPARATOR = "%2F"  # of an author, folders and a file, in the flat name of an archive
_ARCHIVE = re.compile(rf"([A-Z][A-Z0-9-]{{1,19}}){_SEPARATOR}[A-Za-z0-9._+%-]{{1,400}}")


def plan_layer(read: ReadFile, needs: Sequence[str]) -> LayerPlan | None:
    """What the project at the root of a tree asks for; None if that is no module. `needs`: `MODULE` or `MODULE RANGE`.

    Raises: ValueError for a need that is no plain requirement.
    """
    collection = Collection(read)
    own = [_parse_need(text) for text in needs]
    wishes = read_perl_manifests(collection)
    locked = read_snapshot(collection)
    manifest = collection.to_manifest()
    if not wishes:
        return None
    return LayerPlan(
        fetch_files={_FETCH: read_script(_FETCH), _MODULES: _write_modules([*wishes, *own], locked)},
        install_files={_INSTALL: read_script(_INSTALL)},
        locked=manifest.locked,
        wanted=tuple(sorted({wish.text for wish in (*wishes, *own)})),
        refused=manifest.refused,
    )


def describe_archive(file: str, sha256: str) -> LayerPackage:
    """A distribution by the name of its archive, `AUTHOR%2FName-1.0.tar.gz`. Raises: ValueError if it is none."""
    found = _ARCHIVE.fullmatch(file)
    path = f"{file[0]}/{file[:2]}/{file.replace(_SEPARATOR, '/')}" if found else ""
    parts = split_distribution(path)
    if parts is None:
        raise ValueError(f"{file[:200]!r} is not the name of a distribution's archive")
    author, name, version = parts
    return LayerPackage(name=f"{author}/{name}", version=version or "0", file=file, sha256=sha256)


def _parse_need(text: str) -> PerlWish:
    collection, found = Collection(lambda _: None), list[PerlWish]()
    module, _, versions = text.partition(" ")
    add_wish(collection, found, PerlWish(module, versions.strip() or "0", "test"), "the profile")
    if not found:
        raise ValueError(f"{text!r} is refused")
    return found[0]


def _write_modules(wishes: Iterable[PerlWish], locked: Iterable[LockedModule]) -> bytes:
    document = {
        "requires": sorted({(wish.module, wish.versions) for wish in wishes}),
        "locked": {module.module: [module.version, module.path] for module in locked},
    }
    return json.dumps(document, sort_keys=True).encode("ascii")


def _find_mismatches(
    _folder: Path, packages: Sequence[LayerPackage], plan: LayerPlan, _look: Look = do_not_stop
) -> tuple[str, ...]:
    """Distributions that the lock file names for a module of the project, and the fetch did not bring."""
    document = json.loads(plan.fetch_files[_MODULES])
    paths = {document["locked"][module][1] for module, _ in document["requires"] if module in document["locked"]}
    names = {path[len("A/AB/") :].replace("/", _SEPARATOR) for path in paths}
    return tuple(sorted(names - {package.file for package in packages}))


STEPS = EcosystemSteps(
    manifests=(CPANFILE, carton_snapshot.FILE, META_JSON, META_YML, DIST_INI, *BUILD_SCRIPTS),
    plan=plan_layer,
    fetch=Step(f"exec perl {_FETCH}", {}, 900.0),
    describe=describe_archive,
    find_mismatches=_find_mismatches,
    install=Step(f"exec perl {_INSTALL}", {"SPACE_SECONDS": "1100", "SPACE_SECONDS_EACH": "300"}, 1200.0),
    may_be_empty=True,
    description=DESCRIPTION,
)
