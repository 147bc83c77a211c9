"""Layers of Perl: real distributions, as their authors published them, from a mirror of CPAN of our own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from devtools.cpanmirror import CpanMirror, make_distribution, serve_cpan
from devtools.egresspeers import Certificates
from devtools.published import Archive, FetchError, fetch
from sandbox.engine.connection import DockerEngine
from sandbox.models.layers import LayerDetails
from tests.attack.layer_bench import LayerBench, open_bench

Bench = LayerBench[CpanMirror]
CACHE = Path(__file__).parents[2] / ".tool_cache" / "published"
POOL = "pool/main/libt/libtext-aligner-perl/libtext-aligner-perl_0.16.orig.tar.gz"
XS_POOL = "pool/main/libs/libstring-crc32-perl/libstring-crc32-perl_2.100.orig.tar.gz"
ARCHIVES = {
    "S/SH/SHLOMIF/Text-Aligner-0.16.tar.gz": (
        Archive(
            name="Text-Aligner",
            version="0.16",
            source="debian",
            file=POOL,
            sha256="5c857dbce586f57fa3d7c4ebd320023ab3b2963b2049428ae01bd3bc4f215725",
        ),
        {"Text::Aligner": "0.16"},
    ),
    "L/LE/LEEJO/String-CRC32-2.100.tar.gz": (  # its code is C
        Archive(
            name="String-CRC32",
            version="2.100",
            source="debian",
            file=XS_POOL,
            sha256="9706093b2d068b6715d35b4c58f51558e37960083202129fbb00a57e19a74713",
        ),
        {"String::CRC32": "2.100"},
    ),
}
"""By the paths that they have on CPAN: the archives, and the modules that the index names."""

# What it needs is computed, so no file says it as data.
COMPUTED = """
use ExtUtils::MakeMaker;
my %needs = map { $_ => 0 } 'Text::Aligner', 'Try::Tiny';
WriteMakefile(NAME => 'Calc', VERSION_FROM => 'lib/Calc.pm', PREREQ_PM => {%needs, 'Moo' => '2.0'},
              TEST_REQUIRES => { 'String::' . 'CRC32' => '2' });
"""
TEST = """
use Test::More;
use Calc; use String::CRC32; use Text::Aligner 'align';
is(crc32('123456789'), 0xcbf43926);
like($INC{'String/CRC32.pm'}, qr{^/sandbox-layers/perl/}); like($INC{'Moo.pm'} // 'Moo.pm', qr{^(?!/sandbox)});
is_deeply([align('right', 'a', 'bcd')], ['  a', 'bcd']);
done_testing;
"""
PROJECT = {
    "Makefile.PL": COMPUTED,
    "lib/Calc.pm": "package Calc;\nour $VERSION = '1.0';\nuse Moo;\n1;\n",
    "t/a.t": TEST,
}


@pytest.fixture
def bench(tmp_path: Path, engine: DockerEngine) -> Iterator[Bench]:
    del engine
    with serve_cpan() as mirror, open_bench(tmp_path, mirror, {"perl": [mirror.url]}, {}) as made:
        yield made


@pytest.fixture
def published(bench: Bench) -> Bench:
    add_published(bench.registry)
    return bench


def add_published(mirror: CpanMirror) -> None:
    for path, (archive, modules) in ARCHIVES.items():
        try:
            content = fetch(archive, CACHE, os.environ).read_bytes()
        except FetchError as error:
            pytest.skip(str(error))  # a mirror drops archives of older releases: that says nothing about us
        mirror.add(path, content, modules)


def details(bench: Bench) -> LayerDetails:
    """The layer that was built last."""
    with bench.open() as workbench:
        newest = max(workbench.layers(), key=lambda layer: layer.built_at)
        return workbench.layer(newest.key)


def test_published_distributions_are_fetched_built_and_used(published: Bench) -> None:
    """One in Perl with a Build.PL, one in C. Only what the image lacks is asked for."""
    found = published.run(PROJECT)
    assert found.verified, (published.lines, published.remarks, [run.stderr_tail for run in found.runs])
    shown = details(published)
    assert [(package.name, package.version) for package in shown.layer.packages] == [
        ("LEEJO/String-CRC32", "2.100"),
        ("SHLOMIF/Text-Aligner", "0.16"),
    ]
    assert shown.layer.left_out == ()
    selection = shown.resolutions[0].selection
    assert "the newest of the index, which knows no dates" in selection
    assert "of the image: " in selection
    with published.open() as workbench:
        assert '"purl": "pkg:cpan/LEEJO/String-CRC32@2.100"' in workbench.layer_sbom(shown.layer.key)


def test_a_mirror_with_tls_is_asked_through_the_proxy(tmp_path: Path, engine: DockerEngine) -> None:
    """Control: with another CA its certificate is not trusted, and nothing is used."""
    del engine
    certificates = Certificates()
    ca_file, other = tmp_path / "ca.pem", tmp_path / "other.pem"
    ca_file.write_bytes(certificates.ca_pem())
    other.write_bytes(Certificates().ca_pem())
    files = {
        "cpanfile": "requires 'Widget', '>= 1.0, < 2';\n",
        "t/a.t": "use Test::More tests => 1; use_ok 'Widget';\n",
    }
    with serve_cpan(certificates.server("localhost")) as mirror:
        mirror.add("E/EX/EXAMPLE/Widget-1.0.tar.gz", make_distribution("Widget", "1.0", {}), {"Widget": "1.0"})
        for path, works in ((ca_file, True), (other, False)):
            urls = {"perl": [mirror.url], "ca_file": str(path)}
            with open_bench(tmp_path / path.stem, mirror, urls, {}) as bench:
                found = bench.run(files)
                assert (found.verified, len(bench.trees)) == (works, int(works)), (bench.remarks, bench.lines)
                assert works or any("certificate verify failed" in line for line in bench.remarks), bench.remarks


def test_no_mirror_is_asked_for_what_the_image_has(bench: Bench) -> None:
    files = {
        "cpanfile": "requires 'Moo', '2.0';\nrequires 'Try::Tiny';\n",
        "t/a.t": "use Test::More; use Moo; pass;\ndone_testing;\n",
    }
    found = bench.run(files)
    assert found.verified, found.runs
    assert (bench.registry.asked, details(bench).layer.packages) == ([], ())


def test_the_lock_file_of_carton_decides_also_for_what_the_image_has(bench: Bench) -> None:
    """An old release, which CHECKSUMS does not list any more. Control: without the file the newest is used."""
    mirror = bench.registry
    mirror.add("E/EX/EXAMPLE/Widget-2.0.tar.gz", make_distribution("Widget", "2.0", {}), {"Widget": "2.0"})
    for name, version in (("Widget", "1.0"), ("Try-Tiny", "0.01")):
        content = make_distribution(name, version, {})
        mirror.files[f"/authors/id/E/EX/EXAMPLE/{name}-{version}.tar.gz"] = content
    entry = "  {0}-{2}\n    pathname: E/EX/EXAMPLE/{0}-{2}.tar.gz\n    provides:\n      {1} {2}\n    requirements:\n"
    locked = entry.format("Widget", "Widget", "1.0") + entry.format("Try-Tiny", "Try::Tiny", "0.01")
    test = "use Test::More; use Widget; use Try::Tiny;\n"
    test += "is(\"$Widget::VERSION $Try::Tiny::VERSION\", '{}');\ndone_testing;\n"
    files = {"cpanfile": "requires 'Widget';\nrequires 'Try::Tiny';\n"}
    found = bench.run(
        files
        | {
            "cpanfile.snapshot": f"# carton snapshot format: version 1.0\nDISTRIBUTIONS\n{locked}",
            "t/a.t": test.format("1.0 0.01"),
        },
        "locked",
    )
    assert found.verified, (bench.lines, bench.remarks, found.runs[-1].stdout_tail, found.runs[-1].stderr_tail)
    assert "2 not verified, being not in CHECKSUMS: " in details(bench).resolutions[0].selection
    found = bench.run(files | {"t/a.t": test.format("2.0 0.31")}, "newest")
    assert found.verified, (bench.lines, bench.remarks, found.runs[-1].stdout_tail)


def test_a_damaged_index_is_said_and_not_taken_for_a_short_one(bench: Bench) -> None:
    """Control: whole, it is used."""
    mirror = bench.registry
    mirror.add("E/EX/EXAMPLE/Widget-1.0.tar.gz", make_distribution("Widget", "1.0", {}), {"Widget": "1.0"})
    place = "/modules/02packages.details.txt.gz"
    files = {"cpanfile": "requires 'Widget';\n", "t/a.t": "use Test::More; use_ok 'Widget';\ndone_testing;\n"}
    whole = mirror.files[place]
    mirror.files[place] = whole[: len(whole) // 2]
    assert not bench.run(files, "cut").verified
    assert any("The index is damaged" in line for line in bench.remarks), bench.remarks
    mirror.files[place] = whole
    assert bench.run(files, "whole").verified


def test_a_project_of_dist_zilla_gets_what_its_files_use(bench: Bench) -> None:
    mirror = bench.registry
    for name in ("Widget", "Gadget"):
        mirror.add(f"E/EX/EXAMPLE/{name}-1.0.tar.gz", make_distribution(name, "1.0", {}), {name: "1.0"})
    files = {
        "dist.ini": "name = Calc\n[@Basic]\n[AutoPrereqs]\n",
        "lib/Calc.pm": "package Calc;\nuse Widget;\n1;\n",
        "t/a.t": "use Test::More;\nuse Calc;\nuse Gadget ();\npass;\ndone_testing;\n",
    }
    found = bench.run(files)
    assert found.verified, (bench.lines, bench.remarks)
    assert [package.name for package in details(bench).layer.packages] == ["EXAMPLE/Gadget", "EXAMPLE/Widget"]


def test_a_distribution_that_cannot_be_built_is_left_out_and_named(bench: Bench) -> None:
    """Those that need each other are built in their order, also where only Makefile.PL knows it."""
    mirror = bench.registry
    broken = {"Makefile.PL": "die 'no compiler of mine';\n"}
    early = {"Makefile.PL": "use Zebra; use ExtUtils::MakeMaker; WriteMakefile(NAME => 'Early', VERSION => '1.0');\n"}
    for name, files in (("Broken", broken), ("Early", early), ("Zebra", {})):
        mirror.add(f"E/EX/EXAMPLE/{name}-1.0.tar.gz", make_distribution(name, "1.0", files), {name: "1.0"})
    found = bench.run(
        {
            "cpanfile": "requires $_ for qw(A B);\nrequires 'Broken';\nrequires 'Early';\nrequires 'Zebra';\n",
            "t/a.t": "use Test::More; use_ok 'Early'; use_ok 'Zebra';\ndone_testing;\n",
        }
    )
    assert found.verified, (bench.lines, bench.remarks)
    layer = details(bench).layer
    assert ([package.name for package in layer.packages], layer.left_out) == (
        ["EXAMPLE/Early", "EXAMPLE/Zebra"],
        ("EXAMPLE%2FBroken-1.0.tar.gz",),
    )
