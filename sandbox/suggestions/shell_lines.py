"""Read lines of shell scripts as data: which packages they install, and which of them are plain commands.

A plain command has fixed words: no operator, no expansion, no builtin that changes the shell. Only such a command means
the same without a shell, as the `argv` of a check.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from sandbox.lazy_dataclass import dataclass
from sandbox.lazy_pattern import lazy_pattern
from sandbox.suggestions.command_words import (
    APT,
    APT_VALUES,
    CHANGES_SHELL,
    COMPOUND,
    NETWORK_COMMANDS,
    NETWORK_TOOLS,
    SAYS_ONLY,
    SUDO_VALUES,
)

_ASSIGNMENT = lazy_pattern(r"[A-Za-z_][A-Za-z0-9_]*=")
_OPERATORS = frozenset(";&|<>()")
_SEPARATORS = frozenset({"&&", ";"})
_EXPANDED = lazy_pattern(r"[$`*?\[\]{}~]")
_COMMENT = lazy_pattern(r"(?:^|\s)#")
_EXPRESSION = lazy_pattern(r"\$\{\{[^{}]*\}\}")  # of GitHub: one word, also with spaces
_SHELL_OPTION = lazy_pattern(r"set [+-][A-Za-z]+( pipefail)?$")


@dataclass(frozen=True)
class PlainCommand:
    """A command with fixed words. `env`: the assignments before it."""

    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()


def join_lines(script: str) -> Iterator[str]:
    """The logical lines of a script: a backslash at the end joins two. Not comments, `set -e` and empty lines."""
    for line in script.replace("\r\n", "\n").replace("\\\n", " ").split("\n"):
        text = _without_comment(line).strip()
        if text and not _SHELL_OPTION.match(text):
            yield text


def _without_comment(line: str) -> str:
    """A line up to a `#` at the start of a word. One before a quote may be in it, so it begins no comment here.

    The last quote is looked for first: an expression would look for it again after each `#`.
    """
    after_quotes = max(line.rfind("'"), line.rfind('"')) + 1
    comment = _COMMENT.search(line, after_quotes)
    return line[: comment.start()] if comment else line


def parse_command(line: str) -> PlainCommand:
    """The command of one logical line. Raises: ValueError, which says why it is not a plain one."""
    if _EXPANDED.search(line):
        raise ValueError("only a shell or the CI knows its values")
    if not line.replace("\t", " ").isprintable():
        raise ValueError("it has characters that cannot be seen")
    if "#" in line:
        raise ValueError("it may hold a comment")
    words = _split(line)
    if any(set(word) <= _OPERATORS for word in words):
        raise ValueError("it needs a shell")
    env = []
    while words and _ASSIGNMENT.match(words[0]):
        name, _, value = words.pop(0).partition("=")
        env.append((name, value))
    if not words:
        raise ValueError("it changes the shell")
    _require_usable(words)
    return PlainCommand(tuple(words), tuple(env))


def is_compound(line: str) -> bool:
    """Whether it is part of a construct of several lines, so that no line of the script can stand alone."""
    try:
        _split(line)
    except ValueError:  # an open quote
        return True
    return line.split()[0].rstrip(";") in COMPOUND or "<<" in line or line.endswith(("{", "(", "|", "&&", "||"))


def changes_shell(line: str) -> bool:
    """Whether the lines after it depend on it: another directory, or other variables."""
    words = line.split()
    return words[0] in CHANGES_SHELL or all(_ASSIGNMENT.match(word) for word in words)


def find_installed_packages(line: str) -> Iterator[str]:
    """The words that `apt-get install` and the like have as packages, also after `sudo` and between `&&`.

    They are text of the repository: the caller validates them.
    """
    line = _EXPRESSION.sub(lambda found: "".join(found[0].split()), line)
    for words in _list_commands(line):
        yield from _packages_of(words)


def only_installs_packages(line: str) -> bool:
    """Whether a line is only `apt-get update`, `apt-get install` and the like."""
    commands = _list_commands(line)
    return bool(commands) and all(words[:1] and words[0] in APT for words in map(_strip_prefixes, commands))


def _list_commands(line: str) -> list[list[str]]:
    """The words of each command between `&&` and `;`. Empty for a line with an open quote."""
    commands: list[list[str]] = [[]]
    try:
        words = _split(line)
    except ValueError:
        return []
    for word in words:
        if word in _SEPARATORS:
            commands.append([])
        else:
            commands[-1].append(word)
    return [command for command in commands if command]


def _packages_of(words: list[str]) -> Iterator[str]:
    plain = _without_options(_strip_prefixes(words), APT_VALUES)
    if len(plain) < 2 or plain[0] not in APT or plain[1] != "install":
        return
    for word in plain[2:]:
        if set(word) & _OPERATORS:
            return
        yield word.partition("=")[0].partition(":")[0]


def _strip_prefixes(words: Sequence[str]) -> list[str]:
    """The words of a command without `sudo`, its options, and assignments."""
    rest = list(words)
    while rest and (rest[0] == "sudo" or rest[0].startswith("-") or _ASSIGNMENT.match(rest[0])):
        takes_value = rest[0] in SUDO_VALUES
        del rest[: 2 if takes_value else 1]
    return rest


def _without_options(words: Sequence[str], with_value: frozenset[str]) -> list[str]:
    found, skip = [], False
    for word in words:
        if skip:
            skip = False
        elif word.startswith("-"):
            skip = word in with_value
        else:
            found.append(word)
    return found


def _split(line: str) -> list[str]:
    """The words and operators of a line. Raises: ValueError for an open quote."""
    reader = shlex.shlex(line, posix=True, punctuation_chars="".join(sorted(_OPERATORS)))
    reader.whitespace_split = True
    reader.commenters = ""
    try:
        return list(reader)
    except ValueError as error:
        raise ValueError("it has an open quote") from error


def _require_usable(words: Sequence[str]) -> None:
    name = words[0].rpartition("/")[2]
    if not words[0]:
        raise ValueError("it has no name")
    if name in COMPOUND | CHANGES_SHELL:
        raise ValueError("it changes the shell")
    if name in SAYS_ONLY:
        raise ValueError("it is no check")
    if name in {"sudo", "su", "doas"}:
        raise ValueError("it asks for root, which no check has")
    plain = _without_options(words[1:], frozenset())
    module = plain[0] if name.startswith("python") and "-m" in words and plain else name
    first = plain[0] if plain else ""
    if module in NETWORK_TOOLS or first in NETWORK_COMMANDS.get(name, set()):
        raise ValueError("it fetches or sends something, and no check has a network")
