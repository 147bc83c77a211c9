"""THREATS S19: manifests and lock files of Rust and Go that smuggle options, addresses, paths or tables; and archives
of crates that leave their folder. On this host, without a guest: what is tested is what we write, and what we unpack.
"""

from __future__ import annotations

import json
import subprocess
import time
import tomllib
from pathlib import Path

import pytest

from devtools.coderegistries import make_crate, make_tar
from devtools.host_speed import slowness
from sandbox.dependencies import go_steps, rust_steps
from sandbox.dependencies.cargo_manifest import CrateWish
from sandbox.dependencies.go_modules import GoModule
from sandbox.dependencies.layer_plan import LayerPlan
from sandbox.models.dependencies import RefusalReason

pytestmark = [pytest.mark.must]

SECONDS = 10.0  # for the largest file that is read, on a slow machine
PLAIN = '[package]\nname = "p"\n[dependencies]\nplain = "1"\n'
CRATES_IO = "registry+https://github.com/rust-lang/crates.io-index"
SUM = "a" * 64
MODULE = "module p\nrequire example.com/kept v1.0.0\nrequire example.com/plain v1.0.0\n"
HASH = f"h1:{'A' * 43}="


def entry(name: str = "a", version: str = "1.0.0", source: str = CRATES_IO, checksum: str = SUM) -> str:
    words = {"name": name, "version": version, "source": source, "checksum": checksum}
    return "[[package]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in words.items())


def plan_rust(toml: str = PLAIN, lock: str = "") -> LayerPlan:
    plan = rust_steps.plan_layer({"Cargo.toml": toml.encode(), "Cargo.lock": lock.encode()}.get, [])
    assert plan is not None
    return plan


def plan_go(module: str, sums: str = "") -> LayerPlan:
    sums += f"example.com/plain v1.0.0 {HASH}\n"
    files = {"go.mod": f"{MODULE}{module}\n".encode(), "go.sum": sums.encode()}
    plan = go_steps.plan_layer(files.get, [])
    assert plan is not None
    return plan


LOCKED = {
    "an option as name": (entry(name="--config"), RefusalReason.NAME),
    "a path as name": (entry(name="../evil"), RefusalReason.NAME),
    "a table in a name": (entry(name='a"\n[source.evil]\n'), RefusalReason.NAME),
    "a table in a version": (entry(version='1.0.0" }\n[patch.crates-io]\n'), RefusalReason.VERSION),
    "a range as version": (entry(version=">=1"), RefusalReason.VERSION),
    "a git repository": (entry(source="git+https://evil.example/a#0123"), RefusalReason.VERSION_CONTROL),
    "another registry": (entry(source="registry+https://evil.example/index"), RefusalReason.URL),
    "a registry that only begins alike": (entry(source=f"{CRATES_IO}.evil.example"), RefusalReason.URL),
    "a weak checksum": (entry(checksum="0" * 32), RefusalReason.HASH),
}
WISHED = {
    "an option as name": ('"--config" = "1"', RefusalReason.NAME),
    "a path as name": ('a = {package = "../evil", version = "1"}', RefusalReason.NAME),
    "a table in a requirement": ("""a = '1" }\\n[patch]'""", RefusalReason.VERSION),
    "a quote in a requirement": ("""a = '1", git = "https://evil.example'""", RefusalReason.VERSION),
    "a quote in a feature": ("""a = {version = "1", features = ['x", "y']}""", RefusalReason.SYNTAX),
    "a git repository": ('a = {git = "https://evil.example/a"}', RefusalReason.VERSION_CONTROL),
    "a git repository with a version": ('a = {version = "1", git = "ssh://evil"}', RefusalReason.VERSION_CONTROL),
    "another registry": ('a = {version = "1", registry = "evil"}', RefusalReason.URL),
    "an index": ('a = {version = "1", registry-index = "https://evil.example"}', RefusalReason.URL),
    "a folder above": ('a = {path = "../evil"}', RefusalReason.PATH),
    "a folder of the host": ('a = {version = "1", path = "/etc"}', RefusalReason.PATH),
}
MODULES = {
    "an option as module": ("require -modfile=x v1.0.0", RefusalReason.NAME),
    "a path as module": ("require ../evil v1.0.0", RefusalReason.NAME),
    "an address as module": ("require https://evil.example/a v1.0.0", RefusalReason.NAME),
    "a module without a host": ("require evil v1.0.0", RefusalReason.NAME),
    "a branch as version": ("require example.com/a master", RefusalReason.VERSION),
    "a line in a version": ("require example.com/a `v1.0.0\nreplace x => /etc`", RefusalReason.SYNTAX),
    "the host's files": ("replace example.com/plain => /etc", RefusalReason.PATH),
    "a folder above": ("replace example.com/plain => ../../evil", RefusalReason.PATH),
    "a branch instead": ("replace example.com/plain => example.com/evil master", RefusalReason.VERSION),
    "a strange version of go": ("go 1.20;x", RefusalReason.VERSION),
}
SUMS = {
    "an option": (f"--x v1.0.0 {HASH}\n", RefusalReason.NAME),
    "a path": (f"a/../b v1.0.0 {HASH}\n", RefusalReason.NAME),
    "a version that is a path": (f"a.b/c v1.0.0/../.. {HASH}\n", RefusalReason.VERSION),
    "another kind of hash": ("a.b/c v1.0.0 h0:x\n", RefusalReason.HASH),
}


@pytest.mark.parametrize("name", LOCKED)
def test_s19_a_smuggled_entry_of_cargo_lock_is_refused_by_name(name: str) -> None:
    text, reason = LOCKED[name]
    plan = plan_rust(lock=text + entry("plain"))
    assert [refused.reason for refused in plan.refused] == [reason]
    assert [locked.name for locked in plan.locked] == ["plain"]  # the control: the list itself is read
    assert b"evil" not in b"".join(plan.fetch_files.values())


@pytest.mark.parametrize("name", WISHED)
def test_s19_a_smuggled_dependency_of_cargo_toml_is_refused_by_name(name: str) -> None:
    text, reason = WISHED[name]
    plan = plan_rust(f"{PLAIN}{text}\n")
    assert [refused.reason for refused in plan.refused] == [reason]
    assert plan.wanted == ("plain 1",)  # the control: the list itself is read
    assert b"evil" not in b"".join(plan.fetch_files.values())


def test_s19_a_quote_in_a_dependency_reaches_a_manifest_that_is_written_carelessly() -> None:
    """The control: without the grammar, the value that is refused above becomes a key of cargo's."""
    careless = rust_steps.write_manifest([CrateWish("a", '1", git = "https://evil.example')])
    assert tomllib.loads(careless.decode())["dependencies"]["d0"]["git"] == "https://evil.example"
    careless = go_steps.write_module(GoModule(requires=[("example.com/a", "v1.0.0\nreplace x => /etc")]))
    assert b"\nreplace x => /etc\n" in careless


def test_s19_patches_and_settings_of_a_repository_are_never_read() -> None:
    asked = []

    def read(path: str) -> bytes | None:
        asked.append(path)
        return (
            f'{PLAIN}[patch.crates-io]\nplain = {{git = "https://evil.example"}}\n'
            '[replace]\n"plain:1.0.0" = {path = "/evil"}\n'
        ).encode()

    plan = rust_steps.plan_layer(read, [])
    assert plan is not None
    assert b"evil" not in b"".join((*plan.fetch_files.values(), *plan.install_files.values()))
    assert list(dict.fromkeys(asked)) == ["Cargo.toml", "Cargo.lock"]


@pytest.mark.parametrize("name", MODULES)
def test_s19_a_smuggled_line_of_go_mod_is_refused_by_name(name: str) -> None:
    text, reason = MODULES[name]
    plan = plan_go(text)
    written = plan.fetch_files["fetch.mod"].decode()
    assert reason in {refused.reason for refused in plan.refused}
    assert "example.com/kept" in written  # the control: the list itself is read
    assert not any(mark in written for mark in ("evil", "/etc", "-modfile", "master", "=>", ";"))
    assert ("example.com/plain" in written) is (reason is not RefusalReason.PATH)


@pytest.mark.parametrize("name", SUMS)
def test_s19_a_smuggled_line_of_go_sum_is_refused_by_name(name: str) -> None:
    text, reason = SUMS[name]
    plan = plan_go("", text)
    assert [refused.reason for refused in plan.refused] == [reason]
    assert [locked.name for locked in plan.locked] == ["example.com/plain"]


def test_s19_no_toolchain_is_asked_for() -> None:
    plan = plan_go("toolchain go1.99.0\ntool example.com/evil\ngodebug x=1\nretract v1.0.0")
    assert plan.fetch_files["fetch.mod"] == MODULE.replace("p\n", "p\ngo 1.16\n", 1).encode()
    assert plan.refused == ()


def _many(line: str, count: int) -> bytes:
    return "".join(line.replace("#", str(number)) for number in range(count)).encode()


BOMBS: dict[str, tuple[str, bytes]] = {
    "dots of a key": ("Cargo.toml", b"a." * 30_000 + b"b = 1\n"),
    "nested arrays": ("Cargo.lock", b"a = \n" + b"[\n" * 50_000),
    "too many packages": ("Cargo.lock", entry().encode() * 15_000),
    "too many dependencies": ("Cargo.toml", PLAIN.encode() + _many('a# = "1"\n', 24_000)),
    "features": ("Cargo.toml", PLAIN.encode() + b"[features]\n" + _many('f# = ["plain/x#"]\n', 9_000)),
    "patterns": ("Cargo.toml", b"[workspace]\nmembers = [" + _many('"a*/*/b#*",', 12_000) + b"]\n" + PLAIN.encode()),
    "folders without end": ("Cargo.toml", PLAIN.encode() + b'b = {path = "b"}\n'),
    "a file that is too large": ("go.sum", b"a\n" * 2_000_000),
    "quotes": ("go.mod", b'"' * 200_000),
    "quotes of two kinds": ("go.mod", b'"`' * 100_000),
    "parentheses": ("go.mod", b"(\n" * 100_000),
    "a long path": ("go.mod", b"require " + b"a/" * 100_000 + b" v1.0.0\n"),
    "a long version": ("go.mod", b"require a.b/c v1.0.0-" + b"a." * 100_000 + b"\n"),
    "many modules": ("go.mod", b"require a.b/c v1.0.0\n" * 10_000),
    "many lines of a go.sum": ("go.sum", b"a.b/c v1.0.0 h1:x\n" * 100_000),
    "many folders": ("go.mod", _many("replace a.b/c# => ./d#\n", 8_000)),
}


@pytest.mark.parametrize("name", BOMBS)
def test_s19_a_manifest_of_rust_or_go_cannot_exhaust_its_reader(name: str) -> None:
    path, content = BOMBS[name]
    tree = {"Cargo.toml": PLAIN.encode(), "go.mod": b"module p\nrequire a.b/c v1.0.0\n", path: content}
    steps = go_steps if path.startswith("go") else rust_steps
    folders = b"\n".join(b"a" * 100 + b"%d" % number for number in range(50_000))

    def read(at: str) -> bytes | None:
        if at.endswith("/"):
            return folders
        return tree.get(at) or (content if at.endswith(path) else None)

    begun = time.process_time()
    plan = steps.plan_layer(read, [])
    assert time.process_time() - begun < SECONDS * slowness()
    assert plan is None or sum(map(len, plan.fetch_files.values())) < 2_000_000


def unpack(folder: Path, archive: bytes) -> subprocess.CompletedProcess[str]:
    """Run the install of a layer with one archive that calls itself `evil-1.0.0`."""
    folder.mkdir()
    (folder / "archives").mkdir()
    (folder / "config.toml").write_text("")
    (folder / "archives/evil-1.0.0.crate").write_bytes(archive)
    script = rust_steps.STEPS.install.script
    return subprocess.run(["sh", "-c", script], cwd=folder, capture_output=True, text=True)


ARCHIVES = {
    "another crate's folder": make_tar({"good-1.0.0/src/lib.rs": "x"}),
    "two folders": make_tar({"evil-1.0.0/Cargo.toml": "", "good-1.0.0/src/lib.rs": "x"}),
    "a folder above": make_tar({"evil-1.0.0/Cargo.toml": "", "evil-1.0.0/../../escaped": "x"}),
    "an absolute path": make_tar({"evil-1.0.0/Cargo.toml": "", "/tmp/evil-escaped": "x"}),
    "a link": make_tar({"evil-1.0.0/l/escaped": "x"}, {"evil-1.0.0/l": "../.."}),
    "a link alone": make_tar({"evil-1.0.0/Cargo.toml": ""}, {"evil-1.0.0/l": "/etc/passwd"}),
    "no archive": b"x",
    "nothing": make_tar({}),
}


@pytest.mark.parametrize("name", ARCHIVES)
def test_s19_an_archive_of_a_crate_fills_its_own_folder_only(name: str, tmp_path: Path) -> None:
    """Control: an honest archive is unpacked."""
    assert unpack(tmp_path / "control", make_crate("evil", "1.0.0", {"src/lib.rs": "x"})).returncode == 0
    vendor = tmp_path / "control/layer/vendor/evil-1.0.0"
    assert sorted(path.name for path in vendor.iterdir()) == [".cargo-checksum.json", "Cargo.toml", "src"]
    done = unpack(tmp_path / "attack", ARCHIVES[name])
    assert done.returncode != 0
    assert list((tmp_path / "attack/layer/vendor").iterdir()) == []
    assert not [*tmp_path.rglob("escaped"), *Path("/tmp").glob("evil-escaped")]
