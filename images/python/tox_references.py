"""What settings of tox take from other sections, `{[core]deps}`: read as data, and a few times only."""

import re
from collections.abc import Callable, Iterable, Iterator
from configparser import ConfigParser
from dataclasses import dataclass

_REFERENCE = re.compile(r"\{\[([\w:.-]{1,100})\]([\w.-]{1,100})\}")
_MAX_DEPTH = 3  # sections may take each other; sandbox/dependencies/test_environments.py has the same limits
_EACH = 32  # characters that a setting costs which is put into another, beside its own


@dataclass
class Sections:
    """The sections of a file. `left`: how many more characters may be taken from one into another."""

    parser: ConfigParser
    left: int = 64 * 1024

    def list_lines(self, text: str, select: Callable[[str], Iterable[str]], depth: int = 0) -> Iterator[str]:
        """The lines of a setting that `select` chooses, with those of other sections in the place of what refers to
        them. What is not there, or is too much, stays.
        """
        for line in select(text):
            found = [self.find(match) for match in _REFERENCE.finditer(line)]
            self.left -= sum(len(one) + _EACH for one in found)
            is_much = depth >= _MAX_DEPTH or self.left < 0
            if found and not is_much:
                yield from self.list_lines(_REFERENCE.sub(self.find, line), select, depth + 1)
            else:
                yield line

    def find(self, match: re.Match[str]) -> str:
        """An environment has what `testenv` says where it says nothing itself."""
        is_environment = match[1].startswith("testenv:")
        general = self.parser.get("testenv", match[2], fallback=match[0]) if is_environment else match[0]
        return self.parser.get(match[1], match[2], fallback=general)
