"""Read the requirements in cpanfile, Makefile.PL and Build.PL, which are Perl programs, as data: no line is run.

Text becomes words: strings without interpolation, numbers, names, and punctuation. Known statements of a cpanfile
(`requires 'A', '1.0';`, `on test => sub { ... };`), and lists of literal pairs (`PREREQ_PM => { 'A' => '1.0' }`), are
read. What is computed is refused and said. Time and memory are linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sandbox.dependencies.collection import Collection
from sandbox.dependencies.perl_values import PHASES, PerlWish, add_wish
from sandbox.models.dependencies import RefusalReason

MAX_WORDS = 50_000
_STATEMENT_WORDS = 20  # of Module::Install
_TOKEN = re.compile(
    r"""(?P<skip>\s+|\#[^\n]*|^=[a-z]\w*[^\n]*(?:\n(?!=cut)[^\n]*)*(?:\n=cut[^\n]*)?)
      | '(?P<single>(?:[^'\\]|\\.){0,300})'
      | "(?P<double>[^"\\$@]{0,300})"
      | q\((?P<quoted>[^()\\]{0,300})\) | q\{(?P<braced>[^{}\\]{0,300})\}
      | (?P<number>v?[0-9][0-9_]*(?:\.[0-9_]+)*(?!\w))
      | (?P<word>[A-Za-z_]\w*(?:::\w+)*)
      | (?P<mark>=>|.)""",
    re.VERBOSE | re.DOTALL | re.MULTILINE | re.ASCII,
)
_END = re.compile(r"^__(?:END|DATA)__$", re.MULTILINE)
_STATEMENTS = {"requires": "", "test_requires": "test", "build_requires": "build", "configure_requires": "configure"}
_NOT_FETCHED = frozenset({"recommends", "suggests", "conflicts", "author_requires", "feature", "mirror", "use", "no"})
_LISTS = {
    "PREREQ_PM": "runtime",
    "BUILD_REQUIRES": "build",
    "TEST_REQUIRES": "test",
    "CONFIGURE_REQUIRES": "configure",
    "requires": "runtime",
    "build_requires": "build",
    "test_requires": "test",
    "configure_requires": "configure",
}
_ELSEWHERE: Mapping[str, RefusalReason] = {
    "git": RefusalReason.VERSION_CONTROL,
    "url": RefusalReason.URL,
    "dist": RefusalReason.URL,
    "mirror": RefusalReason.OPTION,
    "path": RefusalReason.PATH,
}


@dataclass(frozen=True)
class _Word:
    """`kind`: `value` (a string or number), `word` or `mark`."""

    kind: str
    text: str


def read_cpanfile(collection: Collection, path: str) -> list[PerlWish]:
    """The modules that a cpanfile asks for; those of features are optional, and not taken."""
    wishes: list[PerlWish] = []
    words = _split_words(collection, path)
    phases, at = ["runtime"], 0
    while at < len(words):
        word = words[at]
        if word.text == "}" and word.kind == "mark":
            phases = phases[:-1] or ["runtime"]
            at += 1
        elif word == _Word("mark", ";"):
            at += 1
        elif word == _Word("word", "on") and (phase := _open_phase(words, at)):
            phases.append(phase[0])
            at = phase[1]
        elif word.kind == "word" and word.text in _STATEMENTS:
            end = _find_end(words, at)
            _add_statement(collection, wishes, words[at:end], (phases[-1], path))
            at = end
        else:
            if not (word.kind == "word" and word.text in _NOT_FETCHED):
                collection.refuse(f"a statement that begins with {word.text}", RefusalReason.SYNTAX, path)
            at = _find_end(words, at)
    return [wish for wish in wishes if wish.phase in PHASES]


def read_literal_lists(collection: Collection, path: str) -> list[PerlWish]:
    """The modules in literal lists of a Makefile.PL or Build.PL, and in statements of Module::Install."""
    wishes: list[PerlWish] = []
    words = _split_words(collection, path)
    for at, word in enumerate(words):
        if word.kind == "mark" or word.text not in _LISTS or len(words) < at + 3:
            continue
        phase, following = _LISTS[word.text], words[at + 1]
        if following == _Word("mark", "=>") and words[at + 2] == _Word("mark", "{"):
            _add_pairs(collection, wishes, (words, at + 3), (phase, path))
        elif following.kind == "value" and word.text in _STATEMENTS:
            statement = words[at : at + _STATEMENT_WORDS]
            _add_statement(collection, wishes, statement[: _find_end(statement, 0)], (phase, path))
    return wishes


def _split_words(collection: Collection, path: str) -> list[_Word]:
    text = _END.split(collection.load_text(path), maxsplit=1)[0]
    found: list[_Word] = []
    for word in _list_words(text):
        if len(found) >= MAX_WORDS:
            collection.refuse(f"more than {MAX_WORDS} words", RefusalReason.LIMIT, path)
            return []
        found.append(word)
    return found


def _list_words(text: str) -> Iterator[_Word]:
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup
        if kind in {"single", "double", "quoted", "braced", "number"}:
            yield _Word("value", match[kind].replace("\\'", "'").strip())
        elif kind in {"word", "mark"}:
            yield _Word(kind, match[kind])


def _find_end(words: list[_Word], start: int) -> int:
    """Where the statement ends: after its `;`, or before the `}` of the block around it."""
    depth = 0
    for at in range(start, len(words)):
        word = words[at]
        if word.kind != "mark":
            continue
        if word.text in "{([":
            depth += 1
        elif word.text in "})]":
            depth -= 1
            if depth < 0:
                return at
            if depth == 0 and word.text == "}" and _is_block_end(words, at):
                return at + 1
        elif word.text == ";" and depth == 0:
            return at + 1
    return len(words)


def _is_block_end(words: list[_Word], at: int) -> bool:
    """Whether a statement such as `if (...) { ... }` ends here: what follows begins another one."""
    return at + 1 < len(words) and words[at + 1].kind == "word" and words[at + 1].text not in {"else", "elsif", "if"}


def _open_phase(words: list[_Word], at: int) -> tuple[str, int] | None:
    """The phase of `on PHASE => sub {`, and where its statements begin."""
    ahead = words[at + 1 : at + 5]
    texts = [word.text for word in ahead]
    if len(texts) == 4 and texts[1] in {"=>", ","} and texts[2:] == ["sub", "{"]:
        return texts[0], at + 5
    return None


def _add_statement(collection: Collection, wishes: list[PerlWish], words: list[_Word], where: tuple[str, str]) -> None:
    """`requires MODULE [, VERSION [, KEY => VALUE ...]]`."""
    phase, path = where
    at = next((at for at, word in enumerate(words) if at and word.kind != "mark"), 0)
    is_name = words[at].kind == "value" or words[at + 1 : at + 2] == [_Word("mark", "=>")]
    values = words[at : at + 1] + [word for word in words[at + 1 :] if word.kind != "mark"] if at and is_name else []
    marks = {word.text for word in words[1:] if word.kind == "mark"}
    shown = " ".join(word.text for word in words[:8] if word.text not in {",", ";", "=>"})
    if not values or marks - {"=>", ",", ";", "(", ")"}:
        return collection.refuse(shown, RefusalReason.SYNTAX, path)
    module, rest = values[0].text, values[1:]
    has_version = bool(rest) and rest[0].kind == "value"
    options = [word.text for word in rest[has_version:]]
    for name in options[::2]:
        if reason := _ELSEWHERE.get(name):
            return collection.refuse(shown, reason, path)
    versions = rest[0].text if has_version else "0"
    return add_wish(collection, wishes, PerlWish(module, versions or "0", _STATEMENTS[words[0].text] or phase), path)


def _add_pairs(
    collection: Collection, wishes: list[PerlWish], start: tuple[list[_Word], int], where: tuple[str, str]
) -> None:
    """`'A' => '1.0', B => 2, }`, up to the first that is no such pair. `start`: words, and where the list begins."""
    phase, path = where
    words, at = start
    while at + 2 < len(words) and words[at] != _Word("mark", "}"):
        module, arrow, versions = words[at : at + 3]
        following = words[at + 3] if at + 3 < len(words) else _Word("mark", "}")
        is_pair = module.kind != "mark" and arrow.text in {"=>", ","} and versions.kind == "value"
        if not is_pair or following.text not in {",", "}"}:
            return collection.refuse(f"a list that is not literal at {module.text}", RefusalReason.SYNTAX, path)
        add_wish(collection, wishes, PerlWish(module.text, versions.text or "0", phase), path)
        at += 3 if following.text == "}" else 4
    return None
