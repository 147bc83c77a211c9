"""Parse .ini files of a repository, such as setup.cfg and tox.ini, in bounded time."""

from __future__ import annotations

import re
from configparser import ConfigParser
from configparser import Error as ConfigError

_MAX_LINES = 5_000  # the parser's time grows with the square of those that it does not understand
_MANY_SPACES = re.compile(r"[^\S\n]{101}")  # the parser's time grows with the square of them


def parse(text: str) -> ConfigParser:
    """The sections of a file, without interpolation. Raises: configparser.Error, also for many lines or spaces."""
    if text.count("\n") >= _MAX_LINES:
        raise ConfigError(f"more than {_MAX_LINES} lines")
    if _MANY_SPACES.search(text):
        raise ConfigError("too many spaces in a row")
    parser = ConfigParser(interpolation=None, strict=False)
    parser.read_string(text)
    return parser
