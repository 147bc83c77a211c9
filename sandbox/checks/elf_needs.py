"""What a program of a guest needs on a host: its architecture, its dynamic linker, its shared libraries. Pure.

The file is hostile data: every count and offset is bounded, and it is never loaded or run. Source: elf(5).
"""

from __future__ import annotations

import struct
from typing import BinaryIO

from sandbox.lazy_dataclass import dataclass

MAX_DYNAMIC_BYTES = 1024**2
MAX_NAMES = 1000
MAX_NAME_BYTES = 4096
MAX_NEEDED_BYTES = 64 * 1024
"""Of the names of all libraries that one file needs. A program of GNOME that needs 200 has 5 KiB; entries of a hostile
one can all name the same kilobytes."""
_MAGIC = b"\x7fELF"
_PT_LOAD, _PT_DYNAMIC, _PT_INTERP = 1, 2, 3
_DT_NULL, _DT_NEEDED, _DT_STRTAB, _DT_SONAME = 0, 1, 5, 14
_MAX_SEGMENTS = 4096


class BadProgramError(ValueError):
    """A file that begins as an ELF file and is none."""


@dataclass(frozen=True)
class ProgramNeeds:
    """`machine`: ELF class, byte order and architecture. `interpreter`, `soname`: '' for none."""

    machine: tuple[int, int, int]
    interpreter: str
    needed: tuple[str, ...]
    soname: str


@dataclass(frozen=True)
class _Segment:
    kind: int
    offset: int
    address: int
    size: int


def read_needs(file: BinaryIO) -> ProgramNeeds | None:
    """The needs of a program or library; None for any other file. Raises: `BadProgramError`."""
    ident = file.read(16)
    if ident[:4] != _MAGIC:
        return None
    try:
        return _read(file, ident)
    except (struct.error, IndexError, OverflowError, OSError) as error:  # OSError: a seek to a negative offset
        raise BadProgramError(str(error)) from error


def _read(file: BinaryIO, ident: bytes) -> ProgramNeeds:
    bits, order = ident[4], {1: "<", 2: ">"}.get(ident[5])
    if bits not in {1, 2} or order is None:
        raise BadProgramError("an unknown class or byte order")
    wide = bits == 2
    head = struct.Struct(order + ("HHIQQQIHHHHHH" if wide else "HHIIIIIHHHHHH"))
    fields = head.unpack(_take(file, 16, head.size))
    machine, first, entry_size, count = fields[1], fields[4], fields[8], fields[9]
    if count > _MAX_SEGMENTS:
        raise BadProgramError(f"{count} segments")
    segments = [_read_segment(file, order, first + i * entry_size, wide=wide) for i in range(count)]
    interpreter = next((_text(_take(file, s.offset, min(s.size, MAX_NAME_BYTES))) for s in segments
                        if s.kind == _PT_INTERP), "")  # fmt: skip
    needed, soname = _read_dynamic(file, order, segments, wide=wide)
    return ProgramNeeds((bits, ident[5], machine), interpreter, needed, soname)


def _read_segment(file: BinaryIO, order: str, at: int, *, wide: bool) -> _Segment:
    shape = struct.Struct(order + ("IIQQQQQQ" if wide else "IIIIIIII"))
    fields = shape.unpack(_take(file, at, shape.size))
    if wide:
        kind, _, offset, address, _, size, _, _ = fields
    else:
        kind, offset, address, _, size, _, _, _ = fields
    return _Segment(kind, offset, address, size)


def _read_dynamic(file: BinaryIO, order: str, segments: list[_Segment], *, wide: bool) -> tuple[tuple[str, ...], str]:
    """The names of needed libraries, and the file's own."""
    dynamic = next((s for s in segments if s.kind == _PT_DYNAMIC), None)
    if dynamic is None:
        return (), ""
    if dynamic.size > MAX_DYNAMIC_BYTES:
        raise BadProgramError(f"a dynamic section of {dynamic.size} bytes")
    shape = struct.Struct(order + ("qQ" if wide else "iI"))
    data = _take(file, dynamic.offset, dynamic.size)
    entries: list[tuple[int, int]] = []
    for tag, value in shape.iter_unpack(data[: len(data) - len(data) % shape.size]):
        if tag == _DT_NULL:
            break
        entries.append((tag, value))
    table = next((value for tag, value in entries if tag == _DT_STRTAB), None)
    if table is None:
        return (), ""
    strings = _file_offset(segments, table)
    names = [value for tag, value in entries if tag == _DT_NEEDED]
    if len(names) > MAX_NAMES:
        raise BadProgramError(f"{len(names)} needed libraries")
    own = [value for tag, value in entries if tag == _DT_SONAME][:1]
    needed, size = dict[str, None](), 0
    for at in names:
        name = _text(_take_up_to(file, strings + at, MAX_NAME_BYTES))
        size += len(name)
        if size > MAX_NEEDED_BYTES:
            raise BadProgramError(f"more than {MAX_NEEDED_BYTES} bytes of names of libraries")
        needed[name] = None
    return tuple(needed), "".join(_text(_take_up_to(file, strings + at, MAX_NAME_BYTES)) for at in own)


def _file_offset(segments: list[_Segment], address: int) -> int:
    for segment in segments:
        if segment.kind == _PT_LOAD and segment.address <= address < segment.address + segment.size:
            return address - segment.address + segment.offset
    raise BadProgramError("its string table is in no segment")


def _take(file: BinaryIO, at: int, size: int) -> bytes:
    data = _take_up_to(file, at, size)
    if len(data) < size:
        raise BadProgramError("it is shorter than it says")
    return data


def _take_up_to(file: BinaryIO, at: int, size: int) -> bytes:
    file.seek(at)
    return file.read(size)


def _text(raw: bytes) -> str:
    """A string that ends with NUL; one that does not, or is no plain text, is refused."""
    text, end, _ = raw.partition(b"\0")
    if not end or not text.isascii() or not text.decode("ascii", "replace").isprintable():
        raise BadProgramError("a name that is no plain text")
    return text.decode("ascii")
