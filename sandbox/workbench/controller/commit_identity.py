"""Who commits: the operator, as in plain git, unless the settings say otherwise; and how the commit was made.

What is never pushed (snapshots, rescued work) is by the sandbox itself, so that it is the same on every host.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from sandbox.errors import ErrorCode, SandboxError
from sandbox.git.trailers import add_trailers
from sandbox.version import __version__
from sandbox.workbench.controller.services import Parts

if TYPE_CHECKING:
    from sandbox.config import PersonSettings
    from sandbox.git.user_config import Named

_CRUD = "".join(map(chr, range(33))) + ".,:;<>\"\\'"
_LENGTH = 256
_NO_IDENTITY = (
    "There is no git identity here, so the sandbox is the author. For your own, which sign-off and CLA checks want: "
    "`git config --global user.name NAME` and `user.email MAIL`, or author.name and author.email in config.toml."
)


@dataclass(frozen=True)
class Person:
    """A name and an e-mail address without what git leaves out of an identity."""

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

    def variables(self, when: datetime) -> dict[str, str]:
        """GIT_AUTHOR_* and GIT_COMMITTER_*."""
        date = f"{int(when.timestamp())} +0000"
        return {
            f"GIT_{role}_{field}": value
            for role, person in (("AUTHOR", self.author), ("COMMITTER", self.committer))
            for field, value in (("NAME", person.name), ("EMAIL", person.email), ("DATE", date))
        }

    @property
    def note(self) -> str | None:
        """What the operator should know about it."""
        return _NO_IDENTITY if self.author == SANDBOX else None


NEUTRAL = Identity(SANDBOX, SANDBOX)


def choose_identity(parts: Parts) -> Identity:
    """As `[author]` and `[committer]` say; what they leave open, as the operator's git. `[author]` alone is both."""
    settings, operator = parts.settings, parts.operator
    author = _person(settings.author, operator.author)
    is_configured = settings.author.name or settings.author.email
    return Identity(author, _person(settings.committer, author if is_configured else operator.committer))


def _person(configured: PersonSettings, operator: Named | Person) -> Person:
    """Field by field; the operator only as a whole: half an identity could be another person's."""
    name, email = _clean(operator.name), _clean(operator.email)
    known = Person(name, email) if name and email else SANDBOX
    return Person(_clean(configured.name) or known.name, _clean(configured.email) or known.email)


def _clean(text: str) -> str:
    """Without what git leaves out of an identity (ident.c, `crud`), and what no commit can hold."""
    encodable = text.encode("utf-8", errors="replace").decode()
    printable = "".join(c for c in encodable if c.isprintable())
    return re.sub(r"[<>]", "", printable)[:_LENGTH].strip(_CRUD)


def add_origin(parts: Parts, message: str, task_id: str, who: Identity) -> str:
    """The message with its trailers: how the commit was made, and the author's sign-off, as far as they are wanted.

    Raises: `invalid_input` for a sign-off without a person.
    """
    settings, trailers = parts.settings.commit, []
    if settings.trailer:
        trailers = [f"Made-with: Space Sandbox {__version__}", f"Sandbox-Task: {task_id}"]
    if settings.sign_off:
        if who.author == SANDBOX:
            raise SandboxError(
                ErrorCode.INVALID_INPUT, "commit.sign_off needs the name and e-mail of a person", hint=_NO_IDENTITY
            )
        trailers.append(f"Signed-off-by: {who.author}")
    return add_trailers(message, trailers)
