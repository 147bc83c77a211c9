"""The repository map: the most important symbols, within a token budget.

The score of a definition grows with the number of files that mention its name. Types and functions score higher than
variables; tests and deep directories score lower. Code of others is no part of it. Tokens are estimated at four
characters each.
"""

from __future__ import annotations

import math
import posixpath
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from sandbox.models import RepoMap
from sandbox.store.mapped_tree import Scored, Symbol
from sandbox.store.symbol_index import RankedSymbols
from sandbox.text import one_line

CHARACTERS_PER_TOKEN = 4
MAX_TOKENS = 100_000
MAX_RANKED = MAX_TOKENS * CHARACTERS_PER_TOKEN // 20  # a line of the map has more characters
_KINDS = {
    **dict.fromkeys(("class", "struct", "interface", "trait", "enum", "module", "namespace", "package"), 3.0),
    **dict.fromkeys(("function", "method", "func", "macro", "prototype", "member", "subroutine"), 2.0),
    **dict.fromkeys(("typedef", "type", "union", "constant"), 1.5),
}
_OTHER_KIND = 0.5
_DISTINCTIVE_LENGTH = 8  # shorter names, like `run` or `file`, are common words and score lower
_DATA_SUFFIXES = (
    *(".json", ".csv", ".tsv", ".svg", ".lock", ".map", ".min.js", ".min.css", ".xml", ".yaml", ".yml", ".po", ".pot"),
    *(".txt", ".log", ".png", ".jpg", ".jpeg", ".gif", ".ico", ".pdf", ".zip", ".gz", ".xz", ".bin", ".dat", ".wasm"),
    *(".ttf", ".woff", ".woff2", ".mp3", ".mp4", ".wav", ".ogg", ".jar", ".so", ".a", ".o", ".exe", ".dll", ".ipynb"),
)
_SHORTEST_WORD, _WORD_CHARS = 3, 100
MAX_WORDS = 500_000
"""Different words that are counted. 16 MiB of C headers have 115,000; 16 MiB of made-up words have three million, which
take 800 MB."""
_CHUNK = 100_000  # symbols with a score that are held at once
_WORD = re.compile(rb"[A-Za-z_][A-Za-z0-9_]{%d,%d}" % (_SHORTEST_WORD - 1, _WORD_CHARS - 1))
_ONLY_WORDS = bytes(c if re.match(rb"\w", bytes([c])) else ord(" ") for c in range(256))
_LAST_DIGIT = ord("9")
_TEST_PATH = re.compile(r"(^|/)(tests?|testing|spec|examples?|fixtures?)(/|$)|(^|/)test_[^/]*$")


def count_mentions(contents: Iterable[bytes]) -> Counter[str]:
    """Count in how many files each word occurs. Past `MAX_WORDS` no new words are added."""
    counts: Counter[bytes] = Counter()
    for content in contents:  # a run of word characters is a word, with few exceptions: faster than to match each
        runs = set(content.translate(_ONLY_WORDS).split())
        odd = [run for run in runs if run[0] <= _LAST_DIGIT or len(run) > _WORD_CHARS]
        if odd:
            runs.difference_update(odd)
            runs.update(_WORD.findall(b" ".join(odd)))
        counts.update(runs if len(counts) < MAX_WORDS else runs & counts.keys())
    return Counter({word.decode(): count for word, count in counts.items() if len(word) >= _SHORTEST_WORD})


def score_symbols(files: Iterable[tuple[str, Sequence[Symbol]]], counts: Mapping[str, int]) -> Iterator[Scored]:
    """The symbols of these files, unsorted."""
    factors = [1 + math.log2(max(1, mentions)) for mentions in range(max(counts.values(), default=0) + 1)]
    for path, symbols in files:
        weight = -_weight(path)
        for symbol in symbols:  # a large tree has 300,000
            name, line, kind = symbol[:3]
            score = weight * _KINDS.get(kind, _OTHER_KIND) * factors[counts.get(name, 0)]
            if len(name) < _DISTINCTIVE_LENGTH:
                score *= len(name) / _DISTINCTIVE_LENGTH
            if name[0] == "_":
                score *= 0.3
            yield score, path, line, symbol


def choose_best(scored: Iterable[Scored]) -> list[Scored]:
    """As many as the largest map can show, the best first."""
    best: list[Scored] = []
    worst, left = math.inf, iter(scored)
    while chunk := list(islice(left, _CHUNK)):
        best = sorted([*best, *(each for each in chunk if each[0] <= worst)])[:MAX_RANKED]
        if len(best) == MAX_RANKED:
            worst = best[-1][0]
    return best


def describe_best(best: Iterable[Scored]) -> tuple[list[tuple[str, int, str]], bool]:
    """Path, line and text of each, and whether there are more than the largest map can show."""
    ranked, left = [], MAX_TOKENS * CHARACTERS_PER_TOKEN
    for _, path, line, symbol in best:
        text = _describe(symbol)
        ranked.append((path, line, text))
        left -= len(_line(line, text))
        if left < 0:
            return ranked, True
    return ranked, len(ranked) >= MAX_RANKED


def build_map(found: RankedSymbols, token_budget: int) -> RepoMap:
    """Build the map, never longer than the budget. Invisible characters of a symbol are spelled out: models read some
    of them, which people do not see.
    """
    left = token_budget * CHARACTERS_PER_TOKEN
    chosen: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for path, line, text in found.ranked:
        symbol = text if text.isascii() else one_line(text)
        cost = len(_line(line, symbol)) + (0 if path in chosen else len(_header(path)))
        if cost <= left:
            chosen[path].append((line, symbol))
            left -= cost
    text = "".join(
        _header(path) + "".join(_line(line, symbol) for line, symbol in sorted(lines)) for path, lines in chosen.items()
    )
    return RepoMap(
        map=text,
        tokens_estimated=math.ceil(len(text) / CHARACTERS_PER_TOKEN),
        files_covered=len(chosen),
        files_total=found.files_total,
        vendored=found.vendored,
    )


def is_code(path: str) -> bool:
    """Whether ctags is asked about a file: not about data, of which it would list each key as a definition."""
    name = posixpath.basename(path).lower()
    return name == "cmakelists.txt" or not name.endswith(_DATA_SUFFIXES)


def _describe(symbol: Symbol) -> str:
    name, _, kind, scope, signature = symbol
    return f"{kind} {scope}.{name}{signature}" if scope else f"{kind} {name}{signature}"


def _weight(path: str) -> float:
    return (0.3 if _TEST_PATH.search(path) else 1.0) / (1 + 0.1 * path.count("/"))


def _header(path: str) -> str:
    return f"{path}\n"


def _line(line: int, text: str) -> str:
    return f"  {line}: {text}\n"
