"""Select paths by a caller's glob.

The grammar is that of gitignore(5) (`*.py` at any depth, `/src/*.py` and `src/*.py` from the root, `**`, a trailing `/`
for directories), plus `{a,b}` as in shells, and a leading `!` for all other paths. A glob that ends in a plain name
also selects the files below a directory of that name; one that ends in a wildcard selects only files that match it.
"""

from __future__ import annotations

import re

from sandbox.errors import ErrorCode, SandboxError
from sandbox.policy.globs import Pattern, parse_pattern

GLOB_LENGTH = 256
ALTERNATIVES = 32
BUDGET = 20_000_000
"""Maximum comparisons of a name with a name for one selection: about 10 seconds."""

_BRACES = re.compile(r"(?<!\\)\{([^{}]*)\}")
_PLAIN = re.compile(r"[A-Za-z0-9_+.-]+")  # literal text in every matcher's grammar
_STAR = re.compile(r"[^*?\[\]\\]*\*([A-Za-z0-9_+.-]*)")


class PathSelection:
    """The paths that one glob selects; all without a glob. Use one object for one walk: it has a matching budget."""

    def __init__(self, glob: str | None) -> None:
        """Raises: `invalid_input`."""
        self._inverse = glob is not None and glob.startswith("!")
        self._patterns = [] if glob is None else _parse_glob(glob.removeprefix("!"))
        self._left = BUDGET
        self._last = ("", False)

    def __contains__(self, path: str) -> bool:
        """Whether this path, in its text form, is selected. Raises: `invalid_input` when the glob costs too much."""
        if not self._patterns:
            return True
        if path != self._last[0]:  # the hits of one file come together
            self._last = (path, self._matches(path.split("/")) != self._inverse)
        return self._last[1]

    def superset_patterns(self) -> tuple[str, ...]:
        """Return patterns that match all selected paths and perhaps more; empty if there are none.

        They have at most two `*`, which match `/` too. They are for another matcher that walks a tree for us, and
        simple enough to mean the same in every matcher.
        """
        found = [_superset_pattern(p) for p in self._patterns]
        return () if self._inverse or None in found else tuple(sorted({f for f in found if f}))

    def _matches(self, parts: list[str]) -> bool:
        for pattern in self._patterns:
            whole = _selects_directories(pattern)
            self._left -= pattern.cost(parts) * (len(parts) if whole else 1)
            if self._left < 0:
                raise _invalid_glob_error("it takes too long for this many files")
            if pattern.covers(parts) if whole else pattern.matches(parts):
                return True
        return False


def _selects_directories(pattern: Pattern) -> bool:
    return pattern.directories_only or not pattern.globs[-1].has_wildcard


def _parse_glob(glob: str) -> list[Pattern]:
    if not 0 < len(glob) <= GLOB_LENGTH or "\0" in glob or "\n" in glob:
        raise _invalid_glob_error(f"it must have 1 to {GLOB_LENGTH} characters, on one line")
    return [_parse_alternative(text) for text in _expand_braces(glob[1:] if glob.startswith("./") else glob)]


def _parse_alternative(text: str) -> Pattern:
    literal = f"\\{text}" if text.startswith(("!", "#")) else text  # no second negation, no comment
    pattern = parse_pattern(literal)
    if pattern is None or any(g.cannot_match for g in pattern.globs):
        raise _invalid_glob_error("a bracket is not closed, a backslash is at the end, or an alternative is empty")
    return pattern


def _expand_braces(glob: str) -> list[str]:
    """Expand `a{b,c}` to `ab` and `ac`; innermost braces first."""
    done, pending = [], [glob]
    while pending:
        text = pending.pop()
        braces = _BRACES.search(text)
        if braces is None:
            done.append(text)
        else:
            pending += [text[: braces.start()] + inner + text[braces.end() :] for inner in braces[1].split(",")]
        if len(done) + len(pending) > ALTERNATIVES:
            raise _invalid_glob_error(f"it has more than {ALTERNATIVES} alternatives")
    return sorted(set(done))


def _superset_pattern(pattern: Pattern) -> str | None:
    texts = [g.text for g in pattern.globs]
    plain = [_PLAIN.fullmatch(t) is not None and t not in {".", ".."} for t in texts]
    if all(plain):
        return "/".join(texts)
    if texts[0] == "**" and len(texts) == 2 and plain[1]:
        return f"*{texts[1]}*"
    prefix = "".join(f"{t}/" for t in texts[: plain.index(False)])
    ending = None if _selects_directories(pattern) else _STAR.fullmatch(texts[-1])
    suffix = ending[1] if ending is not None else ""
    return f"{prefix}*{suffix}" if prefix or suffix else None


def _invalid_glob_error(why: str) -> SandboxError:
    return SandboxError(
        ErrorCode.INVALID_INPUT,
        f"This glob cannot be used: {why}",
        hint="Write globs as in .gitignore, with {a,b}: '*.py', 'src/**/*.{c,h}', '!*.min.js'.",
    )
