"""Ignore rules of the base commit, plus the profile's build output. The guest controls the rules of the live tree.

Not a library: pathspec's default backend turns a rule into one backtracking expression. Then `*a*a*a*a*a*a*b` from a
repository and a file name from the guest could keep the host busy for years, without a deadline (THREATS I07). Here
`policy/globs.py` matches each rule, and all matching together has a budget (docs/adr/0006).
Grammar and precedence: gitignore(5); tests compare with `git check-ignore`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from sandbox.errors import ErrorCode, SandboxError
from sandbox.policy.globs import Pattern, parse_pattern

BUDGET = 30_000_000
"""Maximum comparisons of a name with a rule in one walk: about 15 seconds."""

IGNORE_BYTES = 4 * 1024**2
"""Maximum total size of all `.gitignore` files."""

MAX_NAMES = 100_000
"""Maximum names in all rules together, which take 600 bytes each, and 1,000 with a wildcard. `a/b` has two."""

_COMPILE_COST = 200  # cost of compiling a pattern, in comparisons
_COMPILE_COST_OF_A_CHARACTER = 16


class IgnoreRules:
    """Decides which untracked paths are ignored. `files`: text of each `.gitignore` by directory ('' for the root).

    Caches the results for directories: use one object per walk. `budget`: maximum comparisons; default: `BUDGET`.
    Raises: `quota_exceeded` for more than `MAX_NAMES`.
    """

    def __init__(self, files: Mapping[str, str], artifacts: Iterable[str] = (), budget: int | None = None) -> None:
        self._names_left = MAX_NAMES
        self._left = BUDGET if budget is None else budget
        self._rules: dict[str, tuple[Pattern, ...]] = {}
        self._artifacts = self._parse(artifacts)
        self._folders: dict[str, bool] = {}
        self.characters = 0
        """Of all `.gitignore` files."""
        for folder, text in files.items():
            self.add(folder, text)

    def add(self, folder: str, text: str) -> None:
        """Add the rules of a directory before a path in it is asked about. Raises: as for the class."""
        self._rules[folder] = self._parse(text.removeprefix("\ufeff").split("\n"))
        self.characters += len(text)

    def knows(self, folder: str) -> bool:
        """Whether the rules of this directory were given."""
        return folder in self._rules

    def _parse(self, lines: Iterable[str]) -> tuple[Pattern, ...]:
        """Parse rules, the last line first. Invalid lines are skipped, as in git."""
        found = []
        for line in lines:
            rule = parse_pattern(line.removesuffix("\r"))
            if rule is not None:
                found.append(rule)
                self._names_left -= len(rule.globs)
            if self._names_left < 0:
                raise _too_costly_error("are too many")
        self._left -= sum(
            _COMPILE_COST + _COMPILE_COST_OF_A_CHARACTER * len(glob.text)
            for rule in found
            for glob in rule.globs
            if glob.has_wildcard
        )
        return tuple(reversed(found))

    def is_ignored(self, path: str, *, directory: bool) -> bool:
        """Whether git would ignore this path, itself or through a parent directory.

        Raises: `quota_exceeded` when the budget is spent.
        """
        parts = path.split("/")
        if any(self._is_directory_ignored("/".join(parts[:depth])) for depth in range(1, len(parts))):
            return True
        return self._is_directory_ignored(path) if directory else self._is_matched(parts, directory=False)

    def _is_directory_ignored(self, path: str) -> bool:
        if path not in self._folders:
            self._folders[path] = self._is_matched(path.split("/"), directory=True)
        return self._folders[path]

    def _is_matched(self, parts: list[str], *, directory: bool) -> bool:
        if self._last_match(self._artifacts, parts, directory):
            return True
        for depth in range(len(parts) - 1, -1, -1):
            rules = self._rules.get("/".join(parts[:depth]))
            verdict = self._last_match(rules, parts[depth:], directory) if rules else None
            if verdict is not None:
                return verdict
        return False

    def _last_match(self, rules: Sequence[Pattern], parts: list[str], directory: bool) -> bool | None:
        """The result of the last matching rule of one file; None if no rule matches."""
        for rule in rules:  # stored in reverse order
            if rule.directories_only and not directory:
                continue
            self._left -= rule.cost(parts)
            if self._left < 0:
                raise _too_costly_error("take too long to evaluate")
            if rule.matches(parts):
                return not rule.is_negated
        return None


def exact_rule(path: str) -> str:
    """The rule that matches one path from the root, and everything below it."""
    return "/" + re.sub(r"([\\*?\[ ])", r"\\\1", path)


def _too_costly_error(what: str) -> SandboxError:
    return SandboxError(
        ErrorCode.QUOTA_EXCEEDED,
        f"The repository's ignore rules {what}",
        hint="Its .gitignore files have too many or too costly rules for this number of untracked files.",
    )
