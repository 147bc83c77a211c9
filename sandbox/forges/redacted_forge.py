"""A forge without the token in what it says: results are shown to agents, as errors are (see `refusals`).

A body and a title keep it: they are searched for secrets before anything is sent, and the person has to learn of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from sandbox.credentials import Credential, remove_secret
from sandbox.forges.forge import Forge, Proposal, PullWithText
from sandbox.models import CiCheck, PullRequest

_ModelT = TypeVar("_ModelT", CiCheck, PullRequest)


class RedactedForge:
    """See `Forge`. `credential`: its secret is removed from pull requests and checks."""

    def __init__(self, forge: Forge, credential: Credential) -> None:
        self._forge, self._credential = forge, credential

    def find(self, head: str) -> PullWithText | None:
        found = self._forge.find(head)
        return found and self._redact_pull(found)

    def list_open(self, head: str) -> Sequence[PullRequest]:
        return tuple(map(self._redact, self._forge.list_open(head)))

    def open(self, proposal: Proposal) -> PullWithText:
        return self._redact_pull(self._forge.open(proposal))

    def replace_body(self, number: int, body: str) -> None:
        self._forge.replace_body(number, body)

    def make_ready(self, number: int) -> None:
        self._forge.make_ready(number)

    def checks(self, commit: str, number: int) -> Sequence[CiCheck]:
        return tuple(map(self._redact, self._forge.checks(commit, number)))

    @property
    def unseen(self) -> str:
        return self._forge.unseen

    def add_excerpts(self, checks: Sequence[CiCheck]) -> Sequence[CiCheck]:
        return tuple(map(self._redact, self._forge.add_excerpts(checks)))

    def close(self) -> None:
        self._forge.close()

    def _redact_pull(self, found: PullWithText) -> PullWithText:
        return replace(found, pull=self._redact(found.pull))

    def _redact(self, found: _ModelT) -> _ModelT:
        texts = {name: value for name, value in found if type(value) is str}
        changed = {name: remove_secret(text, self._credential) for name, text in texts.items()}
        return found.model_copy(update=changed) if changed != texts else found
