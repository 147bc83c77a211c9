"""Images from one engine to another: with the same ids, all or none, and never under a name that is not theirs."""

from __future__ import annotations

import errno
import gzip
import io
import json
import os
import resource
import shutil
import socket
import tarfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, cast

import pytest

from sandbox.attack.suites.hostile_archives import hide_in_directory, make_compressed_tar
from sandbox.config import ImageSettings
from sandbox.engine.docker_api import translate_errors
from sandbox.errors import ErrorCode
from sandbox.images import ImageBuildContext, archive_reader, build, list_images
from sandbox.images.archive_format import (
    INDEX,
    LAYER_TYPE,
    MAX_ALL_JSON_BYTES,
    MAX_ALL_JSON_VALUES,
    MAX_JSON_VALUES,
    NAME_ANNOTATION,
    blob_path,
    digest_bytes,
    format_file,
    format_header,
)
from sandbox.images.archive_reader import ImageArchiveReader
from sandbox.images.archive_writer import write_archive
from sandbox.images.catalogue import TAG_PREFIX, tag_of
from sandbox.images.debian import BOOTSTRAPPED
from sandbox.images.export import export_images
from sandbox.images.imports import import_images
from sandbox.images.lookup import FOLDER_LABEL, NAME_LABEL
from sandbox.models import ImageArchive
from sandbox.store.home import Home
from sandbox.store.quarantine import QuarantineNotes
from tests.unit.conftest import refused
from tests.unit.memory_engine import MemoryEngine

NAMES = ("base", "build", "init", "python")
Change = Callable[[dict[str, bytes]], None]


def quiet(line: str) -> None:
    """A progress callback that forgets."""


def make_site(root: Path, store_name: str = "") -> tuple[ImageBuildContext, MemoryEngine]:
    """A home of its own, with an engine of its own that has no image."""
    home = Home(root)
    home.prepare()
    engine = MemoryEngine(QuarantineNotes(home.quarantine), store_name=store_name)
    return ImageBuildContext(engine, home, ImageSettings(), {}), engine


def layer_of(name: str) -> bytes:
    """A tar file with one empty file."""
    return format_header(name, 0) + bytes(1024)


def digests(site: ImageBuildContext) -> dict[str, str | None]:
    return {image.name: image.digest for image in list_images(site) if image.present}


def used_today(engine: MemoryEngine) -> set[str]:
    """Names of the images that have a use tag of today."""
    today = f"-used-{datetime.now(UTC):%Y%m%d}"
    uses = (tag for image in engine.images.values() for tag in image.tags if tag.endswith(today))
    return {tag.removeprefix(TAG_PREFIX).partition(":")[0] for tag in uses}


@pytest.fixture
def here(tmp_path: Path) -> ImageBuildContext:
    site, engine = make_site(tmp_path / "here")
    engine.import_image(io.BytesIO(layer_of("debian")), BOOTSTRAPPED, {NAME_LABEL: "debian"})
    build(site, "python", quiet)
    return site


@pytest.fixture
def archive(here: ImageBuildContext, tmp_path: Path) -> ImageArchive:
    return export_images(here, tmp_path / "images.tar", (), quiet)


def test_a_second_host_has_the_same_images_with_the_same_ids(
    here: ImageBuildContext, archive: ImageArchive, tmp_path: Path
) -> None:
    there, engine = make_site(tmp_path / "there")
    done = import_images(there, archive.path, quiet, expected=archive.digest)
    assert done.size_bytes == archive.size_bytes == archive.path.stat().st_size
    assert digests(there) == digests(here)
    assert set(digests(there)) == set(NAMES)
    assert all(image.loaded and image.usable for image in done.images)
    assert used_today(engine) == set(NAMES), "else gc takes the day of the build on the other host for the last use"
    before = dict(engine.images)
    again = import_images(there, archive.path, quiet)
    assert not any(image.loaded for image in again.images)
    assert {**engine.images} == before
    lines: list[str] = []
    build(there, "python", lines.append)
    assert not [line for line in lines if "building" in line]


def test_exports_of_the_same_images_have_one_digest(here: ImageBuildContext, archive: ImageArchive) -> None:
    other = export_images(here, archive.path.with_name("other.tar"), NAMES, quiet)
    assert other.digest == archive.digest
    small = export_images(here, archive.path.with_name("small.tar"), ("python",), quiet)
    assert [image.tag.partition(":")[0].rpartition("/")[2] for image in small.images] == [
        "base",
        "debian",
        "init",
        "python",
    ]


def test_an_engine_that_saves_images_under_longer_names_gives_the_same_archive(
    here: ImageBuildContext, archive: ImageArchive
) -> None:
    """Podman puts `localhost/` in front of them."""
    cast("MemoryEngine", here.engine).tag_prefix = "localhost/"
    other = export_images(here, archive.path.with_name("other.tar"), (), quiet)
    assert (other.digest, other.images) == (archive.digest, archive.images)


def test_an_engine_that_saves_other_images_is_told_from_one_that_built_meanwhile(
    here: ImageBuildContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, engine = tmp_path / "images.tar", cast("MemoryEngine", here.engine)
    save = engine.save_images
    monkeypatch.setattr(engine, "tag_prefix", "example.org/")
    monkeypatch.setattr(engine, "plain_tag", str)
    with refused(ErrorCode.INTERNAL) as caught:
        export_images(here, path, ("init",), quiet)
    tag = tag_of("init")[: -len("latest")]
    assert f"expected {tag}" in caught.value.details
    assert f"found    example.org/{tag}" in caught.value.details
    assert caught.value.hint
    monkeypatch.undo()

    def build_again(references: Sequence[str]) -> AbstractContextManager[IO[bytes]]:
        engine.import_image(io.BytesIO(b"another"), references[0], {})
        return save(references)

    monkeypatch.setattr(engine, "save_images", build_again)
    with refused(ErrorCode.CONFLICT):
        export_images(here, path, ("init",), quiet)
    assert not path.exists()


def test_a_store_with_other_ids_finds_the_images_current(archive: ImageArchive, tmp_path: Path) -> None:
    """What an image was built on is known by its files there."""
    there, engine = make_site(tmp_path / "there", store_name="other")
    import_images(there, archive.path, quiet)
    assert all(not image.stale for image in list_images(there))
    engine.import_image(io.BytesIO(layer_of("newer debian")), BOOTSTRAPPED, {NAME_LABEL: "debian"})
    stale = {image.name for image in list_images(there) if image.stale}
    assert stale == set(NAMES), "control: another Debian is noticed"


def test_a_name_that_another_image_has_is_taken_only_on_demand(archive: ImageArchive, tmp_path: Path) -> None:
    there, engine = make_site(tmp_path / "there")
    engine.import_image(io.BytesIO(layer_of("another debian")), BOOTSTRAPPED, {NAME_LABEL: "debian"})
    build(there, "base", quiet)
    before = dict(engine.images)
    with refused(ErrorCode.CONFLICT):
        import_images(there, archive.path, quiet)
    assert engine.images == before
    done = import_images(there, archive.path, quiet, replace=True)
    assert {image.digest for image in done.images} >= {*filter(None, digests(there).values())}
    assert not any("-used-" in tag and len(image.tags) == 1 for image in engine.images.values() for tag in image.tags)
    assert used_today(engine) == set(NAMES)


def test_an_image_with_other_variables_is_another_image(
    here: ImageBuildContext, archive: ImageArchive, tmp_path: Path
) -> None:
    """Same layers, same labels: an archive cannot slip it under the name."""
    there, engine = make_site(tmp_path / "there")
    import_images(there, archive.path, quiet)
    changed = rewrite(archive.path, with_python(lambda f, m, c: c["config"].update(Env=["PATH=/evil"])))
    before = dict(engine.images)
    with refused(ErrorCode.CONFLICT):
        import_images(there, changed, quiet)
    assert engine.images == before


def test_a_failure_while_names_move_leaves_everything_as_it_was(archive: ImageArchive, tmp_path: Path) -> None:
    there, engine = make_site(tmp_path / "there")
    engine.refused_tag = tag_of("python")
    with refused(ErrorCode.INTERNAL):
        import_images(there, archive.path, quiet)
    assert engine.images == {}


def test_an_export_never_overwrites_and_leaves_no_part(here: ImageBuildContext, tmp_path: Path) -> None:
    path = tmp_path / "archives" / "images.tar"
    path.parent.mkdir()
    with refused(ErrorCode.IMAGE_MISSING):
        export_images(here, path, ("python", "go"), quiet)
    assert [*path.parent.iterdir()] == []
    path.write_bytes(b"mine")
    with refused(ErrorCode.CONFLICT):
        export_images(here, path, (), quiet)
    assert path.read_bytes() == b"mine"


@pytest.mark.parametrize("linked", [True, False], ids=["hard links", "no hard links"])
def test_a_file_that_appears_during_the_export_stays_as_it_is(
    here: ImageBuildContext, archive: ImageArchive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, linked: bool
) -> None:
    """Control: a name that stays free gets the archive."""
    (folder := tmp_path / "archives").mkdir()
    if not linked:
        monkeypatch.setattr(os, "link", raising(errno.EPERM))
    there = export_images(here, folder / "free.tar", (), quiet)
    assert there.path.read_bytes() == archive.path.read_bytes()
    assert there.path.stat().st_mode & 0o777 == 0o600
    path = folder / "images.tar"
    with refused(ErrorCode.CONFLICT) as caught:
        export_images(here, path, (), lambda line: void(path.write_bytes(b"mine")))
    assert (path.read_bytes(), "exists" in caught.value.brief) == (b"mine", True)
    (folder / "link.tar").symlink_to("nowhere")
    with refused(ErrorCode.CONFLICT):
        export_images(here, folder / "link.tar", (), quiet)
    assert sorted(each.name for each in folder.iterdir()) == ["free.tar", "images.tar", "link.tar"]


def test_a_copy_that_fails_leaves_no_part(
    here: ImageBuildContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder := tmp_path / "archives").mkdir()
    monkeypatch.setattr(os, "link", raising(errno.EPERM))
    monkeypatch.setattr(shutil, "copyfileobj", raising(errno.ENOSPC))
    with refused(ErrorCode.QUOTA_EXCEEDED) as caught:
        export_images(here, folder / "images.tar", (), quiet)
    assert (str(folder / "images.tar") in caught.value.brief, [*folder.iterdir()]) == (True, [])


def test_a_copy_that_fails_does_not_remove_the_file_of_another_with_its_name(
    here: ImageBuildContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder := tmp_path / "archives").mkdir()
    path = folder / "images.tar"

    def replace_and_fail(*_: object) -> None:
        assert path.exists()
        path.unlink()
        path.write_bytes(b"mine")
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "link", raising(errno.EPERM))
    monkeypatch.setattr(shutil, "copyfileobj", replace_and_fail)
    with refused(ErrorCode.QUOTA_EXCEEDED):
        export_images(here, path, ("init",), quiet)
    assert ([*folder.iterdir()], path.read_bytes()) == ([path], b"mine")


def test_an_interrupt_while_a_file_is_copied_leaves_no_part(
    here: ImageBuildContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        assert path.exists()
        raise KeyboardInterrupt

    (folder := tmp_path / "archives").mkdir()
    path = folder / "images.tar"
    monkeypatch.setattr(os, "link", raising(errno.EPERM))
    monkeypatch.setattr(shutil, "copyfileobj", interrupt)
    with pytest.raises(KeyboardInterrupt):
        export_images(here, path, ("init",), quiet)
    assert [*folder.iterdir()] == []


@pytest.mark.parametrize("linked", [True, False], ids=["hard links", "no hard links"])
def test_an_interrupt_while_the_disk_is_full_is_an_interrupt(
    here: ImageBuildContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, linked: bool
) -> None:
    """What is in the buffer cannot be written when the file is closed."""
    (folder := tmp_path / "archives").mkdir()
    with ExitStack() as stack:

        def write_and_stop(_source: object, target: IO[bytes], *_: object) -> None:
            stack.enter_context(limit_file_size(0))
            target.write(b"x")
            raise KeyboardInterrupt

        if linked:
            monkeypatch.setattr("sandbox.images.export.write_archive", write_and_stop)
        else:
            monkeypatch.setattr(os, "link", raising(errno.EPERM))
            monkeypatch.setattr(shutil, "copyfileobj", write_and_stop)
        with pytest.raises(KeyboardInterrupt):
            export_images(here, folder / "images.tar", ("init",), quiet)
    assert [*folder.iterdir()] == []


@pytest.mark.parametrize("linked", [True, False], ids=["hard links", "no hard links"])
@pytest.mark.parametrize("number", [0, errno.EINVAL, errno.EACCES, errno.EIO], ids=errno.errorcode.get)
def test_the_name_of_an_archive_is_synced_after_it_was_given(
    here: ImageBuildContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, linked: bool, number: int
) -> None:
    """A file system that cannot do it is no error; a disk that fails is."""
    path, synced = tmp_path / "images.tar", []

    def sync(folder: Path) -> None:
        synced.append((folder, path.exists()))
        if number:
            raising(number)()

    monkeypatch.setattr("sandbox.images.export.sync_folder", sync)
    if not linked:
        monkeypatch.setattr(os, "link", raising(errno.EPERM))
    with refused(ErrorCode.INVALID_INPUT) if number == errno.EIO else nullcontext():
        export_images(here, path, ("init",), quiet)
    assert synced == [(tmp_path, True)]


@pytest.mark.parametrize("name", ["a\0b", "\ud800"], ids=["NUL", "no text"])
def test_a_path_that_no_file_can_have_is_refused(here: ImageBuildContext, tmp_path: Path, name: str) -> None:
    for action in (
        lambda: export_images(here, tmp_path / name, (), quiet),
        lambda: import_images(here, tmp_path / name, quiet),
    ):
        with refused(ErrorCode.INVALID_INPUT) as caught:
            action()
        assert caught.value.details
        assert caught.value.hint
    assert [*tmp_path.glob(".sandbox-*")] == []


def raising(number: int) -> Callable[..., None]:
    """A call that fails as the file system does."""

    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


def void(_: object) -> None:
    """For a progress callback that does something."""


@pytest.mark.parametrize("name", ["absent/images.tar", "file/images.tar", "x" * 300], ids=["absent", "file", "long"])
def test_a_path_that_cannot_be_written_is_named(here: ImageBuildContext, tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    with refused(ErrorCode.INVALID_INPUT) as caught:
        export_images(here, tmp_path / name, (), quiet)
    assert str(tmp_path / name) in caught.value.brief
    assert caught.value.details
    assert caught.value.hint
    assert [*tmp_path.glob(".sandbox-*")] == []
    export_images(here, tmp_path / ("x" * 250), ("init",), quiet)  # control: as long as a name may be, almost


def test_a_disk_that_fills_during_the_export_is_not_an_engine_that_stopped(
    here: ImageBuildContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the engine is read, the errors of its connection are translated, which are OSErrors too."""
    path, engine = tmp_path / "images.tar", cast("MemoryEngine", here.engine)
    save = engine.save_images

    @contextmanager
    def translating(references: Sequence[str]) -> Iterator[IO[bytes]]:
        with translate_errors("save"), save(references) as stream, limit_file_size(4096):
            yield stream

    monkeypatch.setattr(engine, "save_images", translating)
    with refused(ErrorCode.INVALID_INPUT) as caught:
        export_images(here, path, (), quiet)
    assert (str(path) in caught.value.brief, caught.value.details) == (True, "File too large")
    assert [*tmp_path.glob(".sandbox-*")] == []


@contextmanager
def limit_file_size(size: int) -> Iterator[None]:
    """Writes beyond it fail; Python ignores the signal."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("kind", ["fifo", "pipe", "device", "socket", "directory", "absent"])
def test_what_is_no_plain_file_is_refused_at_once(archive: ImageArchive, tmp_path: Path, kind: str) -> None:
    """Control: a descriptor of a plain file can be read by its name."""
    site, _ = make_site(tmp_path / "there")
    paths = {"directory": tmp_path, "absent": tmp_path / "absent", "device": Path("/dev/zero")}
    path = paths.get(kind, tmp_path / kind)
    with ExitStack() as stack:
        if kind == "fifo":
            os.mkfifo(path)
        elif kind == "pipe":
            ends = os.pipe()
            stack.callback(os.close, ends[0])
            os.write(ends[1], archive.path.read_bytes()[:512])
            os.close(ends[1])
            path = Path(f"/dev/fd/{ends[0]}")
        elif kind == "socket":
            stack.enter_context(socket.socket(socket.AF_UNIX)).bind(str(path))
        with refused(ErrorCode.INVALID_INPUT) as caught:
            import_images(site, path, quiet)
    assert (str(path) in caught.value.brief, bool(caught.value.hint)) == (True, True)
    with archive.path.open("rb") as file:
        import_images(site, Path(f"/dev/fd/{file.fileno()}"), quiet)


def test_a_disk_that_cannot_be_read_is_named(
    archive: ImageArchive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, engine = make_site(tmp_path / "there")
    monkeypatch.setattr(os, "pread", raising(errno.EIO))
    with refused(ErrorCode.INVALID_INPUT) as caught:
        import_images(site, archive.path, quiet)
    assert (str(archive.path) in caught.value.brief, bool(caught.value.hint), engine.images) == (True, True, {})


def rewrite(path: Path, change: Callable[[dict[str, bytes]], None]) -> Path:
    """A copy of an archive whose files were changed: written as the exporter writes them."""
    with tarfile.open(path) as opened:
        files = {member.name: cast("IO[bytes]", opened.extractfile(member)).read() for member in opened}
    change(files)
    target = path.with_name("changed.tar")
    target.write_bytes(b"".join(b"".join(format_file(*item)) for item in files.items()) + bytes(1024))
    return target


def blob(files: dict[str, bytes], content: bytes) -> dict[str, Any]:
    """Add a blob; return its descriptor."""
    digest = digest_bytes(content)
    files[blob_path(digest)] = content
    return {"digest": digest, "size": len(content), "mediaType": LAYER_TYPE}


def with_python(change: Callable[[dict[str, bytes], dict[str, Any], dict[str, Any]], object]) -> Change:
    """Change manifest and configuration of the image `python`, and name the changed ones in the index."""

    def apply(files: dict[str, bytes]) -> None:
        index = json.loads(files[INDEX])
        entry = next(e for e in index["manifests"] if "/python:" in e["annotations"][NAME_ANNOTATION])
        manifest = json.loads(files.pop(blob_path(entry["digest"])))
        config = json.loads(files.pop(blob_path(manifest["config"]["digest"])))
        change(files, manifest, config)
        manifest["config"] = blob(files, json.dumps(config).encode())
        entry.update(blob(files, json.dumps(manifest).encode()))
        files[INDEX] = json.dumps(index).encode()

    return apply


def add_layer(files: dict[str, bytes], manifest: dict[str, Any], config: dict[str, Any], content: bytes) -> None:
    manifest["layers"].append(blob(files, content))
    config["rootfs"]["diff_ids"].append(digest_bytes(content))


def with_layer(content: bytes) -> Change:
    return with_python(lambda f, m, c: add_layer(f, m, c, content))


def sparse_layer() -> bytes:
    """Eight bytes that an engine would write out as a terabyte."""
    header = bytearray(format_header("bomb", 8))
    header[156:157] = b"S"
    header[483:495] = b"\x80" + (2**40).to_bytes(11, "big")
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + bytes(512) + bytes(1024)


def pax_layer(records: Mapping[str, str]) -> bytes:
    member = tarfile.TarInfo("bomb")
    member.pax_headers = dict(records)
    return member.tobuf(tarfile.PAX_FORMAT) + bytes(1024)


@pytest.mark.parametrize(
    "layer",
    [
        b"",
        format_header("x", 0),
        format_header("x", 0) + bytes(512),
        format_header("x", 0) + bytes(1024) + b"padding" * 200,
        format_header("x", 5) + b"12345",
        pax_layer({"path": "d/" * 100 + "x"}),
        tarfile.TarInfo("\xe9").tobuf(tarfile.GNU_FORMAT, "latin-1") + bytes(1024),
    ],
    ids=["nothing", "no end", "half an end", "more after the end", "no padding", "a long name", "not ASCII"],
)
def test_a_layer_that_engines_take_is_taken(archive: ImageArchive, tmp_path: Path, layer: bytes) -> None:
    """Each was loaded by Docker 20.10 and Podman 4.3.1."""
    site, _ = make_site(tmp_path / "there")
    path = rewrite(archive.path, with_python(lambda f, m, c: add_layer(f, m, c, layer)))
    assert len(import_images(site, path, quiet).images) == len(archive.images)


MAGIC = {
    "gzip": b"\x1f\x8b\x08",
    "gzip with another method": b"\x1f\x8b\x07",
    "bzip2": b"BZh",
    "xz": b"\xfd7zXZ\0",
    "zstd": b"\x28\xb5\x2f\xfd",
    "the first skippable frame": b"\x50\x2a\x4d\x18",
    "the last skippable frame": b"\x5f\x2a\x4d\x18",
}


def tar_that_begins_with(begin: bytes) -> bytes:
    return tarfile.TarInfo(begin.decode("latin-1")).tobuf(tarfile.USTAR_FORMAT, "latin-1") + bytes(1024)


@pytest.mark.parametrize("name", MAGIC)
def test_a_tar_file_that_engines_take_for_compressed_data_is_refused(
    archive: ImageArchive, tmp_path: Path, name: str
) -> None:
    """Control: with another first byte it is taken."""
    site, engine = make_site(tmp_path / "there")
    for begin, taken in ((MAGIC[name], False), (b"x" + MAGIC[name], True)):
        path = rewrite(archive.path, with_layer(tar_that_begins_with(begin)))
        if taken:
            assert len(import_images(site, path, quiet).images) == len(archive.images)
            continue
        with refused(ErrorCode.INVALID_INPUT) as caught:
            import_images(site, path, quiet)
        assert ("compressed" in caught.value.details, engine.layers) == (True, {})


def count_parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The documents that are parsed from here on, by their kind."""
    parsed, parse = list[str](), archive_reader._parse

    def count(shape: Any, content: bytes) -> Any:
        parsed.append(shape.__name__)
        return parse(shape, content)

    monkeypatch.setattr(archive_reader, "_parse", count)
    return parsed


def name_again(tag: Callable[[str], str]) -> Change:
    """Name the last image of the index once more."""

    def apply(files: dict[str, bytes]) -> None:
        index = json.loads(files[INDEX])
        again = json.loads(json.dumps(index["manifests"][-1]))
        again["annotations"][NAME_ANNOTATION] = tag(again["annotations"][NAME_ANNOTATION])
        index["manifests"].append(again)
        files[INDEX] = json.dumps(index).encode()

    return apply


def test_s207_names_are_compared_before_any_image_is_read(
    archive: ImageArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An index of a few kilobytes may name one image 64 times. Control: with another name it is read."""
    for change, read in ((name_again(str), 0), (name_again("{}-another".format), len(archive.images))):
        with monkeypatch.context() as patch, rewrite(archive.path, change).open("rb") as file:
            parsed = count_parsed(patch)
            with refused(ErrorCode.INVALID_INPUT):
                ImageArchiveReader(file)
            assert parsed.count("ImageManifest") == read


def test_s207_an_image_with_two_names_is_parsed_once(archive: ImageArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: each of the other images is parsed, too."""

    def apply(files: dict[str, bytes]) -> None:
        with_python(lambda f, m, c: c["config"]["Labels"].update({FOLDER_LABEL: "variant"}))(files)
        name_again(lambda _: tag_of("python"))(files)

    parsed = count_parsed(monkeypatch)
    with rewrite(archive.path, apply).open("rb") as file:
        reader = ImageArchiveReader(file)
    assert len(reader.images) == len(archive.images) + 1
    assert reader.images[-1].config is reader.images[-2].config
    assert Counter(parsed) == {
        "Index": 1,
        "ImageManifest": len(archive.images),
        "ImageConfiguration": len(archive.images),
    }


@pytest.mark.parametrize("value", [[], {}, 0, ""], ids=["lists", "tables", "numbers", "texts"])
def test_s207_values_of_a_document_are_counted_before_it_is_parsed(
    archive: ImageArchive, monkeypatch: pytest.MonkeyPatch, value: object
) -> None:
    """Three bytes of JSON become a hundred of memory. Control: a half of the values is read."""

    def change(values: int) -> Change:
        return with_python(lambda f, m, c: c["config"].update(Volumes={"v": [value] * values}))

    images = len(archive.images)
    for values, read in ((MAX_JSON_VALUES, images - 1), (MAX_JSON_VALUES // 2 - 1000, images)):
        with monkeypatch.context() as patch, rewrite(archive.path, change(values)).open("rb") as file:
            parsed = count_parsed(patch)
            with refused(ErrorCode.INVALID_INPUT) if read < images else nullcontext() as caught:
                ImageArchiveReader(file)
            assert caught is None or "values" in caught.value.details
            assert parsed.count("ImageConfiguration") == read


@pytest.mark.parametrize(("limit", "said"), [("MAX_ALL_JSON_VALUES", "values"), ("MAX_ALL_JSON_BYTES", "bytes")])
def test_s207_all_documents_have_a_limit_together(
    archive: ImageArchive, monkeypatch: pytest.MonkeyPatch, limit: str, said: str
) -> None:
    """Control: the shipped limits are far from what an archive of ours has."""
    with archive.path.open("rb") as file:
        ImageArchiveReader(file)
        most = {"MAX_ALL_JSON_VALUES": MAX_ALL_JSON_VALUES, "MAX_ALL_JSON_BYTES": MAX_ALL_JSON_BYTES}[limit] // 100
        monkeypatch.setattr(archive_reader, limit, most)
        ImageArchiveReader(file)
        monkeypatch.setattr(archive_reader, limit, most // 100)
        with refused(ErrorCode.INVALID_INPUT) as caught:
            ImageArchiveReader(file)
    assert said in caught.value.details


def rename(tag: str) -> Change:
    def apply(files: dict[str, bytes]) -> None:
        index = json.loads(files[INDEX])
        index["manifests"][-1]["annotations"][NAME_ANNOTATION] = tag
        files[INDEX] = json.dumps(index).encode()

    return apply


def flip(files: dict[str, bytes]) -> None:
    name = max((name for name in files if name.startswith("blobs/")), key=lambda name: len(files[name]))
    files[name] = b"X" + files[name][1:]


def nested(files: dict[str, bytes]) -> None:
    files[INDEX] = b'{"manifests":' + b"[" * 100_000


HOSTILE: dict[str, Change] = {
    "a byte of a layer": flip,
    "another name": rename("space-sandbox/base:123456789012"),
    "a foreign name": rename("debian:bookworm-slim"),
    "latest of the catalogue": rename("space-sandbox/python:latest"),
    "a path as a name": rename("../../python:123456789012"),
    "labels of another image": with_python(lambda f, m, c: c["config"]["Labels"].update({NAME_LABEL: "base"})),
    "another machine": with_python(lambda f, m, c: c.update(architecture="s390x")),
    "layers that are not its own": with_python(
        lambda f, m, c: c["rootfs"]["diff_ids"].reverse() or m["layers"].append(m["layers"][0])
    ),
    "a compressed layer": with_python(lambda f, m, c: m["layers"][0].update(mediaType=f"{LAYER_TYPE}+gzip")),
    "a sparse file": with_python(lambda f, m, c: add_layer(f, m, c, sparse_layer())),
    "a sparse file by a record": with_python(
        lambda f, m, c: add_layer(f, m, c, pax_layer({"GNU.sparse.realsize": "9" * 12}))
    ),
    "a size by a record": with_python(lambda f, m, c: add_layer(f, m, c, pax_layer({"size": "99999"}))),
    "a sparse file in a directory": with_python(
        lambda f, m, c: add_layer(f, m, c, hide_in_directory(pax_layer({"GNU.sparse.realsize": "9" * 12})))
    ),
    "a tar file that is compressed data as well": with_layer(make_compressed_tar(layer_of("hidden"))),
    "a layer that is no tar file": with_python(lambda f, m, c: add_layer(f, m, c, b"no tar file" * 100)),
    "a layer that is shorter than a header": with_python(lambda f, m, c: add_layer(f, m, c, b"no tar file")),
    "a layer whose headers look harmless": with_python(lambda f, m, c: add_layer(f, m, c, b"\0" * 156 + b"0" * 356)),
    "a layer that ends within a header": with_python(lambda f, m, c: add_layer(f, m, c, format_header("x", 0)[:-1])),
    "a layer that goes on after its end": with_python(
        lambda f, m, c: add_layer(f, m, c, bytes(512) + format_header("x", 0) + bytes(1024))
    ),
    "a layer that is missing": with_python(lambda f, m, c: f.pop(blob_path(m["layers"][-1]["digest"]))),
    "a file that nothing names": lambda files: files.update({f"blobs/sha256/{'0' * 64}": b"x"}),
    "a file of another kind": lambda files: files.update({"etc/passwd": b"x"}),
    "an endless document": nested,
    "no document": lambda files: files.update({INDEX: b"{"}),
    "an image that is named twice": name_again(str),
    "no images": lambda files: files.update({INDEX: b'{"manifests":[]}'}),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_archive_is_refused_before_the_engine_gets_a_byte(
    archive: ImageArchive, tmp_path: Path, name: str
) -> None:
    there, engine = make_site(tmp_path / "there")
    with refused(ErrorCode.INVALID_INPUT) as caught:
        import_images(there, rewrite(archive.path, HOSTILE[name]), quiet)
    assert caught.value.details or caught.value.hint
    assert engine.images == {}
    assert engine.layers == {}
    import_images(there, rewrite(archive.path, lambda files: None), quiet, expected=archive.digest)
    assert engine.images, "control"


def test_a_damaged_file_is_refused(archive: ImageArchive, tmp_path: Path) -> None:
    there, engine = make_site(tmp_path / "there")
    whole = archive.path.read_bytes()
    link = bytearray(whole)
    link[156:157] = b"2"
    for content in (
        b"",
        b"x" * 5000,
        bytes(1024),
        whole[:-512],
        whole[:5000],
        whole + bytes(512),
        whole * 2,
        bytes(link),
    ):
        path = tmp_path / "damaged.tar"
        path.write_bytes(content)
        with refused(ErrorCode.INVALID_INPUT):
            import_images(there, path, quiet)
    with refused(ErrorCode.INVALID_INPUT):
        import_images(there, archive.path, quiet, expected=f"sha256:{'0' * 64}")
    assert engine.images == {}


def test_an_archive_that_changes_after_it_was_checked_does_not_reach_the_engine_whole(archive: ImageArchive) -> None:
    with archive.path.open("r+b") as file:
        reader = ImageArchiveReader(file)
        assert len(b"".join(reader.stream())) <= archive.size_bytes
        file.seek(600)
        file.write(b"other bytes")
        file.flush()
        with refused(ErrorCode.INVALID_INPUT):
            b"".join(reader.stream())


@pytest.mark.parametrize("compressed", [False, True])
def test_a_stream_of_a_newer_engine_gives_the_same_archive(
    here: ImageBuildContext, archive: ImageArchive, compressed: bool
) -> None:
    """Engines from 25 on save blobs by digest; the containerd store compresses layers. Before, a link says 'twice'."""
    references = {image.tag: image.tag for image in archive.images}
    engine = cast("MemoryEngine", here.engine)
    with engine.save_images([*references]) as stream, tarfile.open(fileobj=stream) as opened:
        files = {member.name: cast("IO[bytes]", opened.extractfile(member)).read() for member in opened}
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as saved:
        for name, content in files.items():
            packed = gzip.compress(content) if compressed and name.endswith("layer.tar") else content
            entry = tarfile.TarInfo(name)
            entry.size = len(packed)
            saved.addfile(entry, io.BytesIO(packed))
    target.seek(0)
    with archive.path.with_name("again.tar").open("w+b") as file:
        digest, _ = write_archive(target, file, references)
        file.seek(0)
        assert file.read() == archive.path.read_bytes()
    assert digest == archive.digest
