from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from devtools.host_speed import slowness
from sandbox.dependencies import perl_steps as steps
from sandbox.dependencies.layer_plan import LayerPlan
from sandbox.dependencies.perl_description import needs_description
from sandbox.models.dependencies import RefusalReason
from tests.unit.dependencies.manifest_trees import reader

NAMES = {
    "cpanfile": "cpanfile",
    "lock": "cpanfile.snapshot",
    "meta": "META.json",
    "yml": "META.yml",
    "dist": "dist.ini",
}
NAMES |= {"make": "Makefile.PL", "build": "Build.PL", "described": "MYMETA.requires"}


def plan(*needs: str, **files: str) -> LayerPlan | None:
    """The plan of a tree of files at the root, by their short names."""
    return steps.plan_layer(reader({NAMES[name]: text for name, text in files.items()}), needs)


def wanted(**files: str) -> tuple[str, ...]:
    found = plan(**files)
    return found.wanted if found else ()


def refused(**files: str) -> list[RefusalReason]:
    found = plan(**{"cpanfile": "", "yml": "requires:\n  Control: 0\n", **files})
    assert found is not None
    assert "Control" in found.wanted
    return [entry.reason for entry in found.refused]


CPANFILE = """
use strict;
requires 'A', '>= 2.0, < 3';  # a comment; requires 'Not::This';
requires "B::C" => 0.3;
requires D => 1;
requires('E');
requires perl => '5.010';
test_requires 'F';
on 'test' => sub {
    requires 'G', 'v1.2.3';
    recommends 'Not::This';
};
on configure => sub { requires 'H' };
on develop => sub { requires 'Not::This' };
feature 'x', 'y' => sub { requires 'Not::This' };
author_requires 'Not::This';

=head1 Pod

requires 'Not::This';

=cut

requires q(I);
__END__
requires 'Not::This';
"""


def test_a_cpanfile_is_read_without_features_and_what_is_for_authors() -> None:
    found = plan(cpanfile=CPANFILE)
    assert found is not None
    assert found.wanted == ("A >= 2.0, < 3", "B::C >= 0.3", "D >= 1", "E", "F", "G >= v1.2.3", "H", "I")
    assert found.refused == ()


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("requires '--option';", RefusalReason.NAME),
        ("requires 'A/../B';", RefusalReason.NAME),
        ("requires 'A;id';", RefusalReason.NAME),
        ("requires 'https://elsewhere.invalid/A-1.tar.gz';", RefusalReason.NAME),
        ("requires 'A', '../x';", RefusalReason.VERSION),
        ("requires 'A', '1.0 --option';", RefusalReason.VERSION),
        ("requires 'A', git => 'git://elsewhere.invalid/a';", RefusalReason.VERSION_CONTROL),
        ("requires 'A', '1', url => 'http://elsewhere.invalid/A-1.tar.gz';", RefusalReason.URL),
        ("requires 'A', dist => 'X/XX/XXXX/A-1.tar.gz';", RefusalReason.URL),
        ("requires 'A', mirror => 'http://elsewhere.invalid/';", RefusalReason.OPTION),
        ("requires $computed;", RefusalReason.SYNTAX),
        ('requires "A$x";', RefusalReason.SYNTAX),
        ("requires(qw(A));", RefusalReason.SYNTAX),
        ("if ($^O eq 'MSWin32') { requires 'A' }", RefusalReason.SYNTAX),
        ("system 'id';", RefusalReason.SYNTAX),
        ("requires 'A' if $] < 5.010;", RefusalReason.SYNTAX),
        ("requires 'A', '1.0' if 1;", RefusalReason.SYNTAX),
        ("requires 'A' unless $ENV{X};", RefusalReason.SYNTAX),
        ("requires 'A' => '1.0' for 1 .. 2;", RefusalReason.SYNTAX),
        ("if ($] < 5.008) { requires 'A' }", RefusalReason.SYNTAX),
        ("requires 'A', $] < 5.01 ? '1' : '2';", RefusalReason.SYNTAX),
        ("requires 'A', foo('1');", RefusalReason.SYNTAX),
        ("print qq{requires 'A';};", RefusalReason.SYNTAX),
        ("print <<'END';\nrequires 'A';\nEND\n", RefusalReason.SYNTAX),
        ("print 1 if /it's/; requires $x, 'it';", RefusalReason.SYNTAX),
        (")", RefusalReason.SYNTAX),
    ],
)
def test_what_is_more_than_a_name_and_versions_is_refused(line: str, reason: RefusalReason) -> None:
    """Control: `refused` also asserts that a plain requirement of the same tree is read."""
    assert reason in refused(cpanfile=line)
    assert not any(text.startswith("A") for text in wanted(cpanfile=line))


def test_both_versions_of_meta_are_read_without_what_is_for_authors() -> None:
    phases = {
        phase: {"requires": {f"M::{phase}": "1"}} for phase in ("configure", "build", "runtime", "test", "develop")
    }
    meta = {"prereqs": phases | {"x": []}, "requires": {"Old": 0, "--bad": 0}}
    found = plan(meta=json.dumps(meta))
    assert found is not None
    assert found.wanted == ("M::build >= 1", "M::configure >= 1", "M::runtime >= 1", "M::test >= 1", "Old")
    assert [entry.reason for entry in found.refused] == [RefusalReason.NAME]
    yml = "requires:\n  A::B: 1.2\n  'C': '>= 2'\nbuild_requires:\n  D: 0\nrecommends:\n  E: 0\n"
    assert wanted(yml=yml) == ("A::B >= 1.2", "C >= 2", "D")
    assert wanted(meta="[]", yml=yml) == ()


@pytest.mark.parametrize(
    "yml",
    [
        "requires: {A: 1, B: 2}\n",
        '{"requires": {"A": 1}}\n',
        "requires: &x\n  - A\n",
        "requires:\n  ? A\n  : 1\n",
        "prereqs:\n  runtime:\n    requires:\n      A: 1\n",
    ],
)
def test_a_form_of_meta_yml_that_is_not_known_is_refused_and_the_build_is_asked(yml: str) -> None:
    """Control: with the usual form nobody is asked."""
    found = plan(yml=yml, make="WriteMakefile(PREREQ_PM => { 'Z' => '1' });")
    assert found is not None
    assert {entry.reason for entry in found.refused} == {RefusalReason.SYNTAX}
    assert needs_description(reader({"META.yml": yml, "Makefile.PL": "x"}))
    usual = "--- #YAML:1.0\nname: X\nauthor:\n  - A <a@b>\nrequires:\n  A: 1 # why\n  B: ~\nbuild_requires: {}\n...\n"
    assert not needs_description(reader({"META.yml": usual, "Makefile.PL": "x"}))
    assert wanted(yml=usual.replace("  B: ~\n", "")) == ("A >= 1",)


def test_dist_ini_is_read_by_its_sections() -> None:
    text = "name = X\n[Prereqs]\nA = 1 ; why\nperl = 5.010\n[Prereqs / TestRequires]\nB = 0\n"
    text += "[Prereqs / DevelopRequires]\nNo = 0\n[Prereqs / X]\n-phase = test\n-relationship = recommends\nNo = 0\n"
    text += "[Other]\nNo = 0\n[Prereqs / RuntimeRecommends]\nNo = 0\n[Prereqs/BuildRequires]\nC=2\n"
    assert wanted(dist=text) == ("A >= 1", "B", "C >= 2")


def test_literal_lists_of_build_scripts_are_read_where_no_other_file_says_it() -> None:
    make = (
        "WriteMakefile(PREREQ_PM => { 'A' => '1', B => 0, }, 'TEST_REQUIRES', {'C' => 0}, TEST_REQUIRES => { D => 2 });"
    )
    build = "Module::Build->new(requires => { 'E' => 0, 'F' => $x, 'G' => 0 }, build_requires => {})->create;"
    found = plan(make=make, build=build)
    assert found is not None
    assert found.wanted == ("A >= 1", "B", "D >= 2", "E")
    assert [entry.reason for entry in found.refused] == [RefusalReason.SYNTAX]
    assert wanted(make="use inc::Module::Install;\nrequires 'A' => '1';\ntest_requires 'B';\n") == ("A >= 1", "B")
    assert wanted(make=make, cpanfile="requires 'Z';") == ("Z",)


MORE_OF_PERL = r"""
print qq{requires 'No';}; print q[;requires 'No'];
my %h = (s => 1, y => 2); s{PREREQ_PM => { No => 1 }}{'}g; $x =~ m'requires "No"'; tr/a'/b/;
my @words = qw(PREREQ_PM => { 'No' 1 });
print <<"END", <<~'MORE';
requires 'No';
END
    PREREQ_PM => { No => 1 },
    MORE
if ($] < 5.010) { requires 'No' }
requires 'No' if $^O eq 'MSWin32';
$x and requires 'No';
die "it\'s \"requires 'No'\"" unless -s 'x' / 2;
"""


def test_what_a_build_script_prints_or_depends_on_a_condition_is_not_taken() -> None:
    """Control: a statement after it is read, and so the texts before it end where Perl ends them."""
    found = plan(make=f"{MORE_OF_PERL}requires 'A' => '1';\n")
    assert found is not None
    assert found.wanted == ("A >= 1",)
    assert {entry.reason for entry in found.refused} == {RefusalReason.SYNTAX}
    assert all(entry.text.startswith("requires No") for entry in found.refused)


def test_what_the_build_said_takes_the_place_of_literal_lists() -> None:
    make = "WriteMakefile(PREREQ_PM => { 'A' => '1' });"
    assert wanted(make=make, described="Requires: runtime Z 1\nRequires: develop No 0\nRequires: test -e 0\n") == (
        "Z >= 1",
    )


@pytest.mark.parametrize(
    ("files", "is_asked"),
    [
        ({"make": "x"}, True),
        ({"build": "x"}, True),
        ({"make": "x", "cpanfile": "requires 'A';"}, False),
        ({"make": "x", "meta": "{}"}, False),
        ({"make": "x", "yml": "name: x\n"}, False),
        ({"make": "x", "cpanfile": "requires 'A' if $x;"}, True),
        ({"make": "x", "meta": '{"prereqs": []}'}, False),
        ({"make": "x", "meta": '{"prereqs": ["A"]}'}, True),
        ({"dist": "name = x\n[AutoPrereqs]\n"}, True),
        ({"dist": "name = x\n[@Author::ME]\n"}, True),
        ({"dist": "name = x\n[@Basic]\n[Prereqs]\nA = 0\n"}, False),
    ],
)
def test_a_project_is_asked_where_no_file_says_what_it_needs(files: dict[str, str], *, is_asked: bool) -> None:
    assert needs_description(reader({NAMES[name]: text for name, text in files.items()})) is is_asked


def test_a_lock_file_gives_paths_of_a_mirror_only() -> None:
    entry = "  X-1\n    pathname: {}\n    provides:\n      {} 1.0\n      --bad 1\n    requirements:\n      Other 0\n"
    paths = ("E/EX/EXAMPLE/A-1.0.tar.gz", "../../../A-1.0.tar.gz", "/etc/A-1.0.tar.gz", "E/EX/EXAMPLE/../A-1.0.tar.gz")
    text = "DISTRIBUTIONS\n" + "".join(entry.format(path, f"M{number}") for number, path in enumerate(paths))
    found = plan(cpanfile="requires 'M0';", lock=text)
    assert found is not None
    assert json.loads(found.fetch_files["modules.json"]) == {
        "locked": {"M0": ["1.0", "E/EX/EXAMPLE/A-1.0.tar.gz"]},
        "requires": [["M0", "0"]],
    }
    assert [(one.name, one.version) for one in found.locked] == [("EXAMPLE/A", "1.0")]
    assert [entry.reason for entry in found.refused] == [RefusalReason.PATH] * 3


def test_a_distribution_that_the_lock_file_names_must_be_fetched() -> None:
    entry = "  X-1\n    pathname: {}\n    provides:\n      {} 1.0\n"
    lock = entry.format("E/EX/EXAMPLE/A-1.0.tar.gz", "A") + entry.format("E/EX/EXAMPLE/B-1.0.tar.gz", "Not::Asked")
    found = plan(cpanfile="requires 'A';\nrequires 'C';\n", lock=lock)
    assert found is not None
    right, other = (steps.describe_archive(f"EXAMPLE%2FA-{version}.tar.gz", "0" * 64) for version in ("1.0", "2.0"))
    assert steps.STEPS.find_mismatches(Path(), (right,), found) == ()
    assert steps.STEPS.find_mismatches(Path(), (other,), found) == (right.file,)


def test_needs_of_a_profile_are_added_and_must_be_plain() -> None:
    found = plan("Test::Foo >= 2", cpanfile="requires 'A';")
    assert found is not None
    assert found.wanted == ("A", "Test::Foo >= 2")
    with pytest.raises(ValueError, match="refused"):
        plan("--option", cpanfile="requires 'A';")
    assert plan(cpanfile="") is None


def test_an_archive_is_described_by_its_name() -> None:
    found = steps.describe_archive("HAARG%2FMoo-2.005005.tar.gz", "0" * 64)
    assert (found.name, found.version) == ("HAARG/Moo", "2.005005")
    found = steps.describe_archive("ADAMK%2Fold%2FFile-Which-v1.27-TRIAL.tgz", "0" * 64)
    assert (found.name, found.version) == ("ADAMK/File-Which", "v1.27-TRIAL")
    for name in (
        "Moo-2.tar.gz",
        "HAARG%2F..%2FMoo-2.tar.gz",
        "HAARG%2F-x.tar.gz",
        "HAARG%2FMoo-2.zip",
        "a%2FMoo-2.tgz",
    ):
        with pytest.raises(ValueError, match="is not the name"):
            steps.describe_archive(name, "0" * 64)


MARKS = "\n \\'\"/#$@%&=<>~{}()[]|.,:;!-^1aqsvAE_"
PAIRS = [first + second for first in MARKS for second in MARKS if first != second]
HEAPS = ("=a\n", "=cut\n", "requires ", "requires {", "requires 'A', ", "on x => sub {", "PREREQ_PM => {", "<<'a'\n")
MORE_HEAPS = ("requires => {'A' => 1, ", "  A: 1\n", "[Prereqs]\nA = 1\n", "  A-1\n    pathname: x\n      A 1\n", "q<")
STARTS = {
    "cpanfile": ("", "requires 'A', "),
    "make": ("", "PREREQ_PM => {"),
    "build": ("",),
    "yml": ("", "requires:\n", "requires:\n a: x"),
    "dist": ("", "[Prereqs]\n", "[a/"),
    "meta": ("",),
    "described": ("", "Requires: runtime "),
    "lock": ("", "D\n  A-1\n    pathname: "),
}


@contextmanager
def alarm(seconds: float) -> Iterator[None]:
    """A reader that does not end fails, instead of stopping all tests. Regular expressions look at signals, too."""

    def fail(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, fail)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def measure(name: str, text: str) -> float:
    with alarm(60):
        started = time.process_time()
        plan(**{name: text})
        return time.process_time() - started


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_perl_manifest_cannot_exhaust_its_reader(name: str) -> None:
    """Whatever is repeated in it, and what is before and after that. At most 0.1 s are usual here."""
    is_program = name in {"cpanfile", "make", "build"}
    chars = 8_000 if is_program else 64_000
    for start in STARTS[name]:
        heaps = [(unit, chars) for unit in MARKS]
        if not start:
            heaps += [(unit, 30_000) for unit in (*HEAPS, *MORE_HEAPS)]
            heaps += [(unit, 600) for unit in PAIRS if name not in {"make", "build"}]  # their words are a cpanfile's
        for unit, length in heaps:
            text = start + unit * (length // len(unit)) + "y"
            spent = measure(name, text)
            assert spent < 0.8 or measure(name, text) < 0.8 * slowness(), (start, unit)


WORDS = ("requires", "on", "if", "qw", "q", "sub", "'A'", "1.0", "$x", "$]", "<<E", "E\n", "=>", *MARKS)


@settings(max_examples=60, deadline=None)
@given(text=st.lists(st.sampled_from(WORDS), max_size=40).map(" ".join))
@example(text="requires 'A' if $] < 5.010;")
@example(text="if ($] < 5.008) { requires 'A' }")
@example(text="requires 'A', $] < 5.01 ? '1' : '2';")
@example(text=") requires 'A';")
@example(text="] }")
def test_each_reader_of_a_perl_program_ends(text: str) -> None:
    for name in ("cpanfile", "make"):
        measure(name, text)
