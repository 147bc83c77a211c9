"""A lock file with more entries than are read is not followed in part; one of the usual size is read as a whole."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable

import pytest

from sandbox.dependencies.collection import LOCK_BYTES
from sandbox.dependencies.ecosystems import find_steps
from sandbox.dependencies.layer_plan import LayerPlan
from sandbox.models.dependencies import RefusalReason
from sandbox.models.layers import LayerEcosystem
from tests.unit.dependencies.manifest_trees import reader

SRI = f"sha512-{base64.b64encode(b'a' * 64).decode()}"
PACKAGE_JSON = json.dumps({"workspaces": ["m"], "dependencies": {"first": "^1.0.0"}})
MEMBER = json.dumps({"name": "m", "dependencies": {"last": "^1.0.0"}})


def _npm(names: list[str]) -> str:
    entries = {f"node_modules/{name}": {"version": "1.0.0"} for name in names}
    return json.dumps({"lockfileVersion": 3, "packages": {"": json.loads(PACKAGE_JSON), **entries}})


def _pnpm(names: list[str]) -> str:
    entries = "".join(
        f"  /{name}@1.0.0:\n    resolution: {{integrity: {SRI}}}\n"
        + (f"    dependencies:\n      {names[at + 1]}: 1.0.0\n" if at + 1 < len(names) else "")
        for at, name in enumerate(names)
    )
    return f"importers:\n  .:\n    dependencies:\n      first: 1.0.0\npackages:\n{entries}"


def _yarn(names: list[str]) -> str:
    after = [f'  dependencies:\n    {name} "^1.0.0"\n' for name in names[1:]] + [""]
    return "".join(f'{name}@^1.0.0:\n  version "1.0.0"\n{needs}\n' for name, needs in zip(names, after, strict=True))


def _uv(names: list[str]) -> str:
    return "".join(f'[[package]]\nname = "{name}"\nversion = "1.0.0"\n' for name in names)


def _cargo(names: list[str]) -> str:
    source = "registry+https://github.com/rust-lang/crates.io-index"
    return "".join(
        f'[[package]]\nname = "{name}"\nversion = "1.0.0"\nsource = "{source}"\nchecksum = "{"a" * 64}"\n'
        for name in names
    )


def _go(names: list[str]) -> str:
    return "".join(f"x.org/{name} v1.0.0 h1:{'a' * 43}=\n" for name in names)


def _carton(names: list[str]) -> str:
    return "# carton snapshot format: version 1.0\nDISTRIBUTIONS\n" + "".join(
        f"  {name}-1.0\n    pathname: A/AB/ABC/{name}-1.0.tar.gz\n    provides:\n      {name} 1.0\n" for name in names
    )


LOCKS: dict[str, tuple[LayerEcosystem, str, Callable[[list[str]], str], dict[str, str]]] = {
    "npm": ("node", "package-lock.json", _npm, {"package.json": PACKAGE_JSON, "m/package.json": MEMBER}),
    "pnpm": ("node", "pnpm-lock.yaml", _pnpm, {"package.json": PACKAGE_JSON, "m/package.json": MEMBER}),
    "yarn": ("node", "yarn.lock", _yarn, {"package.json": PACKAGE_JSON, "m/package.json": MEMBER}),
    "uv": ("python", "uv.lock", _uv, {"pyproject.toml": '[project]\nname = "x"\ndependencies = ["first"]'}),
    "cargo": ("rust", "Cargo.lock", _cargo, {"Cargo.toml": '[dependencies]\nfirst = "1"\n'}),
    "go": ("go", "go.sum", _go, {"go.mod": "module x.org/x\nrequire x.org/first v1.0.0\n"}),
    "carton": ("perl", "cpanfile.snapshot", _carton, {"cpanfile": "requires 'first';\n"}),
}


def _plan(case: str, count: int) -> LayerPlan:
    ecosystem, path, write, others = LOCKS[case]
    text = write(["first", *(f"b{number:05}" for number in range(count)), "last"])
    assert len(text) <= LOCK_BYTES, "void"
    found = find_steps(ecosystem).plan(reader({**others, path: text}), ())
    assert found is not None
    return found


@pytest.mark.parametrize("case", LOCKS)
def test_a_lock_file_of_more_than_2000_packages_is_read_to_its_end(case: str) -> None:
    found = _plan(case, 2_500)
    assert len(found.locked) == 2_502
    assert found.refused == ()


@pytest.mark.parametrize("case", LOCKS)
def test_a_lock_file_with_more_entries_than_are_read_is_not_followed(case: str) -> None:
    """What is not read of it would be missing, unsaid. What the manifests ask for is chosen anew."""
    found = _plan(case, 10_000)
    assert found.locked == ()
    assert "b00000" not in "".join(content.decode() for content in found.fetch_files.values())
    assert any("first" in text for text in found.asked or found.wanted)
    assert {(entry.reason, entry.origin) for entry in found.refused} == {(RefusalReason.LIMIT, LOCKS[case][1])}
