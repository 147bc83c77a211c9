"""Large contents in a shared store: cut into parts, each addressed by its content.

Everyone who may write to the store can put any content under any name, so each part that is read must have its digest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import StringConstraints

from sandbox.store.shared_store import SharedStore

PART_BYTES = 8 * 1024**2
"""Small enough that a store answers within its time, and that one part in memory does not matter."""

PartDigest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
"""sha256 of a part, in hex."""


class ChangedPartError(Exception):
    """A part in the store has another content than its name says."""


def read_parts(store: SharedStore, kind: str, digests: Iterable[str]) -> Iterator[bytes]:
    """The parts of a content, in order. `kind`: of content, as for `PartWriter`.

    Raises: `ChangedPartError`; OSError, also if one is not there.
    """
    for digest in digests:
        part = store.read(_name(kind, digest), PART_BYTES)
        if part is None:
            raise FileNotFoundError(f"part {digest[:12]} is not there")
        if hashlib.sha256(part).hexdigest() != digest:
            raise ChangedPartError(f"part {digest[:12]} has another content")
        yield part


@dataclass
class PartWriter:
    """A file that cuts what is written into parts, and puts them into a store. `kind`: begins their names."""

    store: SharedStore
    kind: str
    _held: bytearray = field(default_factory=bytearray)
    _digests: list[str] = field(default_factory=list)

    def write(self, content: bytes) -> int:
        """Raises: OSError."""
        self._held += content
        while len(self._held) >= PART_BYTES:
            self._cut()
        return len(content)

    def finish(self) -> tuple[str, ...]:
        """The digests of all parts, in order. Raises: OSError."""
        if self._held:
            self._cut()
        return tuple(self._digests)

    def _cut(self) -> None:
        """Written also if it is there: what is there may be another's, with other content."""
        part = bytes(self._held[:PART_BYTES])
        del self._held[:PART_BYTES]
        self._digests.append(hashlib.sha256(part).hexdigest())
        self.store.write(_name(self.kind, self._digests[-1]), part)


def _name(kind: str, digest: str) -> str:
    return f"{kind}-part-{digest}"
