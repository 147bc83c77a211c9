"""What a newcomer is told about a repository, in 8 KB whatever the repository does."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.context.envelope import ENVELOPE_BYTES, README_BYTES, build_envelope
from sandbox.git.entries import GITLINK, REGULAR, SYMLINK, TreeEntry
from sandbox.git.objects import blob_id
from sandbox.models import Context
from sandbox.models.context import ContinuousIntegration


def described(
    files: dict[bytes, bytes], modes: dict[bytes, str] | None = None, ci: ContinuousIntegration | None = None
) -> Context:
    contents = {blob_id(c): c for c in files.values()}

    def read(oids: Sequence[str]) -> list[bytes]:
        return [contents[oid] for oid in oids]

    entries = [
        TreeEntry(p, m := (modes or {}).get(p, REGULAR), blob_id(c), None if m == GITLINK else len(c))
        for p, c in files.items()
    ]
    return build_envelope(entries, read, ci)


NAME_BYTES = st.sampled_from(
    [b"a", b"/", b"\xff", b"\x01", b'"', b"docs/", b"Makefile", b"README.md", b"\xf0\x9f\x98\x80"]
)
NAMES = st.lists(NAME_BYTES, min_size=1, max_size=60).map(b"".join)


@settings(max_examples=80)
@given(
    st.lists(NAMES, max_size=60),
    st.sampled_from([b"x", b"\x00", b"\xff", b'"\\', "\u00e9".encode()]),
    st.integers(0, 9000),
)
def test_the_envelope_never_exceeds_its_size(names: list[bytes], filler: bytes, length: int) -> None:
    files = {**dict.fromkeys(names, b""), b"README.md": filler * length}
    assert len(described(files).model_dump_json().encode()) <= ENVELOPE_BYTES


HOSTILE = {
    "long-entrypoints": {b"d%d/" % n + b"n" * 250 + b"/../Makefile"[3:]: b"" for n in range(60)},
    "long-entrypoints-shallow": {bytes([97 + n % 26, 97 + n // 26]) * 100 + b"/Makefile": b"" for n in range(60)},
    "control-entrypoints": {bytes([1 + n]) * 80 + b"/Makefile": b"" for n in range(30)},
    "many-files": {b"dir/file-%06d" % n: b"" for n in range(5_000)},
    "many-doc-folders": {
        bytes(c ^ 0x20 if n >> i & 1 else c for i, c in enumerate(b"documentation")) + b"/x": b"" for n in range(2000)
    },
    "control-readme": {b"README": b"\x01" * 5000},
    "readme-and-files": {b"README.md": b"x" * 5000, **{b"n" * 200 + b"%d" % n: b"" for n in range(300)}},
}


@pytest.mark.parametrize("files", HOSTILE.values(), ids=HOSTILE)
def test_a_repository_made_to_be_large_still_fits(files: dict[bytes, bytes]) -> None:
    context = described(files)
    assert len(context.model_dump_json().encode()) <= ENVELOPE_BYTES
    assert context.tree_total == len(files)
    assert context.tree_truncated is (len(context.tree) < len(files))


def test_the_readme_keeps_three_kilobytes_whatever_else_there_is() -> None:
    files = {b"d%03d/f%03d-" % (n % 90, n) + b"x" * 50: b"" for n in range(7000)}
    context = described({**files, b"README.md": b"r" * 4000})
    assert next(iter(context.model_dump())) == "readme"
    assert context.readme is not None
    assert context.readme.truncated
    assert len(context.readme.content) == README_BYTES


def test_too_many_files_at_the_top_are_shown_evenly_and_counted() -> None:
    context = described({b"%04d" % n: b"" for n in reversed(range(3000))})
    assert context.tree == tuple(f"{10 * n:04}" for n in range(300))
    assert (context.tree_total, context.tree_truncated, context.folders) == (3000, True, {})


def test_a_large_repository_shows_folders_with_counts_and_the_files_of_small_ones() -> None:
    files = {b"assets/%d/img%05d.png" % (n % 40, n): b"" for n in range(6000)}
    files |= {b"external/lib%d/src/f%03d.c" % (n % 9, n): b"" for n in range(900)}
    files |= {b"zsrc/core/c%02d.cpp" % n: b"" for n in range(60)} | {b"zsrc/ui/u%d.cpp" % n: b"" for n in range(5)}
    files |= {b"CMakeLists.txt": b"", b"main.cpp": b"", b"zsrc/run.cpp": b""}
    context = described(files)
    assert context.tree_truncated
    assert {
        "assets": 6000,
        "external": 900,
        "zsrc": 66,
        "zsrc/core": 60,
        "zsrc/ui": 5,
    }.items() <= context.folders.items()
    assert sum(count for path, count in context.folders.items() if "/" not in path) == len(files) - 2
    assert {"CMakeLists.txt", "main.cpp", *(f"zsrc/ui/u{n}.cpp" for n in range(5))} <= set(context.tree)
    assert not [path for path in context.tree if path.startswith("assets/")]
    assert len(context.model_dump_json().encode()) <= ENVELOPE_BYTES


def test_of_too_many_folders_the_largest_are_shown() -> None:
    files = {b"d%04d-" % n + b"x" * 20 + b"/%d" % m: b"" for n in range(1500) for m in range(20)}
    files |= {b"zz/%04d" % n: b"" for n in range(100)}
    context = described(files)
    assert context.folders["zz"] == 100
    assert 20 < len(context.folders) < 1500


def test_build_files_and_workflows_are_entry_points_and_ci_is_shown_as_data() -> None:
    names = [b".github/workflows/test.yml", b"CMakeLists.txt", b"vendor/Makefile", b".gitlab-ci.yml", b"x.csproj"]
    ci = ContinuousIntegration(
        runs=("make -j", "x" * 5000, *(f"run {n:09}" for n in range(500))), packages=("libx-dev",)
    )
    context = described(dict.fromkeys(names, b""), ci=ci)
    assert {(e.path, e.kind) for e in context.entrypoints} == {
        (".github/workflows/test.yml", "ci"),
        (".gitlab-ci.yml", "ci"),
        ("CMakeLists.txt", "cmake"),
        ("x.csproj", "dotnet"),
    }
    assert context.ci is not None
    assert context.ci.runs[:2] == ("make -j", "run 000000000")
    assert len(context.ci.runs) < 100
    assert context.ci.packages == ("libx-dev",)


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        ([b"README.md", b"README.rst"], "README.md"),
        ([b"readme.adoc", b"README.txt"], "readme.adoc"),
        ([b"ReadMe.RST", b"README"], "ReadMe.RST"),
        ([b"README"], "README"),
        ([b"docs/README.md"], None),
        ([b"README.html"], None),
        ([], None),
    ],
)
def test_the_first_readme_is_shown(names: list[bytes], chosen: str | None) -> None:
    context = described(dict.fromkeys(names, b"hello"))
    assert (context.readme.path if context.readme else None) == chosen
    if chosen:
        assert context.readme is not None
        assert (context.readme.content, context.readme.truncated) == ("hello", False)


@pytest.mark.parametrize("mode", [SYMLINK, GITLINK])
def test_a_readme_that_is_no_file_is_not_followed(mode: str) -> None:
    assert described({b"README.md": b"/etc/passwd"}, {b"README.md": mode}).readme is None


def test_a_long_readme_is_cut_between_characters() -> None:
    context = described({b"README.md": "\u00e9".encode() * 4000})
    assert context.readme is not None
    assert context.readme.truncated
    assert set(context.readme.content) == {"\u00e9"}


def test_entrypoints_are_found_near_the_top_only() -> None:
    names = [b"Makefile", b"sub/Cargo.toml", b"a/b/Makefile", b"AGENTS.md", b"go.mod", b"Dockerfile", b"makefile.txt"]
    context = described(dict.fromkeys(names, b""))
    assert [(e.path, e.kind) for e in context.entrypoints] == [
        ("AGENTS.md", "agents"),
        ("Dockerfile", "docker"),
        ("Makefile", "make"),
        ("go.mod", "go"),
        ("sub/Cargo.toml", "rust"),
    ]


@pytest.mark.parametrize(
    ("names", "facts"),
    [
        ([], (False, False, False, 0, 0, True)),
        ([b"README.md"], (True, False, False, 1, 0, True)),
        ([b"README.md", b"LICENSE"], (True, False, False, 1, 0, True)),
        ([b"README.md", b"a.md", b"b.rst"], (True, False, False, 3, 0, False)),
        ([b"main.c"], (False, False, True, 0, 1, False)),
        ([b"docs/x.md", b"src/x.PY"], (False, True, True, 1, 1, False)),
    ],
)
def test_signals_are_cheap_facts(names: list[bytes], facts: tuple[bool, bool, bool, int, int, bool]) -> None:
    s = described(dict.fromkeys(names, b"")).signals
    found = (s.has_readme, s.has_docs_dir, s.has_code, s.doc_file_count, s.code_file_count, s.sparse)
    assert found == facts


def test_documentation_is_hinted_at() -> None:
    names = [b"docs/a", b"Documentation/b", b"src/c.md", b"CHANGES.rst", b"README.md"]
    assert described(dict.fromkeys(names, b"")).doc_hints == ("Documentation/**", "docs/**", "*.md", "*.rst")


def test_the_folders_of_deep_paths_are_not_all_listed() -> None:
    """A few tree objects, each of which is in many folders, make 300,000 paths of 64 folders: 19 million folders."""
    below = b"/".join([b"a"] * 62)
    entries = [TreeEntry(b"d%d/%b/f" % (number, below), REGULAR, "0" * 40, 1) for number in range(5_000)]
    tracemalloc.start()
    context = build_envelope(entries, lambda _: [])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert context.tree
    assert peak < 20 * 1024**2  # 150 MB
