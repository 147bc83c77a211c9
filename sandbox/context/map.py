"""The repository map: the most important symbols, within a token budget.

The score of a definition grows with the number of other files that mention its name. Types and functions score higher
than variables; tests and deep directories score lower. Tokens are estimated at four characters each.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from sandbox.context.ctags import Symbol
from sandbox.models import RepoMap

CHARACTERS_PER_TOKEN = 4
_KINDS = {
    **dict.fromkeys(("class", "struct", "interface", "trait", "enum", "module", "namespace", "package"), 3.0),
    **dict.fromkeys(("function", "method", "func", "macro", "prototype", "member", "subroutine"), 2.0),
    **dict.fromkeys(("typedef", "type", "union", "constant"), 1.5),
}
_OTHER_KIND = 0.5
_DISTINCTIVE_LENGTH = 8  # shorter names, like `run` or `file`, are common words and score lower
_WORD = re.compile(rb"[A-Za-z_][A-Za-z0-9_]{2,99}")
_TEST_PATH = re.compile(r"(^|/)(tests?|testing|spec|examples?|fixtures?|vendor|third_party)(/|$)|(^|/)test_[^/]*$")


def count_mentions(contents: Iterable[bytes]) -> Counter[str]:
    """Count in how many files each word occurs."""
    counts: Counter[str] = Counter()
    for content in contents:
        counts.update(word.decode() for word in set(_WORD.findall(content)))
    return counts


def build_map(symbols: Sequence[Symbol], counts: Counter[str], token_budget: int, files_total: int) -> RepoMap:
    """Build the map, never longer than the budget."""
    weights = {path: _weight(path) for path in {s.path for s in symbols}}
    ranked = sorted(symbols, key=lambda s: (-_score(s, counts) * weights[s.path], s.path, s.line))
    left = token_budget * CHARACTERS_PER_TOKEN
    chosen: dict[str, list[Symbol]] = defaultdict(list)
    for symbol in ranked:
        cost = len(_line(symbol)) + (0 if symbol.path in chosen else len(_header(symbol.path)))
        if cost <= left:
            chosen[symbol.path].append(symbol)
            left -= cost
    text = "".join(
        _header(path) + "".join(_line(s) for s in sorted(found, key=lambda s: s.line)) for path, found in chosen.items()
    )
    return RepoMap(
        map=text,
        tokens_estimated=math.ceil(len(text) / CHARACTERS_PER_TOKEN),
        files_covered=len(chosen),
        files_total=files_total,
    )


def _score(symbol: Symbol, counts: Counter[str]) -> float:
    elsewhere = max(0, counts[symbol.name] - 1)
    score = _KINDS.get(symbol.kind, _OTHER_KIND) * (1 + math.log2(1 + elsewhere))
    score *= min(1.0, len(symbol.name) / _DISTINCTIVE_LENGTH)
    if symbol.name.startswith("_"):
        score *= 0.3
    return score


def _weight(path: str) -> float:
    return (0.3 if _TEST_PATH.search(path) else 1.0) / (1 + 0.1 * path.count("/"))


def _header(path: str) -> str:
    return f"{path}\n"


def _line(symbol: Symbol) -> str:
    scope = f"{symbol.scope}." if symbol.scope else ""
    return f"  {symbol.line}: {symbol.kind} {scope}{symbol.name}{symbol.signature}\n"
