"""Pull requests as refs: `pr/7` is fetched when it is asked for, into a namespace of ours."""

from __future__ import annotations

import re

from sandbox.errors import ErrorCode, SandboxError
from sandbox.git.objects import is_object_id, peel
from sandbox.git.partial import is_partial
from sandbox.git.process import Git
from sandbox.git.transport import RemoteAccess, fetch_ref, list_refs
from sandbox.lazy_dataclass import dataclass

REQUEST_REFS = "refs/requests/"
"""Where the cache clone keeps commits of pull requests, until it is packed. No task and no branch of the remote is
below it.
"""

_WRITTEN = re.compile(r"^(?:pr|mr)/([1-9][0-9]{0,9})(/merge)?$")
_HEADS = ("refs/pull/{}/head", "refs/merge-requests/{}/head", "refs/pull-requests/{}/from")
_MERGES = ("refs/pull/{}/merge", "refs/merge-requests/{}/merge", "refs/pull-requests/{}/merge")
"""GitHub, Gitea and Forgejo; GitLab; Bitbucket Server."""


@dataclass(frozen=True)
class PullRequestRef:
    """What `pr/7`, `mr/7` or `pr/7/merge` names. `merged`: with the base branch, as the forge merged them for a try."""

    number: int
    merged: bool

    @property
    def places(self) -> tuple[str, ...]:
        """The refs of forges that may hold it."""
        return tuple(place.format(self.number) for place in (_MERGES if self.merged else _HEADS))

    @property
    def cached(self) -> str:
        """The ref of the cache clone."""
        return f"{REQUEST_REFS}{self.number}/{'merge' if self.merged else 'head'}"


def parse_pull_request_ref(ref: str) -> PullRequestRef | None:
    """The pull request that a ref names; None for any other ref. Pure."""
    found = _WRITTEN.fullmatch(ref)
    return PullRequestRef(int(found[1]), merged=found[2] is not None) if found else None


def fetch_pull_request(git: Git, access: RemoteAccess, wanted: PullRequestRef) -> str:
    """Fetch the commit of a pull request and return its id. The caller holds the repository's lock.

    Raises: `not_found` if the remote shows no such pull request; network errors, `quota_exceeded`.
    """
    shown = {name: oid for oid, name in list_refs(git, access, patterns=wanted.places) if is_object_id(oid)}
    place = next((place for place in wanted.places if place in shown), None)
    if place is None:
        raise _missing_error(wanted)
    fetch_ref(git, access, place, wanted.cached, partial=is_partial(git))
    commit = peel(git, shown[place], "commit")
    if commit is None:  # it moved between the two questions
        raise SandboxError(
            ErrorCode.CONFLICT, f"The pull request {wanted.number} was changed meanwhile", hint="Repeat the command."
        )
    return commit


def _missing_error(wanted: PullRequestRef) -> SandboxError:
    if wanted.merged:
        return SandboxError(
            ErrorCode.NOT_FOUND,
            f"The remote has no merge result of the pull request {wanted.number}",
            details=f"looked for {', '.join(wanted.places)}",
            hint=f"It may be closed, or conflict with its base. pr/{wanted.number} is its own last commit.",
        )
    return SandboxError(
        ErrorCode.NOT_FOUND,
        f"The remote shows no pull request {wanted.number}",
        details=f"looked for {', '.join(wanted.places)}",
        hint="Check the number. A local directory has none: give the URL of the forge.",
    )
