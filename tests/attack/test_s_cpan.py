"""THREATS S152 to S154: hostile distributions and mirrors of CPAN. Real guests, a mirror of our own."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from devtools.coderegistries import make_tar
from devtools.cpanmirror import CpanMirror, make_distribution, serve_cpan
from sandbox.engine.connection import DockerEngine
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models.layers import LayerDetails
from tests.attack.layer_bench import LayerBench, open_bench

pytestmark = [pytest.mark.must, pytest.mark.one_git]

Bench = LayerBench[CpanMirror]
PROFILE = """
label = "layers"
image = "perl"
priority = 99
[[detect.any]]
file = "cpanfile"
[[layer]]
ecosystem = "perl"
[[check]]
id = "use"
label = "Use the modules"
argv = ["prove", "t"]
limits = { memory_bytes = 1073741824, cpus = 2.0, pids = 256 }
"""
WIDGET = "E/EX/EXAMPLE/Widget-1.0.tar.gz"
USES = "use Test::More;\nuse_ok('Widget');\ndone_testing;\n"
PROJECT = {"cpanfile": "requires 'Widget';\n", "t/a.t": USES}


@pytest.fixture
def bench(tmp_path: Path, engine: DockerEngine) -> Iterator[Bench]:
    with serve_cpan() as mirror, open_bench(tmp_path, mirror, {"perl": [mirror.url]}, {"perl-layers": PROFILE}) as made:
        yield made


def details(bench: Bench) -> LayerDetails:
    """The only layer."""
    with bench.open() as workbench:
        (found,) = workbench.layers()
        return workbench.layer(found.key)


ELSEWHERE = (
    "../../modules/02packages.details.txt.gz",
    "/etc/passwd",
    "https://elsewhere.invalid/Widget-1.0.tar.gz",
    "E/EX/EXAMPLE/../OTHER/Widget-1.0.tar.gz",
    "X/XX/EXAMPLE/Widget-1.0.tar.gz",
    "E/EX/EXAMPLE/--checkpoint-action=exec=id.tar.gz",
)


def test_s152_a_line_of_the_index_that_leads_elsewhere_is_not_followed(bench: Bench) -> None:
    """Control: the module beside them, whose line is plain, is fetched and used."""
    bench.registry.add("E/EX/EXAMPLE/Gadget-1.0.tar.gz", make_distribution("Gadget", "1.0", {}), {"Gadget": "1.0"})
    for number, path in enumerate(ELSEWHERE):
        bench.registry.add_line(f"Widget{number}", "1.0", path)
    asked = "".join(f"requires 'Widget{number}';\n" for number in range(len(ELSEWHERE)))
    files = {"cpanfile": f"{asked}requires 'Gadget';\n", "t/a.t": USES.replace("Widget", "Gadget")}
    found = bench.run(files)
    assert found.verified, (found.runs[0].stderr_tail, bench.lines)
    shown = details(bench)
    assert [package.name for package in shown.layer.packages] == ["EXAMPLE/Gadget"]
    for number in range(len(ELSEWHERE)):
        assert f"Widget{number} has no usable path in the index" in shown.resolutions[0].selection
    assert set(bench.registry.asked) == {
        "/modules/02packages.details.txt.gz",
        "/authors/id/E/EX/EXAMPLE/CHECKSUMS",
        "/authors/id/E/EX/EXAMPLE/Gadget-1.0.tar.gz",
    }


def test_s152_an_archive_is_used_only_with_the_sha256_of_checksums_which_is_never_run(bench: Bench) -> None:
    """A mismatch; CHECKSUMS with code in it and no plain entry; and with code beside a plain one.

    Controls: `perl CHECKSUMS` runs the code; the archive with the right hash is used.
    """
    mirror, place = bench.registry, "/authors/id/E/EX/EXAMPLE/CHECKSUMS"
    mirror.add(WIDGET, make_distribution("Widget", "1.0", {}), {"Widget": "1.0"})
    right = mirror.files[place]
    mirror.files[place] = right.replace(b"'sha256' => '", b"'sha256' => '0")[:-1]
    bench.run(PROJECT, "none")
    assert bench.trees == []
    assert any("has no sha256 in the CHECKSUMS" in line for line in bench.remarks), bench.remarks

    digest = right.split(b"'sha256' => '")[1][:64]
    mirror.files[place] = right.replace(digest, b"0" * 64)
    with pytest.raises(SandboxError, match="another hash than the registry says") as raised:
        bench.run(PROJECT, "mismatch")
    assert (raised.value.code, bench.trees) == (ErrorCode.POLICY_VIOLATION, [])
    assert "has another sha256 than CHECKSUMS says" in raised.value.details

    code = b"BEGIN { mkdir 'archives'; open my $f, '>', 'archives/EXAMPLE%2FEvil-1.0.tar.gz'; print $f 'x' }\n"
    mirror.files[place] = code + right
    (bench.root / "CHECKSUMS").write_bytes(mirror.files[place])
    subprocess.run(["perl", "CHECKSUMS"], cwd=bench.root, check=True)
    assert (bench.root / "archives/EXAMPLE%2FEvil-1.0.tar.gz").exists(), "void: the code does not work"
    found = bench.run(PROJECT, "code")
    assert found.verified, (found.runs[0].stderr_tail, bench.lines)
    layer = details(bench).layer
    assert ([package.name for package in layer.packages], layer.left_out) == (["EXAMPLE/Widget"], ())


def list_usual_files(name: str) -> dict[str, str]:
    """Those of a distribution that can be installed."""
    script = f"use ExtUtils::MakeMaker;\nWriteMakefile(NAME => '{name}', VERSION => '1.0');\n"
    return {f"{name}-1.0/Makefile.PL": script, f"{name}-1.0/lib/{name}.pm": f"package {name};\n1;\n"}


def test_s153_names_in_meta_are_no_options_and_archives_write_only_their_own_folder(bench: Bench) -> None:
    """META.json that asks for options and paths; archives with a link and with `..`.

    Control: the plain module that the same META.json asks for is fetched; both bad archives were fetched, too.
    """
    names = {"--mirror": "0", "../x": "0", "-e": "0", "A;id": "0", "Gadget": "0", "Linked": "0", "Outside": "0"}
    mirror = bench.registry
    mirror.add(WIDGET, make_distribution("Widget", "1.0", {}, names), {"Widget": "1.0"})
    mirror.add("E/EX/EXAMPLE/Gadget-1.0.tar.gz", make_distribution("Gadget", "1.0", {}), {"Gadget": "1.0"})
    linked = make_tar(list_usual_files("Linked"), {"Linked-1.0/up": "../../.."})
    mirror.add("E/EX/EXAMPLE/Linked-1.0.tar.gz", linked, {"Linked": "1.0"})
    outside = list_usual_files("Outside") | {"../../root/sandbox-layers/perl/lib/perl5/Escaped.pm": "1;\n"}
    mirror.add("E/EX/EXAMPLE/Outside-1.0.tar.gz", make_tar(outside), {"Outside": "1.0"})
    found = bench.run(PROJECT)
    assert found.verified, (found.runs[0].stderr_tail, bench.lines)
    shown = details(bench)
    layer = shown.layer
    assert [package.name for package in layer.packages] == ["EXAMPLE/Gadget", "EXAMPLE/Widget"]
    assert not any(name in shown.resolutions[0].selection for name in names if not name.isalpha())
    assert layer.left_out == ("EXAMPLE%2FLinked-1.0.tar.gz", "EXAMPLE%2FOutside-1.0.tar.gz")
    (tree,) = bench.trees
    assert {path.name for path in tree.rglob("*") if path.is_file()} == {"Gadget.pm", "Widget.pm"}
    assert tree.stat().st_uid == os.geteuid()


def test_s154_a_makefile_pl_of_a_distribution_has_no_network_and_writes_only_the_layer(bench: Bench) -> None:
    """It tries the mirror, the proxy and its socket when it is built, and to change the layer when it is used.

    Controls: the mirror is reached from the host; Makefile.PL ran, and says what it reached.
    """
    port = urlsplit(bench.registry.url).port or 0
    script = f"""
use ExtUtils::MakeMaker; use IO::Socket::INET; use IO::Socket::UNIX; use Socket;
my @reached;
IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $_, Timeout => 3) and push @reached, $_ for ({port}, 3128);
IO::Socket::UNIX->new(Type => SOCK_STREAM, Peer => '/sandbox-egress') and push @reached, 'socket';
gethostbyname('elsewhere.invalid') and push @reached, 'name';
open my $out, '>>', 'lib/Widget.pm' or die;
print $out "sub reached {{ '(@reached)' }}\\n1;\\n"; close $out;
WriteMakefile(NAME => 'Widget', VERSION => '1.0');
"""
    mirror = bench.registry
    mirror.add(WIDGET, make_distribution("Widget", "1.0", {"Makefile.PL": script}), {"Widget": "1.0"})
    test = """
use Test::More; use Widget;
is(Widget::reached(), '()', 'nothing was reached');
ok(!open(my $file, '>>', $INC{'Widget.pm'}), 'the layer is read-only');
like($INC{'Widget.pm'}, qr{^/sandbox-layers/perl/}, 'and is where the module is from');
done_testing;
"""
    with socket.create_connection(("127.0.0.1", port)):
        pass  # void, if this fails
    found = bench.run(PROJECT | {"t/a.t": test})
    assert found.verified, (found.runs[0].stdout_tail, found.runs[0].stderr_tail, bench.lines)
    assert len(bench.trees) == 1
