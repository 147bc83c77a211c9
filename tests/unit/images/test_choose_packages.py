from __future__ import annotations

import hashlib
import io
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from email.parser import Parser
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).parents[3] / "images" / "python"


@pytest.fixture(name="programs")
def load_programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[tuple[ModuleType, ModuleType]]:
    """The programs of a fetch, as its guest imports them, in an empty folder."""
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.chdir(tmp_path)
    for name in ("stubs", "sources", "wheels"):
        (tmp_path / name).mkdir()
    yield import_module("choose_packages"), import_module("source_releases")
    for name in ("choose_packages", "source_releases"):
        sys.modules.pop(name)


def write_source(path: Path, files: dict[str, str]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(f"p-1/{name}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    return path


def test_what_has_no_solution_is_left_out_and_the_rest_is_chosen(programs: tuple[ModuleType, ModuleType]) -> None:
    choose, sources = programs
    for name, text in {"required": "own\n", "tests": "a\nbad>=1 ; x\nb\n", "development": "worse\n"}.items():
        Path(f"{name}.in").write_text(text)
    for name in ("build.in", "locked.txt"):
        Path(name).write_text("")

    class Solver(choose.Chooser):  # type: ignore[misc, name-defined]  # a program of an image has no types here
        def compile(self, lines: list[str], _options: list[str]) -> str:
            Path("resolved.txt").write_text("".join(f"{line}==1\n" for line in lines))
            if "bad>=1 ; x" in lines:
                return "Because bad was not found in the package registry and you require bad>=1, we can conclude ..."
            return "no solution" if "worse" in lines else ""

    index = sources.Index({"UV_DEFAULT_INDEX": "http://127.0.0.1:9"})
    index.pages = {name: sources.Page(name, "", []) for name in ("own", "a", "b")}
    assert Solver(index, "2026-01-01T00:00:00Z").choose() == "all but bad>=1, worse, as of 2026-01-01T00:00:00Z"
    assert [name for name, _ in choose.read_resolved()] == ["own", "a", "b"]
    assert (Path("absent.txt").read_text(), Path("unfit.txt").read_text()) == ("bad>=1\n", "worse\n")
    Path("required.in").write_text("worse\n")
    with pytest.raises(SystemExit, match="no solution"):
        Solver(index, "2026-01-01T00:00:00Z").choose()


@pytest.mark.parametrize(
    ("text", "error", "absent"),
    [
        (
            "p>=9",
            "  cause: Because p was not found in the package registry and you require p>=9, we can conclude",
            True,
        ),
        ("P[x]>=9", "Because there are no versions of p and you require\n      p>=9, we can conclude", True),
        ("p>=9", "Because only p<=3 is available and you require p>=9, we can conclude", True),
        ("p>=9", "Because only the following versions of p are available:\n  p==1\nand you require p>=9, we can", True),
        ("p>=9", "Because p-more was not found in the package registry and you require p-more, we can conclude", False),
        ("p>=9", "Because p==9 depends on q>2 and you require p>=9 and you require q<1, we can conclude", False),
    ],
    ids=["name", "version", "range", "list", "other name", "conflict"],
)
def test_what_the_registry_lacks_is_told_from_what_does_not_fit(
    programs: tuple[ModuleType, ModuleType], text: str, error: str, absent: bool
) -> None:
    choose, _ = programs
    assert choose.is_absent(text, error) is absent


def test_an_old_commit_gets_packages_that_can_know_the_interpreter(programs: tuple[ModuleType, ModuleType]) -> None:
    choose, _ = programs
    assert choose.choose_date("2021-05-16T22:03:42Z", (3, 11)) == "2022-12-06T00:00:00Z"
    assert choose.choose_date("2026-01-01T00:00:00Z", (3, 11)) == "2026-01-01T00:00:00Z"
    assert choose.choose_date("2021-05-16T22:03:42Z", (3, 99)) == "2021-05-16T22:03:42Z"
    recipes = Path(FOLDER, "../../policies/profiles/python.toml").read_text()
    for major, minor in choose.FIRST_FIXES:
        assert f'version = "{major}.{minor}.' in recipes


def test_the_date_that_is_chosen_is_the_one_that_versions_are_of(
    programs: tuple[ModuleType, ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    choose, _ = programs
    seen = []

    class Recorder(choose.Chooser):  # type: ignore[misc, name-defined]  # a program of an image has no types here
        def choose(self) -> str:
            seen.append(self.date)
            raise SystemExit("seen")

    for name in ("stubs", "sources", "wheels"):
        Path(name).rmdir()
    monkeypatch.setattr(choose, "Chooser", Recorder)
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9")
    monkeypatch.setitem(choose.FIRST_FIXES, sys.version_info[:2], "2022-12-06T00:00:00Z")
    assert choose.main("2020-06-22T00:00:00Z") == 65
    assert seen == ["2022-12-06T00:00:00Z"]


def test_a_newer_release_without_any_wheel_is_not_passed_over(programs: tuple[ModuleType, ModuleType]) -> None:
    choose, sources = programs
    rows = [
        {"filename": "p-1-py3-none-any.whl", "url": "a", "upload-time": "2025-01-01T00:00:00Z"},
        {"filename": "p-2.tar.gz", "url": "../b", "upload-time": "2025-02-01T00:00:00Z", "hashes": {"sha256": "c"}},
        {"filename": "p-3.tar.gz", "url": "d", "upload-time": "2027-01-01T00:00:00Z"},
        {"filename": "p-4.tar.gz", "url": "e", "upload-time": "2025-01-01T00:00:00Z", "yanked": "broken"},
        {"filename": "p-5.tar.gz", "url": "f", "upload-time": "2025-01-01T00:00:00Z", "requires-python": "<3"},
        {"filename": "other-6.tar.gz", "url": "g"},
    ]
    index = sources.Index({"UV_DEFAULT_INDEX": "http://x/simple"})
    index.pages["p"] = sources.Page("p", "http://x/simple/p/", rows)
    chooser = choose.Chooser(index, "2026-01-01T00:00:00Z")
    dated = ["--exclude-newer", "2026-01-01T00:00:00Z"]

    def find(lines: list[str], options: list[str]) -> str:
        found = chooser.find_newer_source("p", choose.Version("1"), lines, options)
        return found.url if found else ""

    assert find(["p"], dated) == "http://x/simple/b"
    assert find(["p"], []) == "http://x/simple/p/d"
    assert find(["p<2"], dated) == ""


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"PKG-INFO": "Name: p\nRequires-Dist: a>1\nRequires-Dist: b @ https://x/b.whl\n\nRequires-Dist: c\n"},
         ["a>1", "setuptools", "wheel"]),
        ({"PKG-INFO": "Name: p\n", "p.egg-info/requires.txt": "a\n[:os_name == 'x']\nb\n[test]\nc\n",
          "pyproject.toml": '[build-system]\nrequires = ["flit_core"]\n'},
         ["a", "b ; os_name == 'x'", "c ; extra == 'test'", "flit_core"]),
        ({"setup.py": "raise SystemExit"}, None),
    ],
    ids=["fields, without addresses", "an older file, and a build", "no metadata"],
)  # fmt: skip
def test_a_source_distribution_is_read_as_data(
    programs: tuple[ModuleType, ModuleType], tmp_path: Path, files: dict[str, str], expected: list[str] | None
) -> None:
    assert programs[1].read_metadata(write_source(tmp_path / "p-1.tar.gz", files)) == expected


def test_a_page_in_html_gives_the_same_files(programs: tuple[ModuleType, ModuleType]) -> None:
    _, sources = programs
    page = (
        '<a href="../../f/p-1.tar.gz#sha256=ab" data-requires-python="&gt;=3">p</a><a href="p-2.zip" data-yanked>x</a>'
    )
    found = [sources.read_release(row, "http://x/simple/p/", "p") for row in sources.read_html(page)]
    assert [(f.url, f.sha256, f.is_usable) for f in found] == [
        ("http://x/f/p-1.tar.gz", "ab", True),
        ("http://x/simple/p/p-2.zip", "", False),
    ]
    with pytest.raises(ValueError, match="file:"):
        sources.open_url("file:///etc/passwd")


def test_a_source_distribution_is_offered_as_metadata_and_never_downloaded_as_a_wheel(
    programs: tuple[ModuleType, ModuleType],
) -> None:
    choose, sources = programs
    release = sources.Release("p-1.tar.gz", "", "", "", choose.Version("1"), True)
    sources.write_stub(Path("stubs"), "p", release, ["a", "b ; extra == 'x'"])
    with zipfile.ZipFile("stubs/p-1-py3-none-any.whl") as wheel:
        assert [name for name in wheel.namelist() if ".dist-info/" not in name] == []
        metadata = Parser().parsestr(wheel.read("p-1.dist-info/METADATA").decode())
    assert (metadata["Provides-Extra"], metadata.get_all("Requires-Dist")) == ("x", ["a", "b ; extra == 'x'"])

    Path("sources/p-1.tar.gz").touch()
    Path("resolved.txt").write_text("a==2 \\\n    --hash=sha256:aa\np==1 \\\n    --hash=sha256:bb\n")
    choose.separate_sources({"p": release, "unused": release})
    assert Path("resolved.txt").read_text() == "a==2 \\\n    --hash=sha256:aa\n"
    assert Path("wheels/p-1.tar.gz").exists()


def test_wheels_are_downloaded_by_their_hash_and_the_rest_is_left_for_pip(
    programs: tuple[ModuleType, ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    choose, sources = programs
    content = {"fits": b"1", "other": b"2", "changed": b"not what the page says"}
    sums = {name: hashlib.sha256(data).hexdigest() for name, data in {**content, "changed": b"3"}.items()}

    def page(name: str, *files: tuple[str, str]) -> object:
        rows = [{"filename": file, "url": f"https://r/{key}", "hashes": {"sha256": sums[key]}} for file, key in files]
        return sources.Page(name, "https://r/", rows)

    index = sources.Index({"UV_DEFAULT_INDEX": "http://127.0.0.1:9"})
    index.pages = {
        "a": page("a", ("a-1-cp27-none-any.whl", "other"), ("a-1-py3-none-any.whl", "fits")),
        "b": page("b", ("b-1-py3-none-any.whl", "changed")),
        "c": page("c", ("c-1-cp27-none-any.whl", "other")),
    }
    monkeypatch.setattr(choose, "open_url", lambda url: io.BytesIO(content[url.rpartition("/")[2]]))
    lines = {
        "a": f"a==1 \\\n    --hash=sha256:{sums['other']} \\\n    --hash=sha256:{sums['fits']}\n",
        "b": f"b==1 \\\n    --hash=sha256:{sums['changed']}\n",
        "c": f"c==1 \\\n    --hash=sha256:{sums['other']}\n",
        "d": "d==1 \\\n    --hash=sha256:0\n",
    }
    Path("resolved.txt").write_text("".join(lines.values()))
    index.pages["d"] = page("d")
    choose.download_wheels(index)
    assert Path("resolved.txt").read_text() == lines["b"] + lines["c"] + lines["d"]
    assert {path.name: path.read_bytes() for path in Path("wheels").iterdir()} == {"a-1-py3-none-any.whl": b"1"}


PKG_INFO = "Metadata-Version: 2.1\nName: p\nVersion: 1\n"


def damage_zip(path: Path, changes: dict[tuple[bytes, int], bytes]) -> Path:
    """An archive with other bytes at an offset from each header."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("p-1/PKG-INFO", PKG_INFO * 50)
    content = bytearray(path.read_bytes())
    for (header, offset), other in changes.items():
        at = content.index(header) + offset
        content[at : at + len(other)] = other
    path.write_bytes(content)
    return path


HOSTILE_SOURCES: dict[str, Callable[[Path], Path]] = {
    "a build system that is no table": lambda folder: write_source(
        folder / "p-1.tar.gz", {"PKG-INFO": PKG_INFO, "pyproject.toml": "build-system = 1\n"}
    ),
    "brackets without end": lambda folder: write_source(
        folder / "p-1.tar.gz", {"PKG-INFO": PKG_INFO, "pyproject.toml": "x = " + "[" * 5_000}
    ),
    "brackets of a marker": lambda folder: write_source(
        folder / "p-1.tar.gz", {"PKG-INFO": f"{PKG_INFO}Requires-Dist: x; {'(' * 3_000}os_name == 'a'{')' * 3_000}\n"}
    ),
    "damaged": lambda folder: damage_zip(folder / "p-1.zip", {(b"PKG-INFO", 8): b"\xff" * 12}),
    "of an unknown method": lambda folder: damage_zip(
        folder / "p-1.zip", {(b"PK\x03\x04", 8): b"\x63\0", (b"PK\x01\x02", 10): b"\x63\0"}
    ),
    "with a password": lambda folder: damage_zip(
        folder / "p-1.zip", {(b"PK\x03\x04", 6): b"\x01", (b"PK\x01\x02", 8): b"\x01"}
    ),
}


@pytest.mark.parametrize("write", HOSTILE_SOURCES.values(), ids=HOSTILE_SOURCES)
def test_a_source_distribution_that_cannot_be_read_is_not_offered_and_ends_no_fetch(
    programs: tuple[ModuleType, ModuleType], monkeypatch: pytest.MonkeyPatch, write: Callable[[Path], Path]
) -> None:
    """Control: a usual one is."""
    choose, sources = programs
    chooser = choose.Chooser(sources.Index({"UV_DEFAULT_INDEX": "http://127.0.0.1:9"}), "2026-01-01T00:00:00Z")
    Path("served").mkdir()
    usual = write_source(Path("served/p-0.tar.gz"), {"PKG-INFO": f"{PKG_INFO}Requires-Dist: a\n"})
    hostile = write(Path("served"))
    monkeypatch.setattr(choose, "open_url", lambda url: io.BytesIO(Path(url).read_bytes()))

    def release(path: Path) -> object:
        return sources.read_release({"filename": path.name, "url": path.name, "hashes": {}}, str(path), "p")

    assert chooser.describe(release(usual)) == ["a", "setuptools", "wheel"]
    assert chooser.describe(release(hostile)) is None


def test_an_archive_that_unpacks_without_end_is_read_no_further(
    programs: tuple[ModuleType, ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control: with room for it, the metadata behind it is found."""
    _, sources = programs
    path = write_source(Path("p-1.tar.gz"), {"large": "x" * 100_000, "PKG-INFO": PKG_INFO})
    assert sources.read_metadata(path) == ["setuptools", "wheel"]
    monkeypatch.setattr(sources, "UNPACKED_BYTES", 50_000)
    assert sources.read_metadata(path) is None


@pytest.mark.parametrize(
    ("file", "url"),
    [
        ("p-1-1/../../x-py3-none-any.whl", "/x"),
        ("p-1-py3-none-any./../x.whl", "/x"),
        ("p- 1.tar.gz", "/x"),
        ("p-1\n.tar.gz", "/x"),
        ("p-1.tar.gz", "http://[::1/x"),
    ],
)
def test_a_row_of_an_index_that_is_no_plain_file_is_passed_over(
    programs: tuple[ModuleType, ModuleType], file: str, url: str
) -> None:
    """Control: the same row with a plain name and address is a release."""
    _, sources = programs
    assert sources.read_release({"filename": "p-1.tar.gz", "url": "/x", "hashes": {}}, "http://127.0.0.1/p/", "p")
    assert sources.read_release({"filename": file, "url": url, "hashes": {}}, "http://127.0.0.1/p/", "p") is None
