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

from sandbox.config import resources
from sandbox.errors import SandboxError
from sandbox.models import JournalEntry
from sandbox.store import journal
from sandbox.store.home import read_json, write_json
from sandbox.store.journal_chain import sha256
from sandbox.workbench.controller import journal_anchors

if TYPE_CHECKING:
    from sandbox.workbench.controller.services import Parts

OPERATION, FIRST = "policy-change", "policy-baseline"
_PATTERNS = ("*.toml", "*.json", "profiles/*.toml")
_OWN = ("config.toml", "policies/*.toml", "policies/*.json", "profiles/*.toml")
_ASIDE = ("environment of ", "flags of ")
_NO_SETTINGS = {"SANDBOX_HOME", "SANDBOX_LOG", "SANDBOX_DEBUG"}


def note_changes(services: Parts) -> None:
    """Compare once per controller. Does not raise: a failure here must not stop the operation."""
    if services.first_look.is_done:
        return
    services.first_look.is_done = True
    with suppress(SandboxError, OSError):
        found = _digests(services)
        if _changed(services, _known(services), found):
            with services.home.locked("policies", 10.0):
                _note(services, found)


def _changed(services: Parts, known: Mapping[str, str], found: Mapping[str, str]) -> list[str]:
    """Names of rules that changed. The environment and flags of other kinds of controllers are not compared."""
    ours = {name for name in known if not name.startswith(_ASIDE) or name in _aside(services)}
    return sorted(name for name in ours | found.keys() if known.get(name) != found.get(name))


def _note(services: Parts, found: Mapping[str, str]) -> None:
    known = _known(services)
    changed = _changed(services, known, found)
    if not known:
        _append(services, FIRST, dict(found))
    else:
        for name in changed:
            _append(services, OPERATION, {"file": name, "old": known.get(name, ""), "new": found.get(name, "")})
    now = {**{name: digest for name, digest in known.items() if name not in changed}, **found}
    write_json(services.home.policy_digests, {"digests": now})


def _append(services: Parts, operation: str, facts: dict[str, str]) -> None:
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
    journal_anchors.anchor(services, journal.HOME, journal.append(services.home, journal.HOME, entry))


def _known(services: Parts) -> dict[str, str]:
    try:
        found: dict[str, str] = (read_json(services.home.policy_digests) or {}).get("digests", {})
    except SandboxError:  # a damaged file: all rules count as new
        return {}
    return found


def _digests(services: Parts) -> dict[str, str]:
    found = dict(_of_files(resources("policies"), _PATTERNS, "shipped "))
    found.update(_of_files(services.home.root, _OWN, ""))
    settings = {name: value for name, value in services.environ.items() if _is_setting(name)}
    for name, values in zip(_aside(services), (settings, services.flags), strict=True):
        if values:
            found[name] = _digest(values)
    return found


def _aside(services: Parts) -> tuple[str, str]:
    """Names under which the environment and the flags of this kind of controller are kept."""
    return f"environment of {services.surface.actor.value}", f"flags of {services.surface.actor.value}"


def _is_setting(name: str) -> bool:
    return name.upper().startswith("SANDBOX_") and name not in _NO_SETTINGS


def _of_files(folder: Path, patterns: tuple[str, ...], label: str) -> Iterator[tuple[str, str]]:
    for pattern in patterns:
        for path in sorted(filter(Path.is_file, folder.glob(pattern))):
            with suppress(FileNotFoundError):
                yield f"{label}{path.relative_to(folder)}", _digest_of(path)


def _digest_of(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            return f"sha256:{hashlib.file_digest(stream, 'sha256').hexdigest()}"
    except FileNotFoundError:
        raise
    except OSError as error:
        return f"unreadable: {error.strerror}"


def _digest(value: Mapping[str, Any]) -> str:
    return sha256(json.dumps(value, sort_keys=True, default=str).encode())
