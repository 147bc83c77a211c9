"""THREATS S19: hostile crates and Go modules, and the layers that checks get. Real guests, registries of our own."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from devtools.coderegistries import CodeRegistry, make_module, serve_code
from sandbox.engine.connection import DockerEngine
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import Verdict
from tests.attack.layer_bench import LayerBench, open_bench

pytestmark = [pytest.mark.must, pytest.mark.one_git]

PROFILE = """
label = "layers"
image = "{ecosystem}"
priority = 99
[[detect.any]]
file = "{manifest}"
[[layer]]
ecosystem = "{ecosystem}"
[[check]]
id = "use"
label = "Use the package"
argv = ["{tool}", "test"]
limits = {{ memory_bytes = 1073741824, cpus = 2.0, pids = 256 }}
"""
SOURCE = 'source = "registry+https://github.com/rust-lang/crates.io-index"\n'


Bench = LayerBench[CodeRegistry]
PROFILES = {
    f"{ecosystem}-layers": PROFILE.format(ecosystem=ecosystem, manifest=manifest, tool=tool)
    for ecosystem, manifest, tool in (("rust", "Cargo.toml", "cargo"), ("go", "go.mod", "go"))
}


@pytest.fixture
def bench(tmp_path: Path, engine: DockerEngine) -> Iterator[Bench]:
    with serve_code() as registry:
        urls = {"rust": [registry.crates_url], "go": [registry.modules_url]}
        with open_bench(tmp_path, registry, urls, PROFILES) as made:
            yield made


def test_s19_a_build_script_of_a_crate_has_no_network_and_only_locked_crates_are_used(bench: Bench) -> None:
    """A crate with another checksum than Cargo.lock's; and one with a build script that tries the network, the proxy's
    socket and to change the layer.

    Controls: the registry can be reached from the host; the build script ran, and reached what it may.
    """
    build = f"""
use std::{{fs, net::TcpStream, os::unix::net::UnixStream}};
fn main() {{
    let own = std::env::current_dir().unwrap();
    assert!(own.starts_with("/sandbox-layers/rust/vendor"), "{{own:?}}");
    let mut reached = vec![];
    for port in [{bench.registry.port}, 3128] {{
        if TcpStream::connect(("127.0.0.1", port)).is_ok() {{ reached.push("network") }}
    }}
    if UnixStream::connect("/sandbox-egress").is_ok() {{ reached.push("socket") }}
    if fs::write(own.join("src/lib.rs"), "changed").is_ok() {{ reached.push("layer") }}
    let out = std::env::var("OUT_DIR").unwrap();
    fs::write(out + "/reached", reached.join(" ") + "nothing else").unwrap();
}}
"""
    library = 'pub const REACHED: &str = include_str!(concat!(env!("OUT_DIR"), "/reached"));\n'
    digest = bench.registry.add_crate("evil", "1.0.0", {"build.rs": build, "src/lib.rs": library}, yanked=True)
    files = {
        "Cargo.toml": '[package]\nname = "p"\nversion = "0.1.0"\nedition = "2021"\n[dependencies]\nevil = "1"\n',
        "src/lib.rs": '#[test]\nfn t() { assert_eq!(evil::REACHED, "nothing else") }\n',
        # Its own settings of cargo lead elsewhere. The fetch never sees them; in the check there is no network.
        ".cargo/config.toml": '[registries.elsewhere]\nindex = "sparse+https://elsewhere.invalid/"\n',
    }

    def locked(value: str) -> dict[str, str]:
        own = '[[package]]\nname = "p"\nversion = "0.1.0"\ndependencies = ["evil"]\n'
        entry = f'[[package]]\nname = "evil"\nversion = "1.0.0"\n{SOURCE}checksum = "{value}"\n'
        return files | {"Cargo.lock": f"version = 4\n{entry}{own}"}

    with pytest.raises(SandboxError) as raised:
        bench.run(locked("0" * 64), "wrong")
    assert (raised.value.code, bench.trees) == (ErrorCode.POLICY_VIOLATION, [])
    assert "evil-1.0.0.crate" in raised.value.brief

    with socket.create_connection(("127.0.0.1", bench.registry.port)):
        pass  # void, if this fails
    right = bench.run(locked(digest), "right")
    assert right.verified, right.runs[0].stderr_tail
    assert right.runs[0].layers
    (tree,) = bench.trees
    assert (tree / "vendor/evil-1.0.0/src/lib.rs").read_text() == library
    assert tree.stat().st_uid == os.geteuid()
    assert not any("elsewhere" in line for line in (*bench.lines, *bench.registry.asked))


def test_s19_only_modules_with_the_hashes_of_go_sum_are_used(bench: Bench) -> None:
    """A module with another content than go.sum says; one whose zip leaves its folder; a module that replaces itself by
    the host's files and asks for another toolchain. Control: with its own hash the module is used.
    """
    module = {"go.mod": "module example.com/evil\n\ngo 1.17\n", "evil.go": "package evil\n\nconst X = 1\n"}
    sums = bench.registry.add_module("example.com/evil", "v1.0.0", module)
    other = bench.registry.add_module("example.com/other", "v1.0.0", module | {"evil.go": "package evil\n"})
    use = 'package p\n\nimport (\n\t"testing"\n\n\t"example.com/evil"\n)\n\nfunc TestX(t *testing.T) {\n'
    files = {
        "go.mod": "module p\n\ngo 1.17\n\nrequire example.com/evil v1.0.0\n",
        "go.sum": sums,
        "p_test.go": f"{use}\tif evil.X != 1 {{\n\t\tt.Fatal()\n\t}}\n}}\n",
    }
    wrong = files | {"go.sum": sums.splitlines()[0].split("h1:")[0] + other.split()[2] + "\n" + sums.splitlines()[1]}
    with pytest.raises(SandboxError) as raised:
        bench.run(wrong, "wrong")
    assert (raised.value.code, bench.trees) == (ErrorCode.POLICY_VIOLATION, [])
    assert "example.com%2Fevil@v1.0.0.zip" in raised.value.brief

    right = bench.run(files, "right")
    assert right.verified, right.runs[0].stderr_tail
    assert len(bench.trees) == 1

    escaping = make_module("example.com/evil", "v1.0.0", {**module, "../../../escaped": "x"})
    sums = bench.registry.add_module("example.com/evil", "v1.0.0", module, escaping)
    bad = bench.run(files | {"go.sum": sums}, "escaping")
    assert [run.verdict for run in bad.runs] == [Verdict.FAILED]
    assert len(bench.trees) == 1
    assert "escaped" in bench.lines[-1], "void: " + bench.lines[-1]

    asked = len(bench.registry.asked)
    line = "replace example.com/evil => /etc\n\ntoolchain go1.99.0\n"
    elsewhere = bench.run(files | {"go.mod": f"{files['go.mod']}\n{line}"}, "elsewhere")
    assert [run.verdict for run in elsewhere.runs] == [Verdict.FAILED]
    assert len(bench.registry.asked) == asked, "neither a toolchain nor the module was asked for"
