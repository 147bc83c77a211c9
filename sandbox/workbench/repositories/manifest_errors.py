"""Where a manifest of a repository cannot be parsed, for a person to correct it. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable

from sandbox.policy import untrusted_toml
from sandbox.text import one_line

MOST_BYTES = 256 * 1024
_REASON_CHARS = 200


def find_syntax_errors(names: Iterable[str], read: Callable[[str], bytes | None]) -> dict[str, str]:
    """What is wrong with each TOML and JSON file that `read` gives, by name, with its line and column."""
    found = {}
    for name in names:
        parse = untrusted_toml.loads if name.endswith(".toml") else json.loads if name.endswith(".json") else None
        content = read(name) if parse else None
        if parse is None or content is None or len(content) > MOST_BYTES:
            continue
        try:
            parse(content.decode("utf-8-sig"))
        except RecursionError:
            continue
        except ValueError as error:
            found[name] = one_line(str(error))[:_REASON_CHARS]
    return found
