"""Write into the home's journal which policies and settings changed since the last controller of this home.

A controller compares once, before the first operation that it journals. It uses the rules it has read until it ends.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sandbox.environment_names import may_be_setting
from sandbox.errors import SandboxError
from sandbox.models import JournalEntry
from sandbox.shipped_files import find_resources
from sandbox.store import journal
from sandbox.store.home import Home, read_json, write_json
from sandbox.store.journal_chain import sha256
from sandbox.workbench.controller import journal_anchors

if TYPE_CHECKING:
    from sandbox.workbench.controller.services import Services, Surface

OPERATION, BASELINE = "policy-change", "policy-baseline"
_SHIPPED_PATTERNS = ("*.toml", "*.json", "profiles/*.toml")
_OPERATOR_PATTERNS = ("config.toml", "policies/*.toml", "policies/*.json", "profiles/*.toml")
_NON_FILE_PREFIXES = ("environment of ", "flags of ")


def note_changes(services: Services) -> None:
    """Compare once per controller. Does not raise: a failure here must not stop the operation."""
    if services.rule_comparison.is_done:
        return
    services.rule_comparison.is_done = True
    with suppress(SandboxError, OSError):
        found = _compute_digests(services)
        if _find_changed(services.surface, _read_stored_digests(services.home), found):
            with services.home.locked("policies", 10.0):
                _record_changes(services, found)


def _find_changed(surface: Surface, known: Mapping[str, str], found: Mapping[str, str]) -> list[str]:
    """Names of rules that changed. The environment and flags of other kinds of controllers are not compared."""
    ours = {name for name in known if not name.startswith(_NON_FILE_PREFIXES) or name in _non_file_names(surface)}
    return sorted(name for name in ours | found.keys() if known.get(name) != found.get(name))


def _record_changes(services: Services, found: Mapping[str, str]) -> None:
    known = _read_stored_digests(services.home)
    changed = _find_changed(services.surface, known, found)
    if not known:
        _append_entry(services, BASELINE, dict(found))
    else:
        for name in changed:
            _append_entry(services, OPERATION, {"file": name, "old": known.get(name, ""), "new": found.get(name, "")})
    now = {**{name: digest for name, digest in known.items() if name not in changed}, **found}
    write_json(services.home.policy_digests, {"digests": now})


def _append_entry(services: Services, operation: str, facts: dict[str, str]) -> None:
    entry = JournalEntry(
        at=datetime.now(UTC),
        actor=services.surface.actor,
        by=services.caller,
        operation=operation,
        arguments=sha256(json.dumps(facts, sort_keys=True).encode()),
        names=(facts["file"],) if "file" in facts else (),
        facts=facts,
        result="ok",
        duration_s=0.0,
    )
    journal_anchors.append_anchor(
        services.home,
        services.surface,
        journal.HOME_JOURNAL,
        journal.append_entry(services.home, journal.HOME_JOURNAL, entry),
    )


def _read_stored_digests(home: Home) -> dict[str, str]:
    try:
        found: dict[str, str] = (read_json(home.policy_digests) or {}).get("digests", {})
    except SandboxError:  # a damaged file: all rules count as new
        return {}
    return found


def _compute_digests(services: Services) -> dict[str, str]:
    found = dict(_digest_files(find_resources("policies"), _SHIPPED_PATTERNS, "shipped "))
    found.update(_digest_files(services.home.root, _OPERATOR_PATTERNS, ""))
    settings = {name: value for name, value in services.environ.items() if may_be_setting(name)}
    for name, values in zip(_non_file_names(services.surface), (settings, services.flags), strict=True):
        if values:
            found[name] = _digest_mapping(values)
    return found


def _non_file_names(surface: Surface) -> tuple[str, str]:
    """Names under which the environment and the flags of this kind of controller are kept."""
    return f"environment of {surface.actor.value}", f"flags of {surface.actor.value}"


def _digest_files(folder: Path, patterns: tuple[str, ...], label: str) -> Iterator[tuple[str, str]]:
    for pattern in patterns:
        for path in sorted(filter(Path.is_file, folder.glob(pattern))):
            with suppress(FileNotFoundError):
                yield f"{label}{path.relative_to(folder)}", _digest_file(path)


def _digest_file(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            return f"sha256:{hashlib.file_digest(stream, 'sha256').hexdigest()}"
    except FileNotFoundError:
        raise
    except OSError as error:
        return f"unreadable: {error.strerror}"


def _digest_mapping(value: Mapping[str, Any]) -> str:
    return sha256(json.dumps(value, sort_keys=True, default=str).encode())
