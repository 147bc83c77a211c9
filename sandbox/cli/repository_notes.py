"""Show remarks on a repository: what was seen that decides whether its checks can run."""

from __future__ import annotations

from collections.abc import Iterable

from sandbox.cli.invocation import add_home, note, suggest_pages
from sandbox.models import Remark
from sandbox.text import one_line


def show_advice(remarks: Iterable[Remark]) -> None:
    """One line for each remark on stderr, and one for its remedy."""
    for remark in remarks:
        note(f"note: {one_line(remark.seen)}")
        if remark.remedy:
            note(f"  {add_home(one_line(remark.remedy))}")
            for line in suggest_pages(remark.remedy):
                note(f"  {line}")
