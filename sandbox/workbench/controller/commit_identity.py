"""Author and committer of a commit: the operator, as in plain git, unless the settings name others; and its trailers.

Commits that are never pushed (snapshots, rescued work) have the sandbox as author, so they are the same on every host.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from sandbox.errors import ErrorCode, SandboxError
from sandbox.git.trailers import add_trailers
from sandbox.version import __version__

if TYPE_CHECKING:
    from sandbox.config import PersonSettings, Settings
    from sandbox.git.user_config import OperatorIdentity, PersonIdentity

_CRUD = "".join(map(chr, range(33))) + ".,:;<>\"\\'"
_MAX_LENGTH = 256
_NO_IDENTITY = (
    "git has no identity for you, so the sandbox is the author. Sign-off and CLA checks need yours: set "
    "`git config --global user.name NAME` and `user.email MAIL`, or author.name and author.email in config.toml."
)


@dataclass(frozen=True)
class Person:
    """A name and an e-mail address, without the characters that git removes from an identity."""

    name: str
    email: str

    def __str__(self) -> str:
        return f"{self.name} <{self.email}>"


SANDBOX = Person("Space Sandbox", "sandbox@localhost")


@dataclass(frozen=True)
class Identity:
    """Author and committer of a commit."""

    author: Person
    committer: Person

    def as_environment(self, when: datetime) -> dict[str, str]:
        """GIT_AUTHOR_* and GIT_COMMITTER_*."""
        date = f"{int(when.timestamp())} +0000"
        return {
            f"GIT_{role}_{field}": value
            for role, person in (("AUTHOR", self.author), ("COMMITTER", self.committer))
            for field, value in (("NAME", person.name), ("EMAIL", person.email), ("DATE", date))
        }

    @property
    def note(self) -> str | None:
        """A remark for the operator when the author is the sandbox."""
        return _NO_IDENTITY if self.author == SANDBOX else None


SANDBOX_IDENTITY = Identity(SANDBOX, SANDBOX)


def choose_identity(settings: Settings, operator: OperatorIdentity) -> Identity:
    """From `[author]` and `[committer]`, then from the operator's git. `[author]` alone sets the committer, too."""
    author = _choose_person(settings.author, operator.author)
    is_configured = settings.author.name or settings.author.email
    return Identity(author, _choose_person(settings.committer, author if is_configured else operator.committer))


def _choose_person(configured: PersonSettings, operator: PersonIdentity | Person) -> Person:
    """Settings apply field by field. The operator's identity is used only if complete: half of one could be wrong."""
    name, email = _remove_crud(operator.name), _remove_crud(operator.email)
    known = Person(name, email) if name and email else SANDBOX
    return Person(_remove_crud(configured.name) or known.name, _remove_crud(configured.email) or known.email)


def parse_author(text: str) -> Person:
    """A person given as `Name <e-mail>`. Raises: `invalid_input`."""
    match = re.fullmatch(r"([^<>]+)<([^<>]+)>", text)
    person = Person(*map(_remove_crud, match.groups())) if match else Person("", "")
    if not person.name or not person.email:
        raise SandboxError(
            ErrorCode.INVALID_INPUT, "An author must be given as: Name <e-mail>", details=ascii(text[:100])
        )
    return person


def _remove_crud(text: str) -> str:
    """Remove what git removes from an identity (ident.c, `crud`), and characters that no commit can hold."""
    encodable = text.encode("utf-8", errors="replace").decode()
    printable = "".join(c for c in encodable if c.isprintable())
    return re.sub(r"[<>]", "", printable)[:_MAX_LENGTH].strip(_CRUD)


def add_commit_trailers(settings: Settings, message: str, task_id: str, identity: Identity) -> str:
    """The message with the trailers that the settings ask for: how the commit was made, and the author's sign-off.

    Raises: `invalid_input` for a sign-off when the author is the sandbox.
    """
    wanted, trailers = settings.commit, []
    if wanted.trailer:
        trailers = [f"Made-with: Space Sandbox {__version__}", f"Sandbox-Task: {task_id}"]
    if wanted.sign_off:
        if identity.author == SANDBOX:
            raise SandboxError(
                ErrorCode.INVALID_INPUT, "commit.sign_off needs the name and e-mail of a person", hint=_NO_IDENTITY
            )
        trailers.append(f"Signed-off-by: {identity.author}")
    return add_trailers(message, trailers)
