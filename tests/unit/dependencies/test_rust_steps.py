from __future__ import annotations

import io
import re
import subprocess
import tarfile
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from devtools.host_speed import slowness
from sandbox.dependencies import rust_steps as steps
from sandbox.dependencies.cargo_lock import read_cargo_lock
from sandbox.dependencies.cargo_manifest import MAX_FEATURES, MAX_WISHES, find_workspace, read_cargo_manifests
from sandbox.dependencies.collection import MAX_LOOKS, Collection
from sandbox.dependencies.layer_plan import LayerPlan
from sandbox.models.dependencies import RefusalReason
from sandbox.models.layers import LayerPackage
from tests.unit.dependencies.manifest_trees import reader

CRATES_IO = 'source = "registry+https://github.com/rust-lang/crates.io-index"\n'
SUM = "a" * 64


def plan(**files: str) -> LayerPlan | None:
    """The plan of a tree. `__` in a name stands for a slash."""
    tree = {f"{name.replace('__', '/')}": text.encode() for name, text in files.items()}
    named = {"toml": "Cargo.toml", "lock": "Cargo.lock"}
    return steps.plan_layer(reader({named.get(name, f"{name}/Cargo.toml"): text for name, text in tree.items()}), [])


def locked(name: str, version: str = "1.0.0", rest: str = f'{CRATES_IO}checksum = "{SUM}"\n') -> str:
    return f'[[package]]\nname = "{name}"\nversion = "{version}"\n{rest}'


@pytest.mark.parametrize(
    ("folder", "pyproject"),
    [
        ("rust", "[build-system]\n"),
        ("native/one", "[tool.maturin]\nmanifest-path = 'native/one/Cargo.toml'\n"),
        ("src/_x", "[[tool.setuptools-rust.ext-modules]]\ntarget = 'x._x'\npath = 'src/_x/Cargo.toml'\n"),
    ],
)
def test_the_crate_of_a_python_package_is_where_its_build_says(folder: str, pyproject: str) -> None:
    tree = {
        "pyproject.toml": pyproject,
        f"{folder}/Cargo.toml": '[package]\nname="p"\n[dependencies]\na = "1"\nb = {path = "b"}\n',
        f"{folder}/b/Cargo.toml": '[package]\nname="b"\n[dependencies]\nc = "2"\n',
    }
    found = steps.plan_layer(reader(tree), [])
    assert found is not None
    assert found.wanted == ("a 1", "c 2")
    assert steps.plan_layer(reader({"pyproject.toml": pyproject}), []) is None
    outside = {
        "pyproject.toml": "[tool.maturin]\nmanifest-path = '../Cargo.toml'\n",
        "../Cargo.toml": tree[f"{folder}/Cargo.toml"],
    }
    assert steps.plan_layer(reader(outside), []) is None


def test_the_crate_of_a_python_package_may_be_a_member_of_a_workspace_above_it() -> None:
    """Its Cargo.lock, what it inherits and folders beside it are found where cargo looks for them."""
    tree = {
        "pyproject.toml": "[tool.maturin]\nmanifest-path = 'rust/py/Cargo.toml'\n",
        "rust/Cargo.toml": "[workspace]\nmembers = ['py', 'more/*']\nexclude = ['old']\n"
        "[workspace.dependencies]\na = '1'\ncore = {path = 'core'}\n",
        "rust/py/Cargo.toml": '[package]\nname="p"\n[dependencies]\na.workspace = true\ncore.workspace = true\n'
        'beside = {path = "../../beside"}\nout = {path = "../../../out"}\n',
        "rust/core/Cargo.toml": '[package]\nname="core"\n[dependencies]\nb = "2"\n',
        "rust/more/one/Cargo.toml": '[package]\nname="one"\n[dependencies]\nd = "4"\n',
        "beside/Cargo.toml": '[package]\nname="beside"\n[dependencies]\nc = "3"\n',
    }
    found = steps.plan_layer(reader(tree), [])
    assert found is not None
    assert found.wanted == ("a 1", "b 2", "c 3", "d 4")
    assert [(entry.text, entry.origin) for entry in found.refused] == [("out ../../../out", "rust/py/Cargo.toml")]
    found = steps.plan_layer(reader({**tree, "rust/Cargo.lock": "".join(map(locked, "abc"))}), [])
    assert found is not None
    assert found.wanted == ("a =1.0.0", "b =1.0.0", "c =1.0.0")
    assert "Cargo.lock" in found.fetch_files

    tree["rust/Cargo.toml"] = "[workspace]\nexclude = ['py']\n"
    tree["rust/py/Cargo.toml"] = '[package]\nname="p"\n[dependencies]\na = "1"\n'
    alone = steps.plan_layer(reader({**tree, "rust/Cargo.lock": locked("z"), "rust/py/Cargo.lock": locked("a")}), [])
    assert alone is not None
    assert alone.wanted == ("a =1.0.0",)


@pytest.mark.parametrize(
    ("workspace", "root"),
    [
        ("exclude = ['examples']", "examples/a"),
        ("exclude = ['exam']", ""),
        ("members = ['examples/a']\nexclude = ['examples']", ""),
    ],
)
def test_an_excluded_folder_excludes_those_below_it_that_no_member_names(workspace: str, root: str) -> None:
    tree = {"Cargo.toml": f"[workspace]\n{workspace}\n", "examples/a/Cargo.toml": '[package]\nname = "a"\n'}
    assert find_workspace(Collection(reader(tree)), "examples/a") == root


def test_a_complete_lock_file_alone_decides() -> None:
    found = plan(toml='[package]\nname="p"\n[dependencies]\na = "1"\n', lock=locked("a") + locked("b", "2.0.0"))
    assert found is not None
    assert (
        found.fetch_files["Cargo.toml"]
        .decode()
        .endswith(
            'd0 = { package = "a", version = "=1.0.0", default-features = false, features = [] }\n'
            'd1 = { package = "b", version = "=2.0.0", default-features = false, features = [] }\n'
        )
    )
    assert b"checksum" not in found.fetch_files["Cargo.lock"], "the host compares, and names what differs"
    assert found.locked[0].hashes == (f"sha256:{SUM}",)


def test_what_a_lock_file_lacks_is_resolved() -> None:
    found = plan(toml='[package]\nname="p"\n[dependencies]\na = "1"\nc = "3"\n', lock=locked("a"))
    assert found is not None
    assert "Cargo.lock" not in found.fetch_files
    assert found.wanted == ("a 1", "a =1.0.0", "c 3")


def test_a_workspace_is_read_with_its_members_targets_kinds_and_features() -> None:
    found = plan(
        toml="""
[workspace]
members = ["one", "crates/*", "deep/**", "a/**/b/**/c/**"]
exclude = ["crates/old"]
[workspace.dependencies]
shared = { version = "1", default-features = false, features = ["x"] }
two = { path = "two" }
[package]
name = "p"
[dependencies]
two.workspace = true
[target.'cfg(windows)'.dev-dependencies]
win = { package = "real-win", version = ">=1, <3", optional = true }
[features]
f = ["win/extra", "dep:win", "win?/more"]
""",
        one='[build-dependencies]\nshared = { workspace = true, features = ["y"] }\n',
        two='[dependencies]\nb = { version = "*" }\n',
        crates__four='[dependencies]\nfour = "4"\nother = { path = "../other" }\n',
        crates__other='[package]\nname = "other"\n',
        deep__down__five='[dependencies]\nfive = "5"\n',
        deep__node_modules__six='[dependencies]\nsix = "6"\n',
        crates__old='[dependencies]\nold = "1"\n',
    )
    assert found is not None
    assert found.fetch_files["Cargo.toml"].decode().partition("[dependencies]\n")[2] == (
        'd0 = { package = "b", version = "*", default-features = true, features = [] }\n'
        'd1 = { package = "five", version = "5", default-features = true, features = [] }\n'
        'd2 = { package = "four", version = "4", default-features = true, features = [] }\n'
        'd3 = { package = "real-win", version = ">=1, <3", default-features = true, features = ["extra", "more"] }\n'
        'd4 = { package = "shared", version = "1", default-features = false, features = ["x", "y"] }\n'
    )
    assert [(entry.text, entry.reason) for entry in found.refused] == [("members = a/**/b/**/c/**", RefusalReason.PATH)]


def test_the_members_of_a_pattern_are_left_to_a_lock_file() -> None:
    """It covers them, and nothing that is no member changes what it says."""
    found = plan(toml='[workspace]\nmembers = ["crates/*"]\n', lock=locked("a"), crates__x='[dependencies]\nb = "1"\n')
    assert found is not None
    assert found.wanted == ("a =1.0.0",)


@pytest.mark.parametrize("toml", ['[package]\nname="p"\n', '[package]\nname="p"\n[dependencies]\nq = {path = "q"}\n'])
def test_a_project_without_crates_of_a_registry_needs_no_layer(toml: str) -> None:
    assert plan(toml=toml) is None
    assert plan(lock=locked("a")) is None, "without a manifest it is no project"


def test_s188_folders_that_manifests_name_are_read_in_a_time_that_grows_with_their_number() -> None:
    """Each of a few manifests names thousands of folders that are not there."""
    manifest = b"[dependencies]\n" + b"".join(b'a%d={path="b%d"}\n' % (number, number) for number in range(4000))
    files = {"Cargo.toml": manifest, **{f"b{number}/Cargo.toml": manifest for number in range(12)}}
    collection = Collection(files.get)
    began = time.process_time()
    assert read_cargo_manifests(collection) == ()
    assert time.process_time() - began < 4 * slowness()  # 17 s when each folder was compared with all others
    assert RefusalReason.LIMIT in {entry.reason for entry in collection.refused}
    assert len(collection.files) <= MAX_LOOKS + 1


def test_s188_what_manifests_ask_for_is_limited() -> None:
    """A list of features that thousands of tables inherit is copied for each of them."""
    features = ",\n".join(f'"f{number}"' for number in range(1_000))
    tables = "".join(f"[target.t{number}.dependencies]\na.workspace = true\n" for number in range(4_000))
    inherited = f'[workspace]\n[workspace.dependencies.a]\nversion = "1"\nfeatures = [\n{features}]\n{tables}'
    many = "[dependencies]\n" + "".join(f'a{number} = "1"\n' for number in range(5_000))
    own = "".join(
        f'[target.t{number}.dependencies.a]\nworkspace = true\nfeatures = ["g{number}"]\n' for number in range(200)
    )
    different = f'[workspace]\n[workspace.dependencies.a]\nversion = "1"\nfeatures = [\n{features}]\n{own}'
    for text, most in ((inherited, 1), (many, MAX_WISHES), (different, MAX_FEATURES // 1_001)):
        collection = Collection({"Cargo.toml": text.encode()}.get)
        began = time.process_time()
        assert len(read_cargo_manifests(collection)) == most
        assert time.process_time() - began < 15 * slowness()
        assert {entry.reason for entry in collection.refused} == {RefusalReason.LIMIT}


def quote_all(texts: Iterable[str]) -> str:
    return ",\n".join(f'"{text}"' for text in texts)


LONG_LIST = quote_all(f"f{number}" for number in range(600))
# What the members of a workspace may inherit, their dependencies, their features, and the number of wishes.
WORKSPACES = {
    "same features": (
        "".join(f'd{i} = {{ version = "1.{i}", features = ["a", "b", "c", "d", "e"] }}\n' for i in range(60)),
        "".join(f"d{i}.workspace = true\n" for i in range(60)),
        "".join(f"f{n} = [{quote_all(f'd{i}/f{n}' for i in range(60))}]\n" for n in range(3)),
        60,
    ),
    "one long list": (f'd0 = {{ version = "1", features = [{LONG_LIST}] }}\n', "d0.workspace = true\n", "", 1),
    "paths": (
        f'd0 = {{ path = "m0", features = [{LONG_LIST}] }}\ne = "1"\n',
        "d0.workspace = true\ne.workspace = true\n",
        "",
        1,
    ),
    "a list that is not inherited": (f'd0 = {{ version = "1", features = [{LONG_LIST}] }}\n', 'd0 = "1"\n', "", 1),
}


@pytest.mark.parametrize("case", WORKSPACES)
def test_what_the_members_of_a_large_workspace_ask_for_alike_is_counted_once(case: str) -> None:
    inherited, dependencies, features, wishes = WORKSPACES[case]
    members = ", ".join(f'"m{i}"' for i in range(120))
    member = f"[dependencies]\n{dependencies}[dev-dependencies]\n{dependencies}[features]\n{features}".encode()
    files = {f"m{i}/Cargo.toml": member for i in range(120)}
    files["Cargo.toml"] = f"[workspace]\nmembers = [{members}]\n[workspace.dependencies]\n{inherited}".encode()
    collection = Collection(files.get)
    assert len(read_cargo_manifests(collection)) == wishes
    assert collection.refused == []


def test_a_wish_that_is_known_is_no_new_one_past_the_limit() -> None:
    wishes = "".join(f'a{number} = "1"\n' for number in range(MAX_WISHES))
    collection = Collection({"Cargo.toml": f"[dependencies]\n{wishes}[dev-dependencies]\n{wishes}".encode()}.get)
    assert len(read_cargo_manifests(collection)) == MAX_WISHES
    assert collection.refused == []


def test_checksums_of_the_first_lock_format_are_found() -> None:
    sums = f'[metadata]\n"checksum a 1.0.0 (registry+https://github.com/rust-lang/crates.io-index)" = "{SUM}"\n'
    found = plan(toml='[package]\nname="p"\n', lock=locked("a", rest=CRATES_IO) + sums)
    assert found is not None
    assert found.locked[0].hashes == (f"sha256:{SUM}",)


@pytest.mark.parametrize(
    "file", ["a.crate", "-1.0.0.crate", "a-1.0.0.zip", "a-1.crate", "a-1.0.0/x.crate", "--x.crate"]
)
def test_what_has_no_name_of_a_crate_is_refused(file: str) -> None:
    with pytest.raises(ValueError, match="not the name of a crate"):
        steps.describe_crate(file, "0" * 64)


def test_name_and_version_are_found_in_the_name_of_a_crate() -> None:
    found = steps.describe_crate("a-b_c-1.0.0-rc.1+z.2.crate", "0" * 64)
    assert (found.name, found.version) == ("a-b_c", "1.0.0-rc.1+z.2")


@pytest.mark.parametrize("script", [steps.STEPS.fetch.script, steps.STEPS.install.script])
def test_the_scripts_of_the_steps_can_be_parsed(script: str) -> None:
    subprocess.run(["sh", "-n"], input=script.encode(), check=True)


def test_a_fetch_runs_no_command_of_cargo_that_builds() -> None:
    called = re.findall(r"(?<!mkdir )\bcargo ([a-z-]+)", steps.STEPS.fetch.script)
    assert set(called) == {"generate-lockfile", "fetch"}


def test_an_archive_is_compared_with_the_lock_file(tmp_path: Path) -> None:
    found = plan(toml='[package]\nname="p"\n', lock=locked("a"))
    assert found is not None
    for value, expected in ((SUM, ()), ("b" * 64, ("a-1.0.0.crate",))):
        package = LayerPackage(name="a", version="1.0.0", file="a-1.0.0.crate", sha256=value)
        assert steps.STEPS.find_mismatches(tmp_path, [package], found) == expected


@pytest.mark.parametrize(
    ("index", "is_replaced"),
    [("https://index.crates.io", False), ("https://index.crates.io/", False), ("https://crates.example.org", True)],
)
def test_the_index_of_crates_io_is_no_second_source(index: str, tmp_path: Path, *, is_replaced: bool) -> None:
    """cargo ends with an error if another source has the address of its own."""
    cargo = tmp_path / "bin" / "cargo"
    cargo.parent.mkdir()
    cargo.write_text('#!/bin/sh\ncd "$CARGO_HOME"\nmkdir -p registry/cache/x\n: >registry/cache/x/a-1.crate\n')
    cargo.chmod(0o755)
    (tmp_path / "Cargo.toml").touch()
    (tmp_path / "lib.rs").touch()
    env = {"PATH": f"{cargo.parent}:/usr/bin:/bin", "SPACE_INDEX": index}
    script = steps.STEPS.fetch.script
    subprocess.run(["sh", "-c", script, "sh", "2026-01-01T00:00:00Z"], cwd=tmp_path, env=env, check=True)
    settings = tmp_path / "cargo" / "config.toml"
    assert settings.exists() == is_replaced
    assert not is_replaced or 'registry = "sparse+https://crates.example.org/"' in settings.read_text()


@pytest.mark.parametrize(
    ("member", "kind", "said"),
    [
        ("a-1.0.0/../../escaped", tarfile.REGTYPE, "holds a path that leaves its folder"),
        ("/escaped", tarfile.REGTYPE, "holds a path that leaves its folder"),
        ("b-1.0.0/x", tarfile.REGTYPE, "holds files of another folder"),
        ("a-1.0.0/x", tarfile.SYMTYPE, "holds something else than files and folders"),
        ("", tarfile.REGTYPE, "is no archive, or is damaged"),
        ("a-1.0.0/a..b", tarfile.REGTYPE, ""),
    ],
)
def test_a_crate_that_fills_more_than_its_folder_is_refused_by_name(
    member: str, kind: bytes, said: str, tmp_path: Path
) -> None:
    archive = tmp_path / "archives" / "a-1.0.0.crate"
    archive.parent.mkdir()
    (tmp_path / "config.toml").touch()
    archive.write_bytes(b"no archive")
    if member:
        with tarfile.open(archive, "w:gz") as crate:
            crate.addfile(tarfile.TarInfo("a-1.0.0/Cargo.toml"), io.BytesIO())
            entry = tarfile.TarInfo(member)
            entry.type = kind
            crate.addfile(entry, io.BytesIO())
    command = ["sh", "-c", steps.STEPS.install.script]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    refused = tmp_path / "refused.txt"
    assert (refused.read_text() if refused.exists() else "") == ("a-1.0.0.crate\n" if said else "")
    assert f"a-1.0.0.crate {said}" in done.stderr or not said
    assert (done.returncode != 0) == bool(said)
    assert not (tmp_path.parent / "escaped").exists()


@pytest.mark.parametrize("source", ["[]", "{}", "1", "['x']"])
def test_a_source_that_is_no_text_is_refused(source: str) -> None:
    collection = Collection(reader({"Cargo.lock": locked("a", rest=f"source = {source}\n")}))
    read_cargo_lock(collection)
    assert not collection.locked
    assert [entry.reason for entry in collection.refused] == [RefusalReason.URL]
