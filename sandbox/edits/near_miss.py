"""Find the places in a file that are most similar to a text that is not in it. Pure, in linear time.

Theory. A caller that edits from memory gets white space wrong, or a word. A search without white space finds the first
kind exactly, at the cost of two copies of the file. Else the candidates are places where whole lines are equal, or
where a line has many of the three-byte pieces of the longest wanted line; each is then compared line by line. This is
not an edit distance, but a hostile file cannot make it slow.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import nlargest
from itertools import accumulate, islice

from sandbox.text import decode_for_display

SEARCH_LIMIT_BYTES = 1024**2
"""Bytes of a file that are searched for similar lines."""

TEXT_LIMIT_BYTES = 16 * 1024
"""Bytes of the wanted text that are compared."""

_MOST_LINES, _MOST_WANTED, _COMPARED = 20_000, 200, 1000  # compared: lines of the file, of the text; bytes per line
_BLANKS_BYTES = 2 * 1024**2  # largest file that is searched without white space
_PLACES = 3
_CANDIDATES = 20
_MIN_SIMILARITY, _MIN_SHARE_OF_BEST = 0.5, 0.9
_PIECES = 64
_LINES, _LINE, _TEXT = 12, 160, 600  # shown of one place: lines, characters per line, all characters
_BEFORE = 2  # lines shown before the first difference
_TRIVIAL = 3  # a shorter line occurs in too many places
_BLANK = b" \t\r\n\f\v"


@dataclass(frozen=True)
class NearPlace:
    """Lines `first` to `last` of a file, from 1, and their text."""

    first: int
    last: int
    text: str


@dataclass(frozen=True)
class NearMiss:
    """At most three places, the closest first. `white_space`: they differ from the text in white space only."""

    places: tuple[NearPlace, ...] = ()
    white_space: bool = False

    def describe(self) -> str:
        """Text for users: each place with its line numbers. Empty if there is none."""
        return "\n".join(f"{self._heading(place)}\n{_number_lines(place)}" for place in self.places)

    def as_data(self) -> list[dict[str, object]]:
        """The same facts for programs."""
        return [{"start_line": p.first, "end_line": p.last, "text": p.text} for p in self.places]

    def _heading(self, place: NearPlace) -> str:
        where = f"line {place.first}" if place.first == place.last else f"lines {place.first} to {place.last}"
        return f"{'only its white space differs from' if self.white_space else 'close to it:'} {where} of the file"


def find_near(content: bytes, wanted: bytes) -> NearMiss:
    """Find the places that are most similar to a text that is not in the file."""
    small = len(content) <= _BLANKS_BYTES
    places = tuple(islice(_find_ignoring_blanks(content, wanted), _PLACES)) if small else ()
    if places:
        return NearMiss(places, white_space=True)
    return NearMiss(tuple(_find_similar(content[:SEARCH_LIMIT_BYTES], wanted[:TEXT_LIMIT_BYTES])))


def _number_lines(place: NearPlace) -> str:
    return "\n".join(f"{number} | {line}" for number, line in enumerate(place.text.split("\n"), place.first))


def _place(lines: Sequence[bytes], first: int, last: int) -> NearPlace:
    """The lines from index `first` to `last`, cut to the limits of what is shown."""
    last = min(last, first + _LINES - 1)
    texts = (
        decode_for_display(line[: 4 * _LINE].removesuffix(b"\r")).replace("\n", " ")[:_LINE]
        for line in lines[first : last + 1]
    )
    kept = [text for text, size in _with_sizes(texts) if size <= _TEXT]
    return NearPlace(first + 1, first + max(len(kept), 1), "\n".join(kept))


def _with_sizes(texts: Iterable[str]) -> Iterator[tuple[str, int]]:
    size = 0
    for text in texts:
        size += len(text) + 1
        yield text, size


def _find_ignoring_blanks(content: bytes, wanted: bytes) -> Iterator[NearPlace]:
    bare, whole = wanted.translate(None, _BLANK), content.translate(None, _BLANK)
    at = whole.find(bare) if bare else -1
    if at < 0:
        return
    lines = content.split(b"\n")
    ends = list(accumulate(len(line.translate(None, _BLANK)) for line in lines))
    while at >= 0:
        yield _place(lines, bisect_right(ends, at), bisect_left(ends, at + len(bare)))
        at = whole.find(bare, at + len(bare))


# --- similar lines


def _find_similar(content: bytes, wanted: bytes) -> Iterator[NearPlace]:
    lines = content.split(b"\n", _MOST_LINES)[:_MOST_LINES]
    plain = [_normalize(line) for line in lines]
    looked_for = [_normalize(line) for line in wanted.strip(b"\r\n").split(b"\n")[:_MOST_WANTED]]
    pieces = [_pieces(line) for line in looked_for]
    starts = {*_starts_by_equal_lines(plain, looked_for), *_starts_by_pieces(plain, looked_for)}
    scored = sorted((-_similarity(plain, start, looked_for, pieces), start) for start in starts)
    taken: list[int] = []
    for score, start in scored:
        if -score < max(_MIN_SIMILARITY, -_MIN_SHARE_OF_BEST * scored[0][0]) or len(taken) == _PLACES:
            return
        if all(abs(start - other) >= len(looked_for) for other in taken):
            taken.append(start)
            yield _place(lines, *_lines_to_show(plain, start, looked_for))


def _normalize(line: bytes) -> bytes:
    return b" ".join(line[:_COMPARED].split())


def _pieces(line: bytes) -> list[bytes]:
    """A sample of the three-byte pieces of a line, spread over it."""
    found = [line[at : at + 3] for at in range(max(1, len(line) - 2))]
    return found[:: -(-len(found) // _PIECES)]


def _starts_by_equal_lines(plain: Sequence[bytes], wanted: Sequence[bytes]) -> list[int]:
    """Possible start lines of the text, by votes: each equal line votes for one start."""
    where = defaultdict[bytes, list[int]](list)
    for number, line in enumerate(wanted):
        if len(line) >= _TRIVIAL and len(where[line]) < _PLACES:
            where[line].append(number)
    votes = Counter(index - number for index, line in enumerate(plain) for number in where.get(line, ()))
    return [start for start, _ in votes.most_common(_CANDIDATES)]


def _starts_by_pieces(plain: Sequence[bytes], wanted: Sequence[bytes]) -> list[int]:
    """Possible start lines of the text, by the lines that share most pieces with its longest line."""
    number = max(range(len(wanted)), key=lambda n: len(wanted[n]))
    pieces = _pieces(wanted[number])
    found = ((_share_of_pieces(pieces, line), index) for index, line in enumerate(plain))
    best = nlargest(_CANDIDATES, found, key=lambda f: (f[0], -f[1]))
    return [index - number for part, index in best if part]


def _share_of_pieces(pieces: Sequence[bytes], line: bytes) -> float:
    return sum(piece in line for piece in pieces) / len(pieces)


def _similarity(plain: Sequence[bytes], start: int, wanted: Sequence[bytes], pieces: Sequence[list[bytes]]) -> float:
    """Similarity from 0 to 1: the share of each wanted line, weighted by length, in the line opposite to it."""
    total = sum(map(len, wanted)) or 1
    pairs = ((n, plain[start + n]) for n in range(len(wanted)) if 0 <= start + n < len(plain))
    return sum(len(wanted[n]) * (wanted[n] == line or _share_of_pieces(pieces[n], line)) for n, line in pairs) / total


def _lines_to_show(plain: Sequence[bytes], start: int, wanted: Sequence[bytes]) -> tuple[int, int]:
    """Indexes of the first and last line to show; a long place starts just before the first difference."""
    first, last = max(0, start), min(len(plain), start + len(wanted)) - 1
    if last - first < _LINES:
        return first, last
    differs = next((i for i in range(first, last + 1) if plain[i] != wanted[i - start]), first)
    return max(first, min(differs - _BEFORE, last + 1 - _LINES)), last
