"""Which version of Go a module needs, from its go.mod, which is read as data. Pure.

Go since 1.21 refuses an older toolchain than the line `go` says. Before, it tried all the same, but it stops at a
version with three numbers and at the line `toolchain`, both of which came with 1.21. https://go.dev/doc/toolchain
"""

from __future__ import annotations

import re
from collections.abc import Callable

_GO = re.compile(r"^[ \t]*go[ \t]+(\d{1,3}\.\d{1,3}(?:\.\d{1,3}|(?:rc|beta)\d{1,2})?)[ \t]*(?://.*)?\r?$", re.MULTILINE)
_TOOLCHAIN = re.compile(r"^[ \t]*toolchain[ \t]+\S", re.MULTILINE)
_FIRST_WITH_TOOLCHAINS = "1.21"


def read_needed_go(read: Callable[[str], bytes | None]) -> str:
    """The least version of Go for the module, such as `1.22.1`; '' if go.mod says none. `read`: gives its content."""
    text = (read("go.mod") or b"").decode(errors="replace")
    found = _GO.search(text)
    needed = found[1] if found else ""
    if _TOOLCHAIN.search(text) and not allows_go(_FIRST_WITH_TOOLCHAINS, needed or "1.0"):
        return _FIRST_WITH_TOOLCHAINS
    return needed


def allows_go(allowed: str, version: str) -> bool:
    """Whether a version of Go is enough for a module that allows none below `allowed`. `1.21rc2` is before `1.21`."""
    return _order(version) >= _order(allowed)


def _order(version: str) -> tuple[int, ...]:
    release, candidate, _ = re.split(r"(rc|beta|$)", version, maxsplit=1)
    major, minor, patch, *_ = (*map(int, release.split(".")), 0, 0)
    return (major, minor, -1 if candidate else patch)
