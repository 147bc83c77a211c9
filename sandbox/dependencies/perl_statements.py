"""Read the requirements in cpanfile, Makefile.PL and Build.PL, which are Perl programs, as data: no line is run.

Known statements of a cpanfile (`requires 'A', '1.0';`, `on test => sub { ... };`), and lists of literal pairs
(`PREREQ_PM => { 'A' => '1.0' }`), are read. What is computed, or depends on a condition, is refused and said. Time and
memory are linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from sandbox.dependencies.collection import Collection
from sandbox.dependencies.perl_values import PHASES, PerlWish, add_wish
from sandbox.dependencies.perl_words import PerlWord, list_words
from sandbox.models.dependencies import RefusalReason

MAX_WORDS = 50_000
_STATEMENT_WORDS = 20  # of Module::Install
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
_OPENING, _CLOSING = frozenset("{(["), frozenset("})]")
_SEPARATORS = (PerlWord("mark", ","), PerlWord("mark", "=>"))
_SEMICOLON = PerlWord("mark", ";")
_BEFORE_STATEMENT = (_SEMICOLON, PerlWord("mark", "}"))
_ELSEWHERE: Mapping[str, RefusalReason] = {
    "git": RefusalReason.VERSION_CONTROL,
    "url": RefusalReason.URL,
    "dist": RefusalReason.URL,
    "mirror": RefusalReason.OPTION,
    "path": RefusalReason.PATH,
}


def read_cpanfile(collection: Collection, path: str) -> list[PerlWish]:
    """The modules that a cpanfile asks for; those of features are optional, and not taken."""
    wishes: list[PerlWish] = []
    words = _split_words(collection, path)
    phases, at = ["runtime"], 0
    while at < len(words):
        word = words[at]
        if word.text == "}" and word.kind == "mark":
            if len(phases) > 1:
                phases.pop()
            at += 1
        elif word == _SEMICOLON:
            at += 1
        elif word == PerlWord("word", "on") and (phase := _open_phase(words, at)):
            phases.append(phase[0])
            at = phase[1]
        elif word.kind == "word" and word.text in _STATEMENTS:
            end = _find_end(words, at)
            _add_statement(collection, wishes, words[at:end], (phases[-1], path))
            at = max(end, at + 1)
        else:
            if not (word.kind == "word" and word.text in _NOT_FETCHED):
                collection.refuse(f"a statement that begins with {word.text}", RefusalReason.SYNTAX, path)
            at = max(_find_end(words, at), at + 1)
    return [wish for wish in wishes if wish.phase in PHASES]


def read_literal_lists(collection: Collection, path: str) -> list[PerlWish]:
    """The modules in literal lists of a Makefile.PL or Build.PL, and in statements of Module::Install."""
    wishes: list[PerlWish] = []
    words = _split_words(collection, path)
    depth = 0
    for at, word in enumerate(words):
        if word.kind == "mark":
            depth = max(0, depth + (word.text in _OPENING) - (word.text in _CLOSING))
        elif word.kind != "opaque" and word.text in _LISTS and len(words) >= at + 3:
            phase, following = _LISTS[word.text], words[at + 1]
            if following == PerlWord("mark", "=>") and words[at + 2] == PerlWord("mark", "{"):
                _add_pairs(collection, wishes, (words, at + 3), (phase, path))
            elif word.kind == "word" and word.text in _STATEMENTS and following.kind in {"value", "opaque"}:
                statement = words[at : at + _STATEMENT_WORDS]
                statement = statement[: _find_end(statement, 0)]
                if depth or (at and words[at - 1] not in _BEFORE_STATEMENT):
                    collection.refuse(_show(statement), RefusalReason.SYNTAX, path)  # in a condition, or in a list
                else:
                    _add_statement(collection, wishes, statement, (phase, path))
    return wishes


def _split_words(collection: Collection, path: str) -> list[PerlWord]:
    text = _END.split(collection.load_text(path), maxsplit=1)[0]
    found: list[PerlWord] = []
    for word in list_words(text):
        if len(found) >= MAX_WORDS:
            collection.refuse(f"more than {MAX_WORDS} words", RefusalReason.LIMIT, path)
            return []
        found.append(word)
    return found


def _find_end(words: list[PerlWord], start: int) -> int:
    """Where the statement ends: after its `;`, or before the `}` of the block around it."""
    depth = 0
    for at in range(start, len(words)):
        word = words[at]
        if word.kind != "mark":
            continue
        if word.text in _OPENING:
            depth += 1
        elif word.text in _CLOSING:
            depth -= 1
            if depth < 0:
                return at
            if depth == 0 and word.text == "}" and _is_block_end(words, at):
                return at + 1
        elif word.text == ";" and depth == 0:
            return at + 1
    return len(words)


def _is_block_end(words: list[PerlWord], at: int) -> bool:
    """Whether a statement such as `if (...) { ... }` ends here: what follows begins another one."""
    return at + 1 < len(words) and words[at + 1].kind == "word" and words[at + 1].text not in {"else", "elsif", "if"}


def _open_phase(words: list[PerlWord], at: int) -> tuple[str, int] | None:
    """The phase of `on PHASE => sub {`, and where its statements begin."""
    ahead = words[at + 1 : at + 5]
    texts = [word.text for word in ahead]
    if len(texts) == 4 and texts[1] in {"=>", ","} and texts[2:] == ["sub", "{"]:
        return texts[0], at + 5
    return None


def _add_statement(
    collection: Collection, wishes: list[PerlWish], words: list[PerlWord], where: tuple[str, str]
) -> None:
    """`requires MODULE [, VERSION [, KEY => VALUE ...]]`."""
    phase, path = where
    items = _split_items(words[1:])
    if not items:
        return collection.refuse(_show(words), RefusalReason.SYNTAX, path)
    has_version = len(items) > 1 and items[1].kind == "value" and len(items) % 2 == 0
    for option in items[1 + has_version :: 2]:
        if reason := _ELSEWHERE.get(option.text):
            return collection.refuse(_show(words), reason, path)
    if len(items) > 1 and not has_version and items[1].kind == "value":
        return collection.refuse(_show(words), RefusalReason.SYNTAX, path)
    versions = items[1].text if has_version else "0"
    wish = PerlWish(items[0].text, versions or "0", _STATEMENTS[words[0].text] or phase)
    return add_wish(collection, wishes, wish, path)


def _split_items(words: list[PerlWord]) -> list[PerlWord]:
    """The items of a list with commas, with or without brackets and an end; none if it is anything else."""
    words = words[:-1] if words[-1:] == [_SEMICOLON] else words
    if len(words) > 1 and words[0] == PerlWord("mark", "(") and words[-1] == PerlWord("mark", ")"):
        words = words[1:-1]
    items, separators = words[::2], words[1::2]
    is_list = all(item.kind in {"value", "word"} for item in items) and all(one in _SEPARATORS for one in separators)
    if not is_list or not items or not (items[0].kind == "value" or separators[:1] == [PerlWord("mark", "=>")]):
        return []
    return items


def _show(words: list[PerlWord]) -> str:
    return " ".join(word.text for word in words[:8] if word.text not in {",", ";", "=>"})


def _add_pairs(
    collection: Collection, wishes: list[PerlWish], start: tuple[list[PerlWord], int], where: tuple[str, str]
) -> None:
    """`'A' => '1.0', B => 2, }`, up to the first that is no such pair. `start`: words, and where the list begins."""
    phase, path = where
    words, at = start
    while at + 2 < len(words) and words[at] != PerlWord("mark", "}"):
        module, arrow, versions = words[at : at + 3]
        following = words[at + 3] if at + 3 < len(words) else PerlWord("mark", "}")
        is_pair = module.kind != "mark" and arrow.text in {"=>", ","} and versions.kind == "value"
        if not is_pair or following.text not in {",", "}"}:
            return collection.refuse(f"a list that is not literal at {module.text}", RefusalReason.SYNTAX, path)
        add_wish(collection, wishes, PerlWish(module.text, versions.text or "0", phase), path)
        at += 3 if following.text == "}" else 4
    return None
