from __future__ import annotations

import subprocess
import tracemalloc
import zipfile
from pathlib import Path

import pytest

from devtools.coderegistries import hash_files, make_module
from sandbox.attack.suites.hostile_archives import make_distant_list
from sandbox.dependencies import go_hashes
from sandbox.dependencies import go_steps as steps
from sandbox.dependencies.go_hashes import ContentBudget, hash_module_file, hash_zip
from sandbox.dependencies.layer_plan import LayerPlan, Look, do_not_stop
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models.dependencies import LockedPackage, RefusalReason
from sandbox.models.layers import LayerPackage

HASH = f"h1:{'A' * 43}="
SUMS = f"example.com/a v1.0.0 {HASH}\nexample.com/a v1.0.0/go.mod {HASH}\n"


def plan(text: str, sums: str = SUMS, **files: str) -> LayerPlan | None:
    tree = {"go.mod": text.encode(), "go.sum": sums.encode()}
    tree |= {name.replace("__", "/").replace("_dot_", "."): content.encode() for name, content in files.items()}
    return steps.plan_layer({name: content for name, content in tree.items() if content}.get, [])


def test_a_module_file_is_written_anew_from_its_data() -> None:
    found = plan("""
module example.com/p // a comment

go 1.20
toolchain go1.99.0

require (
    example.com/a v1.0.0
    "example.com/quoted" v0.0.0-20200101000000-abcdefabcdef // indirect
)
exclude example.com/a v0.9.0
replace example.com/quoted => example.com/Fork v2.0.0+incompatible
retract v1.0.0
""")
    assert found is not None
    assert found.fetch_files["fetch.mod"].decode().split("\n") == [
        "module example.com/p",
        "go 1.20",
        "require example.com/a v1.0.0",
        "require example.com/quoted v0.0.0-20200101000000-abcdefabcdef",
        "exclude example.com/a v0.9.0",
        "replace example.com/quoted  => example.com/Fork v2.0.0+incompatible",
        "",
    ]
    assert [(p.name, p.version, p.hashes) for p in found.locked] == [
        ("example.com/a", "v1.0.0", (HASH,)),
        ("example.com/a", "v1.0.0/go.mod", (HASH,)),
    ]


@pytest.mark.parametrize("order", [1, -1], ids=["required first", "replaced first"])
def test_a_module_for_which_a_folder_out_of_the_tree_stands_is_not_fetched(order: int) -> None:
    lines = ["require example.com/a v1.0.0", "require example.com/b v1.0.0", "replace example.com/b => ../../b"]
    found = plan("\n".join(["module example.com/p", *lines[::order]]))
    assert found is not None
    assert found.wanted == ("example.com/a v1.0.0",)
    assert [(entry.text, entry.reason) for entry in found.refused] == [
        ("replace example.com/b => ../../b", RefusalReason.PATH)
    ]


def test_folders_of_the_tree_that_stand_for_modules_are_written_anew_too() -> None:
    found = plan(
        "module p\nrequire local v0.0.0\nrequire example.com/member v0.0.0\nreplace local => ./here\n",
        here__go_dot_mod="module local\ngo 1.18\nrequire example.com/a v1.0.0\nreplace example.com/a => /etc\n",
        go_dot_work="go 1.20\nuse (\n  .\n  ./member\n)\n",
        member__go_dot_mod="module example.com/member\n",
    )
    assert found is not None
    assert found.fetch_files == {
        "fetch.mod": b"module p\ngo 1.16\nrequire local v0.0.0\nrequire example.com/member v0.0.0\n"
        b"replace local  => ../stub-0\nreplace example.com/member  => ../stub-1\n",
        "stub-0.mod": b"module local\ngo 1.18\n",
        "stub-1.mod": b"module example.com/member\ngo 1.16\n",
    }
    assert [entry.reason for entry in found.refused] == [RefusalReason.PATH]


@pytest.mark.parametrize(
    "found",
    [
        plan("module p\ngo 1.20\n"),
        plan("module p\nrequire example.com/a v1.0.0\n", sums=""),
        plan("", sums=SUMS),
        plan("module p\ngo 1.14\nrequire example.com/a v1.0.0\n", vendor__modules_dot_txt="# example.com/a v1.0.0\n"),
    ],
    ids=["no module", "no go.sum", "no go.mod", "vendored"],
)
def test_no_layer_is_needed(found: LayerPlan | None) -> None:
    assert found is None


def test_an_old_module_does_not_use_its_vendor_folder_by_itself() -> None:
    assert plan("module p\ngo 1.13\nrequire example.com/a v1.0.0\n", vendor__modules_dot_txt="x")


def test_the_name_of_an_archive_says_module_and_version() -> None:
    found = steps.describe_archive("github.com%2F!burnt!sushi%2Ftoml@v1.2.1-!r!c1.zip", "0" * 64)
    assert (found.name, found.version) == ("github.com/BurntSushi/toml", "v1.2.1-RC1")
    assert steps.describe_archive("a.b%2Fc@v1.0.0.mod", "0" * 64).version == "v1.0.0/go.mod"


@pytest.mark.parametrize(
    "file", ["a.zip", "a@v1.zip", "a%2F..%2Fb@v1.0.0.zip", "%2Fa@v1.0.0.zip", "-a@v1.0.0.zip", "a@v1.0.0.info"]
)
def test_what_has_no_name_of_an_archive_is_refused(file: str) -> None:
    with pytest.raises(ValueError, match="not the name of a module"):
        steps.describe_archive(file, "0" * 64)


def test_hashes_are_those_of_go(tmp_path: Path) -> None:
    """go 1.19.8 took the first two in a go.sum for these files; the last stands in published ones."""
    text = "module example.com/good\n\ngo 1.17\n"
    (tmp_path / "mod").write_text(text)
    (tmp_path / "zip").write_bytes(
        make_module("example.com/good", "v1.0.0", {"go.mod": text, "good.go": "package good\n\nvar X = 1\n"})
    )
    assert hash_module_file(tmp_path / "mod") == "h1:yB/MpZ1l4ph7hbUWHGNKO+HAwHk8+bn61thPAdRf5K4="
    assert hash_zip(tmp_path / "zip") == "h1:OOp2tUxy2kBAV6ZWVsBKbNH3g+UBENnhUOBzzqycu+Q="
    (tmp_path / "mod").write_text("module github.com/pkg/errors\n")
    assert hash_module_file(tmp_path / "mod") == "h1:bwawxfHBFNV+L2hUp1rHADufV3IMtnDRdf1r5NINEl0="


def test_an_archive_is_compared_with_go_sum(tmp_path: Path) -> None:
    text = b"module example.com/a\n"
    (tmp_path / "a.mod").write_bytes(text)
    (tmp_path / "a.zip").write_bytes(b"no zip")
    mod = LayerPackage(name="example.com/a", version="v1.0.0/go.mod", file="a.mod", sha256="")
    archive = LayerPackage(name="example.com/a", version="v1.0.0", file="a.zip", sha256="")
    for value, expected in ((HASH, ("a.mod", "a.zip")), (hash_files({"go.mod": text}), ("a.zip",))):
        found = plan("module p\nrequire example.com/a v1.0.0\n", SUMS.replace(f"go.mod {HASH}", f"go.mod {value}"))
        assert found is not None
        assert steps.STEPS.find_mismatches(tmp_path, [mod, archive], found) == expected


def test_a_zip_that_would_fill_memory_is_no_zip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a", b"0" * 100_000)
    assert hash_zip(path).startswith("h1:")
    for limit, value in (("CONTENT_BYTES", 99_999), ("LIST_BYTES", 40)):
        with monkeypatch.context() as patch:
            patch.setattr(go_hashes, limit, value)
            with pytest.raises(ValueError, match="more than"):
                hash_zip(path)


def compare_bombs(folder: Path, look: Look = do_not_stop) -> tuple[str, ...]:
    """Compare two archives of 100,000 bytes with a go.sum."""
    packages = []
    for name in ("a", "b"):
        with zipfile.ZipFile(folder / f"{name}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("a", b"0" * 100_000)
        packages.append(LayerPackage(name=f"example.com/{name}", version="v1.0.0", file=f"{name}.zip", sha256=""))
    locked = (LockedPackage(name=one.name, version=one.version, hashes=(HASH,), origin="go.sum") for one in packages)
    return steps.STEPS.find_mismatches(folder, packages, LayerPlan({}, locked=tuple(locked)), look)


@pytest.mark.parametrize(("left", "is_enough"), [(250_000, True), (150_000, False), (5_000, False)])
def test_the_modules_of_a_layer_have_a_limit_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: int, *, is_enough: bool
) -> None:
    """Each of them is within its own: 2,000 of 500 MiB took hours. Control: with room for both they are compared."""
    monkeypatch.setattr(steps, "ContentBudget", lambda look: ContentBudget(look, left))
    if is_enough:
        assert compare_bombs(tmp_path) == ("a.zip", "b.zip")
        return
    with pytest.raises(SandboxError, match="hold more than 8 GiB, or too many files") as caught:
        compare_bombs(tmp_path)
    assert caught.value.code is ErrorCode.QUOTA_EXCEEDED


def test_each_file_of_a_list_counts_though_the_first_one_cannot_be_read(tmp_path: Path) -> None:
    """Control: with room for the list it is that file which is refused."""
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_BZIP2) as archive:
        for name in ("a", "b"):
            archive.writestr(name, b"")
    with pytest.raises(ValueError, match="go does not read"):
        hash_zip(tmp_path / "a.zip", ContentBudget(left_bytes=2 * go_hashes.FILE_BYTES))
    with pytest.raises(SandboxError, match="too many files"):
        hash_zip(tmp_path / "a.zip", ContentBudget(left_bytes=2 * go_hashes.FILE_BYTES - 1))


def test_a_comparison_with_go_sum_can_be_stopped(tmp_path: Path) -> None:
    looks = [None, None]
    with pytest.raises(IndexError):
        compare_bombs(tmp_path, looks.pop)


def test_s167_a_list_that_names_one_file_very_often_is_not_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """16 MB of them took 270 MB and 3 s. Control: Python's reader takes more files than the record at the end says."""
    path = tmp_path / "zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a", b"")
    content = path.read_bytes()
    begin, end = content.index(b"PK\x01\x02"), content.index(b"PK\x05\x06")
    count, entry, last = 70_000, content[begin:end], bytearray(content[end:])
    last[12:16] = (count * len(entry)).to_bytes(4, "little")
    path.write_bytes(content[:begin] + count * entry + last)
    with zipfile.ZipFile(path) as archive:
        assert len(archive.infolist()) == count, "void"
    monkeypatch.setattr(zipfile, "ZipFile", lambda _: pytest.fail("loaded"))
    with pytest.raises(ValueError, match="more than 65535 files"):
        hash_zip(path)


def test_s167_a_zip_whose_list_is_elsewhere_is_no_zip(tmp_path: Path) -> None:
    """Behind the longest comment, where only Python's reader looks. Control: that reader finds the list."""
    path = tmp_path / "zip"
    count = 1000
    path.write_bytes(make_distant_list(count))
    with zipfile.ZipFile(path) as archive:
        assert len(archive.infolist()) == count, "void"
    with pytest.raises(ValueError, match="no zip, or one for more than 4 GB"):
        hash_zip(path)


def test_s167_a_method_that_takes_memory_as_it_likes_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("a", b"0" * 1000)
    content = bytearray(path.read_bytes())
    content[36:40] = (256 * 1024**2).to_bytes(4, "little")  # the size of the dictionary: 4 GiB at most
    path.write_bytes(content)
    peaks = []
    for read in (_read_all, _hash_or_refuse):
        tracemalloc.start()
        try:
            read(path)
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    assert peaks[0] > 256 * 1024**2, "void: Python's reader takes it"
    assert peaks[1] < 1024**2


def _read_all(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        archive.read("a")


def _hash_or_refuse(path: Path) -> None:
    with pytest.raises(ValueError, match="does not read"):
        hash_zip(path)


@pytest.mark.parametrize("script", [steps.STEPS.fetch.script, steps.STEPS.install.script])
def test_the_scripts_of_the_steps_can_be_parsed(script: str) -> None:
    subprocess.run(["sh", "-n"], input=script.encode(), check=True)


def test_a_fetch_asks_no_version_control_and_downloads_no_toolchain() -> None:
    env = steps.STEPS.fetch.env
    assert (env["GOVCS"], env["GOTOOLCHAIN"], env["GOENV"], env["GOSUMDB"]) == ("*:off", "local", "off", "off")
    assert steps.STEPS.fetch.script.count("go mod ") == steps.STEPS.fetch.script.count("go mod download") == 1
