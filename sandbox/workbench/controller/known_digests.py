"""The digests that entries of one journal are known to have had, by entry number: 40 bytes for each."""

from __future__ import annotations

import hashlib
from array import array
from bisect import bisect_left


class KnownDigests:
    """Filled with `add`, then compared with `confirm` while the journal is read. Numbers are kept in order.

    Of several digests for one number the last is valid.
    """

    def __init__(self) -> None:
        self._seqs = array("Q")
        self._digests = bytearray()
        self._seen = bytearray()

    def add(self, seq: int, digest: str) -> None:
        """Usually the next greater number; others cost a move of all that follow."""
        at, packed = self._find_place(seq), _pack(digest)
        if at < len(self._seqs) and self._seqs[at] == seq:
            self._digests[at * _SIZE : (at + 1) * _SIZE] = packed
            return
        self._seqs.insert(at, seq)
        self._digests[at * _SIZE : at * _SIZE] = packed
        self._seen.append(False)

    def confirm(self, seq: int, digest: str) -> bool:
        """Note that the entry exists. Returns False if another digest is known for it."""
        at = self._find_place(seq)
        if at == len(self._seqs) or self._seqs[at] != seq:
            return True
        self._seen[at] = True
        return self._digests[at * _SIZE : (at + 1) * _SIZE] == _pack(digest)

    def find_unseen(self) -> tuple[int, int] | None:
        """The least and the greatest number that was added and never confirmed, with any digest."""
        first = self._seen.find(False)
        return None if first < 0 else (self._seqs[first], self._seqs[self._seen.rfind(False)])

    def _find_place(self, seq: int) -> int:
        if not self._seqs or self._seqs[-1] < seq:
            return len(self._seqs)
        return bisect_left(self._seqs, seq)


_SIZE = hashlib.sha256().digest_size


def _pack(digest: str) -> bytes:
    """Of constant length for any text, also for one that is no digest."""
    return hashlib.sha256(digest.encode("utf-8", "replace")).digest()
