"""Tests that failed and passed on one tree."""

from __future__ import annotations

from datetime import datetime

from pydantic import computed_field

from sandbox.models.ids import CheckId, ObjectId
from sandbox.models.model import Model


class FlakyTest(Model):
    """A test that failed and passed on one tree. `test`: empty for a check that reports no tests. `ran`, `failed`: how
    often, over all trees on which both were seen; `rate`: their ratio. `tree`: the last of them. `remark`: what is
    known about why, in words.
    """

    check_id: CheckId
    test: str
    ran: int
    failed: int
    tree: ObjectId
    first_seen: datetime
    last_seen: datetime
    remark: str = ""

    @computed_field  # type: ignore[prop-decorator]  # pydantic's way to have a property in the JSON
    @property
    def rate(self) -> float:
        """The share of runs that failed."""
        return round(self.failed / self.ran, 3)
