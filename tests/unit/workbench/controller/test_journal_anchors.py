"""Which lines of the home's journal note the head of another journal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sandbox.models import Actor
from sandbox.store import journal
from sandbox.store.home import Home
from sandbox.store.journal_chain import ChainHead
from sandbox.workbench.controller.journal_anchors import Anchor, append_anchor, parse_anchor
from sandbox.workbench.controller.services import Surface
from tests.unit.store.test_journal import TASK, entry

HEAD = ChainHead(7, "sha256:" + "0" * 64)


@pytest.fixture
def line(tmp_path: Path) -> bytes:
    """An anchor as it is written."""
    home = Home(tmp_path / "sandbox-home")
    home.prepare()
    append_anchor(home, Surface(actor=Actor.CLI), TASK, HEAD)
    return home.journal(journal.HOME_JOURNAL).read_bytes().rstrip(b"\n")


def test_an_anchor_is_read_as_it_was_written(line: bytes) -> None:
    assert parse_anchor(line) == Anchor(TASK, HEAD, is_removal=False)


CHANGES: dict[str, dict[str, Any]] = {
    "no-facts": {"facts": {}},
    "facts-of-another-type": {"facts": "text"},
    "no-task": {"facts": {"journal": "home", "seq": "1", "sha256": ""}},
    "no-number": {"facts": {"journal": TASK, "seq": "x", "sha256": ""}},
    "too-many-digits": {"facts": {"journal": TASK, "seq": "1" * 5000, "sha256": ""}},
    "another-operation": {"operation": "push", "result": "anchor"},
    "its-text-elsewhere": {"operation": "push", "names": ['"operation":"anchor"']},
    "nested": {"operation": "push", "sent": {"operation": "anchor"}},
}


@pytest.mark.parametrize("name", CHANGES)
def test_another_line_is_no_anchor(line: bytes, name: str) -> None:
    document = {**json.loads(line), **CHANGES[name]}
    assert parse_anchor(json.dumps(document, separators=(",", ":")).encode()) is None


def test_a_damaged_line_is_no_anchor(line: bytes) -> None:
    assert parse_anchor(line[:-1]) is None
    assert parse_anchor(b'["operation":"anchor"]') is None
    assert parse_anchor(entry().model_dump_json().encode()) is None
