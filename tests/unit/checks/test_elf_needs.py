"""What a program needs, read from hostile files; and whether a host has it."""

from __future__ import annotations

import io
import random
import shutil
import struct
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sandbox.checks import artifacts
from sandbox.checks.elf_needs import MAX_NEEDED_BYTES, BadProgramError, ProgramNeeds, read_needs
from sandbox.checks.host_libraries import find_missing
from sandbox.errors import ErrorCode
from sandbox.models import ReleaseManifest
from sandbox.models.checks import ReleaseRule
from tests.unit.conftest import refused


def needs_of(path: Path) -> ProgramNeeds:
    with path.open("rb") as file:
        found = read_needs(file)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def program() -> Path:
    """A program of this host that is linked dynamically."""
    found = shutil.which("git") or sys.executable
    return Path(found).resolve()


def test_a_program_of_this_host(program: Path) -> None:
    needs = needs_of(program)
    assert "libc.so.6" in needs.needed
    assert Path(needs.interpreter).exists()
    assert needs.machine[0] in {1, 2}


def test_other_files_are_no_programs(tmp_path: Path) -> None:
    for content in (b"", b"#!/bin/sh\n", b"\x7fEL", b"MZ" * 40):
        assert read_needs(io.BytesIO(content)) is None


def test_damaged_programs_are_refused_and_never_anything_else(program: Path) -> None:
    """Cut at each of the first bytes, and with random bytes changed: an answer or `BadProgramError`."""
    whole = program.read_bytes()
    for size in range(16, 64):
        with pytest.raises(BadProgramError):
            read_needs(io.BytesIO(whole[:size]))
    pick = random.Random(1)  # noqa: S311 - reproducible, no secret
    refused = 0
    for _ in range(2000):
        damaged = bytearray(whole[: 1 << 16])
        for _ in range(8):
            damaged[pick.randrange(16, 1024)] = pick.randrange(256)
        try:
            read_needs(io.BytesIO(bytes(damaged)))
        except BadProgramError:
            refused += 1
    assert refused > 100


def manifest(needs: ProgramNeeds, *libraries: str) -> ReleaseManifest:
    return ReleaseManifest(
        repo_id="r",
        tree="1" * 40,
        commit="1" * 40,
        key="k",
        image_digest="",
        run_id="run-1",
        created_at=datetime.now(UTC),
        libraries=libraries or needs.needed,
        interpreters=(needs.interpreter,),
        machines=(needs.machine,),
    )


def test_this_host_has_what_its_own_program_needs(program: Path) -> None:
    assert find_missing(manifest(needs_of(program), "libc.so.6")) == ()


def test_what_the_host_lacks_is_named(program: Path, tmp_path: Path) -> None:
    needs = needs_of(program)
    names = ("libc.so.6", "libnot-there.so.1", "/usr/lib/libc.so.6", "../libc.so.6")
    assert find_missing(manifest(needs, *names)) == names[1:]
    assert find_missing(manifest(needs, "libc.so.6"), tmp_path) == ("libc.so.6", needs.interpreter)


def test_an_interpreter_that_no_host_can_have_is_missing(program: Path) -> None:
    """A hostile program may name what the file system refuses to look for."""
    name = f"/lib/{'x' * 300}"
    found = manifest(needs_of(program), "libc.so.6").model_copy(update={"interpreters": (name,)})
    assert find_missing(found) == (name,)


def test_a_library_of_another_architecture_does_not_count(program: Path, tmp_path: Path) -> None:
    """Directories are those that ld.so.conf names, with its includes."""
    needs = needs_of(program)
    (tmp_path / "etc/ld.so.conf.d").mkdir(parents=True)
    (tmp_path / "etc/ld.so.conf").write_text("# none\ninclude /etc/ld.so.conf.d/*.conf\n")
    (tmp_path / "etc/ld.so.conf.d/a.conf").write_text("/opt/lib\n")
    (tmp_path / "opt/lib").mkdir(parents=True)
    library = tmp_path / "opt/lib/libx.so.1"
    shutil.copy(program, library)
    loader = tmp_path / needs.interpreter.lstrip("/")
    loader.parent.mkdir(parents=True, exist_ok=True)
    loader.touch()
    assert find_missing(manifest(needs, "libx.so.1"), tmp_path) == ()
    content = bytearray(library.read_bytes())
    content[18] ^= 0xFF  # e_machine
    library.write_bytes(content)
    assert find_missing(manifest(needs, "libx.so.1"), tmp_path) == ("libx.so.1",)


def elf(strings: bytes, offsets: list[int]) -> bytes:
    """A program for 64 bits that needs the libraries with names at these offsets."""
    entries = [(1, offset) for offset in offsets] + [(5, 64 + 2 * 56), (0, 0)]
    dynamic = b"".join(struct.pack("<qQ", *entry) for entry in entries)
    at = 64 + 2 * 56 + len(strings)
    head = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, 2, 0, 0, 0)
    load = struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, at, at, 1)
    segment = struct.pack("<IIQQQQQQ", 2, 6, at, at, at, len(dynamic), len(dynamic), 8)
    return head + load + segment + strings + dynamic


def test_s190_names_of_libraries_are_bounded_in_a_program_and_in_a_release(tmp_path: Path) -> None:
    """Control: a file of 20 KB had 4 MB of names, and a release may have 20,000 files."""
    needs = read_needs(io.BytesIO(elf(b"libc.so.6\0", [0, 0])))
    assert needs is not None
    assert needs.needed == ("libc.so.6",)
    with pytest.raises(BadProgramError):
        read_needs(io.BytesIO(elf(b"x" * 4000 + b"\0", list(range(MAX_NEEDED_BYTES // 4000 + 2)))))
    room, target = tmp_path / "room", tmp_path / "target"
    (room / "out").mkdir(parents=True)
    target.mkdir()
    for number in range(70):
        strings = b"%04d" % number * 1000 + b"\0"
        (room / "out" / str(number)).write_bytes(elf(strings, list(range(16))))
    with refused(ErrorCode.QUOTA_EXCEEDED):
        artifacts.collect_artifacts(room, ReleaseRule(artifacts=("out",)), target)


def test_s208_the_time_for_the_programs_of_a_release_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """120 bytes can say that they have 4,096 segments, all in one place. Control: with time they are taken; what
    copying takes does not count.
    """
    head = struct.pack("<HHIQQQIHHHHHH", 2, 62, 1, 0, 64, 0, 0, 64, 0, 4096, 0, 0, 0)
    slow = b"\x7fELF\x02\x01\x01" + bytes(9) + head + struct.pack("<IIQQQQQQ", 1, 0, 0, 0, 0, 0, 0, 0)
    (tmp_path / "room" / "out").mkdir(parents=True)
    for number in range(40):
        (tmp_path / "room" / "out" / f"{number}").write_bytes(slow)
    rule = ReleaseRule(artifacts=("out/",))
    (tmp_path / "all").mkdir()
    assert len(artifacts.collect_artifacts(tmp_path / "room", rule, tmp_path / "all").files) == 40
    monkeypatch.setattr(artifacts, "READING_S", 0.05)
    (tmp_path / "few").mkdir()
    with refused(ErrorCode.QUOTA_EXCEEDED) as caught:
        artifacts.collect_artifacts(tmp_path / "room", rule, tmp_path / "few")
    assert "0.05 s" in caught.value.brief
    assert len(list((tmp_path / "few" / "out").iterdir())) < 40
    (tmp_path / "room" / "plain").write_bytes(bytes(100 * 1024**2))
    (tmp_path / "large").mkdir()
    plain = rule.model_copy(update={"artifacts": ("plain",)})
    assert len(artifacts.collect_artifacts(tmp_path / "room", plain, tmp_path / "large").files) == 1
