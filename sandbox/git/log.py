"""The commits of a range: their subjects and messages, and the paths that they change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import IO

from sandbox.errors import ErrorCode, SandboxError
from sandbox.git.blobs import missing_object_error
from sandbox.git.process import Git

MAX_COMMITS = 2000
SUBJECT_BYTES = 1000
MESSAGES_BYTES = 4 * 1024**2
_RANGE_OPTIONS = (f"--max-count={MAX_COMMITS}", "--topo-order", "--reverse")
_TEXT_OPTIONS = ("--encoding=UTF-8", "--no-commit-header", "--format=%an <%ae>%n%cn <%ce>%n%B")
_MESSAGE_OPTIONS = ("--topo-order", "--reverse", "--encoding=UTF-8", "--no-commit-header", "--format=%H %B%x00")
_FORMAT_OPTIONS = ("--encoding=UTF-8", "--no-commit-header", "--format=%H %s")

Published = tuple[str, ...]
"""Arguments of `rev-list` for the commits that the remote had at the last fetch."""

PUBLISHED: Published = ("--remotes", "--tags")


def published_except(branches: str, *also: str) -> Published:
    """Without the remote's branches that fit a pattern, such as `space-agent/*`, and without a HEAD on no branch: it
    may be at the commit of a task. `also`: ids of commits that count nevertheless. Pure.
    """
    return (f"--exclude=origin/{branches}", "--exclude=origin/HEAD", *PUBLISHED, *also)


def list_subjects(git: Git, base: str, head: str) -> tuple[tuple[str, str], ...]:
    """Id and subject of the newest `MAX_COMMITS` commits on `head` that `base` does not have, oldest first.

    Subjects are cut at `SUBJECT_BYTES`. They are untrusted text, UTF-8 with replacement. Raises: `not_found`.
    """
    if base == head:
        return ()
    with git.stream("rev-list", *_RANGE_OPTIONS, *_FORMAT_OPTIONS, head, f"^{base}") as process:
        lines = [line.decode("utf-8", errors="replace").partition(" ") for line in _read_line_starts(process.stdout)]
    if process.code != 0:
        raise missing_object_error("The task's commits cannot be read", process.stderr)
    return tuple((oid, subject) for oid, _, subject in lines)


def list_first_parents(git: Git, head: str, *without: str, limit: int = MAX_COMMITS) -> tuple[tuple[str, str], ...]:
    """Id and subject of the newest commits along first parents of `head`, newest first. `without`: `^` and an id.

    Raises: `not_found`; `quota_exceeded` if there are more than `MAX_COMMITS` and no `limit` says fewer.
    """
    options = ("--first-parent", f"--max-count={limit + (limit == MAX_COMMITS)}")
    with git.stream("rev-list", *options, *_FORMAT_OPTIONS, head, *without) as process:
        lines = [line.decode("utf-8", errors="replace").partition(" ") for line in _read_line_starts(process.stdout)]
    if process.code != 0:
        raise missing_object_error("The commits cannot be read", process.stderr)
    if len(lines) > limit:
        raise SandboxError(ErrorCode.QUOTA_EXCEEDED, f"More than {MAX_COMMITS} commits", hint="Name closer commits.")
    return tuple((oid, subject) for oid, _, subject in lines)


def read_messages(git: Git, base: str, head: str) -> str:
    """Authors, committers and messages of all commits on `head` that `base` does not have, as one untrusted text.

    Raises: `quota_exceeded` above `MESSAGES_BYTES`; `not_found`.
    """
    return _read_limited(git, _TEXT_OPTIONS, head, f"^{base}")


def read_unpublished_messages(git: Git, head: str, published: Published) -> str:
    """As `read_messages`, of all commits on `head` that are not `published`."""
    return _read_limited(git, _TEXT_OPTIONS, head, "--not", *published)


def _read_limited(git: Git, options: Sequence[str], *commits: str) -> str:
    with git.stream("rev-list", *options, *commits) as process:
        found = process.stdout.read(MESSAGES_BYTES + 1)
        if len(found) > MESSAGES_BYTES:
            brief = f"The messages of the task's commits are longer than {MESSAGES_BYTES} bytes together"
            raise SandboxError(ErrorCode.QUOTA_EXCEEDED, brief, hint="Start again with fewer or shorter messages.")
    if process.code != 0:
        raise missing_object_error("The task's commits cannot be read", process.stderr)
    return found.decode("utf-8", errors="replace")


def list_messages(git: Git, base: str, head: str) -> tuple[tuple[str, str], ...]:
    """Id and whole message of each commit on `head` that `base` does not have, oldest first; untrusted text.

    Raises: `quota_exceeded` above `MESSAGES_BYTES`; `not_found`.
    """
    return _split_messages(_read_limited(git, _MESSAGE_OPTIONS, head, f"^{base}"))


def list_unpublished_messages(git: Git, head: str, published: Published) -> tuple[tuple[str, str], ...]:
    """As `list_messages`, of all commits on `head` that are not `published`."""
    return _split_messages(_read_limited(git, _MESSAGE_OPTIONS, head, "--not", *published))


def _split_messages(found: str) -> tuple[tuple[str, str], ...]:
    rows = (row.removeprefix("\n").partition(" ") for row in found.split("\0"))  # git ends each format with a newline
    return tuple((oid, message) for oid, _, message in rows if oid)


def read_author_and_subject(git: Git, commit: str) -> tuple[str, str]:
    """Author (`NAME <EMAIL>`) and subject of a commit, each cut at `SUBJECT_BYTES`; untrusted text."""
    fields = ("--max-count=1", "--encoding=UTF-8", "--no-commit-header", "--format=%an <%ae>%n%s")
    with git.stream("rev-list", *fields, commit) as process:
        author, subject, *_ = *_read_line_starts(process.stdout), b"", b""
    return author.decode("utf-8", errors="replace"), subject.decode("utf-8", errors="replace")


def list_changed_paths(git: Git, base: str, head: str) -> frozenset[bytes]:
    """Every path changed by any commit on `head` that `base` does not have; empty for a single commit.

    The difference of the trees already shows the paths of a single commit. Of a merge only the paths count that differ
    from all its parents: the others were changed by a parent, which is looked at itself, or is not new to the remote.
    """
    commits = git.run("rev-list", head, f"^{base}")
    if commits.count(b"\n") < 2:
        return frozenset()
    return _list_paths(git, commits)


def list_unpublished_paths(git: Git, head: str, published: Published = PUBLISHED) -> frozenset[bytes]:
    """Every path changed by a commit on `head` that is not `published`; of a merge those that differ from all parents.
    A rename counts with both names.
    """
    return _list_paths(git, git.run("rev-list", head, "--not", *published))


def list_unpublished(git: Git, head: str, published: Published) -> tuple[str, ...]:
    """The ids of all commits on `head` that are not `published`, newest first."""
    return tuple(git.run("rev-list", "--topo-order", head, "--not", *published).decode().split())


def is_published(git: Git, commit: str, published: Published = PUBLISHED) -> bool:
    """Whether a branch or tag of the remote had a commit at the last fetch; no for one that is not here."""
    found = git.attempt("rev-list", "--max-count=1", commit, "--not", *published)
    return found.code == 0 and not found.stdout.strip()


def is_published_except(git: Git, commit: str, branches: str) -> bool:
    """As `is_published`, by the refs of `published_except`."""
    return is_published(git, commit, published_except(branches))


def _list_paths(git: Git, commits: bytes) -> frozenset[bytes]:
    """Every path that one of these commits changed: ids, one a line."""
    options = ("-r", "-z", "-c", "--root", "--no-commit-id", "--name-only", "--no-renames")
    return frozenset(git.run("diff-tree", "--stdin", *options, stdin=commits).split(b"\0")) - {b""}


def _read_line_starts(stream: IO[bytes]) -> Iterator[bytes]:
    """The beginning of each line: git writes a subject on one line of any length."""
    most = SUBJECT_BYTES + 65
    while line := stream.readline(most):
        yield line.rstrip(b"\n")
        while line and not line.endswith(b"\n"):
            line = stream.readline(most)


def read_message(git: Git, commit: str) -> str:
    """The message of one commit, untrusted text. Raises: `quota_exceeded` above `MESSAGES_BYTES`; `not_found`."""
    fields = ("--max-count=1", "--encoding=UTF-8", "--no-commit-header", "--format=%B")
    with git.stream("rev-list", *fields, commit) as process:
        found = process.stdout.read(MESSAGES_BYTES + 1)
        if len(found) > MESSAGES_BYTES:
            raise SandboxError(ErrorCode.QUOTA_EXCEEDED, f"A message is longer than {MESSAGES_BYTES} bytes")
    if process.code != 0:
        raise missing_object_error("The commit cannot be read", process.stderr)
    return found.decode("utf-8", errors="replace")
