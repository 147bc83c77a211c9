"""Search the files of a tree. git reads them as objects: no file on disk is opened, so none can be swapped for a link.
Or search a pristine checkout, which no guest can write to: reading a file costs a tenth of unpacking a blob
(docs/adr/0018).

Theory. The pattern is always a PCRE: its matching has a step limit, its compiled size is bounded, and callers write
`\\d`. A literal is escaped here, because `git grep --fixed-strings` wraps it in `\\Q..\\E`, and a pattern with `\\E`
ends the quoting (seen in 2.39 and 2.55). The deadline stops what the step limit does not. Attributes could declare any
file binary. git 2.41 and newer reads them from the empty tree (GIT_ATTR_SOURCE); older versions read none in a bare
repository. The output names each file as `<tree>:<path>`. Neither a path nor a content of a tree can contain the tree's
own id, so the output cannot be forged. A checkout is named by its tree's id, so its files are `<tree>/<path>`.
The checkout is only the directory that git searches. The repository is still the bare one, so attributes, ignore files
and nested repositories in the checkout have no effect, and links are not followed.
Source: git-grep(1), pcre2api(3), THREATS G04, G07, I01, I07, I17.
"""

from __future__ import annotations

import os
import re
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import IO

from sandbox.errors import ErrorCode, SandboxError
from sandbox.git.entries import GITLINK
from sandbox.git.failures import memory_error, scrub
from sandbox.git.objects import EMPTY_TREES
from sandbox.git.process import OUTPUT_LIMIT, Git
from sandbox.lazy_dataclass import dataclass

_FLAGS = (
    "-z", "-n", "--column", "--no-color", "--full-name", "--no-heading", "--no-textconv", "--no-recurse-submodules",
    "-P",
)  # fmt: skip
_CHUNK = 1 << 16
_PROBE_S = 5.0
_BINARY = b"Binary file "
_BINARY_END = b" matches\n"
# An object, file or directory that cannot be read: git continues as if it had no match.
_READ_ERROR = re.compile(r"^(?:error|warning: could not open directory)\b", re.MULTILINE)
_STEP_LIMIT = re.compile(r"^fatal: pcre2_(?:jit_)?match failed with error code ", re.MULTILINE)


@dataclass(frozen=True)
class Query:
    """What to search in each line: text, or a Perl-compatible regular expression."""

    pattern: str
    regex: bool = False
    ignore_case: bool = False

    @property
    def flags(self) -> tuple[str, ...]:
        pattern = self.pattern if self.regex else re.escape(self.pattern)
        return (*_FLAGS, *(["-i"] if self.ignore_case else []), "-e", pattern)


@dataclass(frozen=True)
class LineMatch:
    """One line with a match that starts at byte `column`, from 1."""

    path: bytes
    line: int
    column: int
    text: bytes


@dataclass(frozen=True)
class BinaryMatch:
    """A file with a NUL byte near its start that has a match."""

    path: bytes


class PatternTooCostly(SandboxError):
    """The matcher reached its step limit on a line. Earlier matches are valid."""

    def __init__(self, details: str) -> None:
        super().__init__(ErrorCode.QUOTA_EXCEEDED, "The pattern takes too many steps on a line", details=details)


def grep(
    git: Git, tree: str, query: Query, globs: Sequence[str], deadline_s: float
) -> Generator[LineMatch | BinaryMatch]:
    """Matches in the order of the paths' bytes. Close the generator to end the search early.

    `globs`: plain patterns where `*` also matches `/`; other files are not read. Raises: `timeout` and
    `PatternTooCostly` after the matches found until then; `invalid_input` for an invalid regular expression.
    """
    where = (tree, "--", *globs)
    yield from _run_grep(git, query, where, tree.encode() + b":", literal=not globs, deadline_s=deadline_s)


def grep_checkout(
    git: Git, checkout: Path, query: Query, globs: Sequence[str], excluded: Sequence[bytes], deadline_s: float
) -> Generator[LineMatch | BinaryMatch]:
    """Like `grep`, for the files of a checkout that is named by its tree's id and is never written to.

    `excluded`: paths that are not read. Raises: also `conflict` if the checkout is removed during the search.
    """
    tree = checkout.name
    there = replace(git, working_directory=str(checkout.parent))
    # No checkout contains `.git`. With it the patterns have no common directory, which git would enter unchecked.
    wanted = [f"{tree}/{pattern}" for pattern in (*globs, ".git")] if globs else [f":(literal){tree}"]
    unwanted = [f":(exclude,literal){tree}/{os.fsdecode(path)}" for path in excluded]
    where = ("--no-index", "--no-exclude-standard", "--", *wanted, *unwanted)
    yield from _run_grep(there, query, where, tree.encode() + b"/", literal=False, deadline_s=deadline_s)
    if not checkout.is_dir():  # git then reports no match and no error
        raise SandboxError(ErrorCode.CONFLICT, "The worktree was removed while it was searched")


def grep_log(git: Git, path: Path, query: Query, deadline_s: float) -> Generator[LineMatch]:
    """Matches in one file that only we write, in order. The file is always treated as text. `git` needs no repository.

    Raises: as `grep`. A missing file has no match.
    """
    there = replace(git, working_directory=str(path.parent))
    options = ("--no-index", "--no-exclude-standard", "--")
    with there.stream(
        "grep", "--text", *query.flags, *options, path.name, env={"LC_ALL": "C.UTF-8"}, deadline_s=deadline_s
    ) as process:
        answer = _SeparatedStream(process.stdout)
        while (found := _parse_line(answer)) is not None:
            yield found
    if process.code not in {0, 1} or _READ_ERROR.search(process.stderr):
        raise _classify_failure(there, query, (*options, "none"), scrub(process.stderr)[:2000])


def _run_grep(
    git: Git, query: Query, where: Sequence[str], prefix: bytes, *, literal: bool, deadline_s: float
) -> Generator[LineMatch | BinaryMatch]:
    empty_tree = EMPTY_TREES[len(prefix) - 1]
    env = {"GIT_ATTR_SOURCE": empty_tree, "GIT_LITERAL_PATHSPECS": "1" if literal else "0"}
    if query.regex or query.ignore_case:
        env["LC_ALL"] = "C.UTF-8"  # else `.` matches one byte, and only ASCII letters ignore case
    with git.stream("grep", *query.flags, *where, env=env, deadline_s=deadline_s) as process:
        yield from _parse_matches(_SeparatedStream(process.stdout), prefix)
    if process.code not in {0, 1} or _READ_ERROR.search(process.stderr):
        raise _classify_failure(git, query, (empty_tree, "--"), scrub(process.stderr)[:2000])


def _classify_failure(git: Git, query: Query, empty_scope: Sequence[str], stderr: str) -> SandboxError:
    """git has one exit code for all failures. If the search of `empty_scope` fails too, the pattern is invalid."""
    if git.attempt("grep", *query.flags, *empty_scope, env={"LC_ALL": "C.UTF-8"}, deadline_s=_PROBE_S).code != 1:
        return SandboxError(
            ErrorCode.INVALID_INPUT,
            "This regular expression cannot be used",
            details=stderr,
            hint="Use Perl-compatible syntax, or leave `regex` out to search the text literally.",
        )
    if is_step_limit_error(stderr):
        return PatternTooCostly(stderr)
    internal = SandboxError(ErrorCode.INTERNAL, "git could not search the files", details=stderr)
    return memory_error("grep", stderr) or internal


def is_step_limit_error(stderr: str) -> bool:
    """Whether git's message says that PCRE's limits ended a match. git has no exit code for that."""
    return _STEP_LIMIT.search(stderr) is not None


def _parse_matches(answer: _SeparatedStream, prefix: bytes) -> Iterator[LineMatch | BinaryMatch]:
    """Stops without an error where the output was cut: the owner of the stream knows the reason."""
    while (kind := answer.read_until(prefix)) is not None:
        found = _parse_binary(answer, prefix) if kind == _BINARY else _parse_line(answer)
        if found is None:
            return
        yield found


def _parse_line(answer: _SeparatedStream) -> LineMatch | None:
    path, line, column, text = (answer.read_until(separator) for separator in (b"\0", b"\0", b"\0", b"\n"))
    if path is None or line is None or column is None or text is None:
        return None
    return LineMatch(path, int(line), int(column), text)


def _parse_binary(answer: _SeparatedStream, prefix: bytes) -> BinaryMatch | None:
    path = answer.read_until(_BINARY_END)
    while path is not None and not answer.is_followed_by(prefix, _BINARY + prefix):  # " matches" was part of the name
        more = answer.read_until(_BINARY_END)
        path = None if more is None else path + _BINARY_END + more
    return None if path is None else BinaryMatch(path)


class _SeparatedStream:
    """A stream that is split at separators, independent of its chunks."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._fd = stream.fileno()  # unbuffered: a buffer would wait until it is full while matches are available
        self._rest = bytearray()
        self._at = 0

    def read_until(self, separator: bytes) -> bytes | None:
        """The bytes before the next separator, which is skipped; None if there is no separator left."""
        looked = self._at
        while (end := self._rest.find(separator, looked)) < 0:
            known = len(self._rest) - self._at
            if not self._read_more():
                return None
            looked = max(0, known - len(separator) + 1)
        found = bytes(self._rest[self._at : end])
        self._at = end + len(separator)
        return found

    def is_followed_by(self, *prefixes: bytes) -> bool:
        """Whether one of these prefixes comes next, or the stream ends."""
        longest = max(map(len, prefixes))
        while len(self._rest) - self._at < longest and self._read_more():
            pass
        return self._at == len(self._rest) or self._rest.startswith(prefixes, self._at)

    def _read_more(self) -> bool:
        del self._rest[: self._at]
        self._at = 0
        chunk = os.read(self._fd, _CHUNK)
        self._rest += chunk
        return bool(chunk)


def list_files(git: Git, tree: str, deadline_s: float) -> Generator[bytes]:
    """Paths of a tree's files and links, in byte order. Close the generator to end early. Raises: `timeout`."""
    with git.stream("ls-tree", "-r", "-z", "--full-tree", tree, deadline_s=deadline_s) as process:
        answer = _SeparatedStream(process.stdout)
        while (record := answer.read_until(b"\0")) is not None:
            if not record.startswith(GITLINK.encode()):
                yield record.split(b"\t", 1)[1]
    if process.code != 0:
        raise SandboxError(ErrorCode.INTERNAL, "git could not list the files", details=scrub(process.stderr)[:2000])


@lru_cache(maxsize=256)
def list_files_over(git: Git, tree: str, limit_bytes: int) -> tuple[bytes, ...]:
    """Paths of a tree's files larger than `limit_bytes`. Cached: it lists the whole tree, and a tree never changes."""
    digits = len(str(limit_bytes))
    record = re.compile(rb"(?:\A|\0)\d+ blob [0-9a-f]+ +(\d{%d,})\t([^\0]+)" % digits)
    with git.stream("ls-tree", "-r", "-l", "-z", "--full-tree", tree) as process:
        listing = process.read_all(OUTPUT_LIMIT)
    if process.code != 0:
        raise SandboxError(ErrorCode.INTERNAL, "git could not list the files", details=scrub(process.stderr)[:2000])
    return tuple(m[2] for m in record.finditer(listing) if int(m[1]) > limit_bytes)
