"""Times for users are local, on a terminal relative; those in the text of errors are in UTC and say so."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import click
import pytest

import sandbox
from sandbox.cli import audit
from sandbox.cli.applications import _announce, _show_releases
from sandbox.cli.approvals import _table
from sandbox.models import Approval, ApprovalScope, ApprovalState
from sandbox.models.releases import PendingConfirmation, ReleaseEntry, ReleaseEvent, ReleaseState
from sandbox.text import format_utc

AT = datetime(2026, 1, 31, 22, 30, 5, 999, tzinfo=UTC)
LOCAL = "2026-02-01T00:30:05+02:00"
RELEASE = ReleaseState(
    repo_id="r", folder=Path("/f"), current="1" * 40, previous="", confirm=Path("/f/confirm/1"),
    pending=PendingConfirmation(release="1" * 40, previous="", previous_before="", until=AT),
    history=(ReleaseEntry(at=AT, event=ReleaseEvent.PROMOTED, release="1" * 40, previous=""),),
)  # fmt: skip


@pytest.fixture(autouse=True)
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two hours east of UTC."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "XYZ-2")
        time.tzset()
        yield
    time.tzset()


def test_the_times_of_releases_are_local(capsys: pytest.CaptureFixture[str]) -> None:
    _announce(RELEASE)
    _show_releases(RELEASE, history=True)
    found = capsys.readouterr()
    assert (found.err.count(LOCAL), found.out.count(LOCAL)) == (1, 2)


def test_the_times_of_decisions_are_local(capsys: pytest.CaptureFixture[str]) -> None:
    approval = Approval(
        id=f"apr-{'a' * 26}", fingerprint=f"sha256:{'0' * 64}", policy="p",
        state=ApprovalState.DENIED, scope=ApprovalScope.ONCE, tool="t", arguments="{}",
        question=(), created_at=AT, expires_at=AT, decided_at=AT, decided_by="me",
    )  # fmt: skip
    _table([approval])
    assert LOCAL in capsys.readouterr().out


def test_a_time_in_an_error_says_its_zone() -> None:
    assert format_utc(AT) == format_utc(AT.astimezone()) == "2026-01-31 22:30:05 UTC"


def test_no_message_writes_the_zone_by_hand() -> None:
    """Control: the one function that does is found."""
    found = {
        path.name
        for path in Path(sandbox.__file__).parent.rglob("*.py")
        if re.search(r"%[SMTF]\}? \(?UTC", path.read_text("utf-8"))
    }
    assert found == {"text.py"}


@pytest.mark.parametrize("text", ["999999d", "yesterday", "9x", "2026-13-01"])
def test_since_is_a_time_of_the_calendar(text: str) -> None:
    with pytest.raises(click.UsageError, match="is not a time"):
        audit._parse_time(text)


def test_since_without_a_zone_is_in_utc() -> None:
    """As the records that are exported; the help says so."""
    assert audit._parse_time("2026-01-31") == datetime(2026, 1, 31, tzinfo=UTC)
    assert audit._parse_time("2026-01-31T00:00:00+02:00") == datetime(2026, 1, 30, 22, tzinfo=UTC)
    [since] = [option for option in audit.export.params if option.name == "since"]
    assert isinstance(since, click.Option)
    assert "UTC" in str(since.help)
