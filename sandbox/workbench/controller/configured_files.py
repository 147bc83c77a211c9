"""Lines of `doctor` for what the operator wrote and has no effect: files with misspelled names, keys that are gone."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from pathlib import Path

from sandbox.errors import SandboxError
from sandbox.models import Probe, ProbeLevel
from sandbox.receipts import key_files, keys
from sandbox.workbench.controller.services import Services

_POLICIES = ("approvals.toml", "commit.toml", "container.toml", "paths.toml")
_MOST = 20


def probe_configured_files(services: Services) -> tuple[Probe, ...]:
    """A line for each such file; none if all are in order. Never raises."""
    root = services.home.root
    found = [
        *_name_ignored(root / "policies", _POLICIES, "no policy has this name, so it is ignored"),
        *_name_ignored(root / "profiles", (), "a profile's file ends in .toml, so it is ignored", suffix=".toml"),
        *_find_unknown_profiles(services),
        *_find_broken_keys(services),
    ]
    return tuple(found[:_MOST])


def _name_ignored(folder: Path, known: tuple[str, ...], why: str, suffix: str = "") -> Iterator[Probe]:
    try:
        names = sorted(entry.name for entry in folder.iterdir() if not entry.name.startswith("."))
    except OSError:
        return
    for name in names:
        if name in known or (suffix and name.endswith(suffix)) or not _resembles_toml(name):
            continue
        hint = _suggest(name, known) or (f"Rename it to {Path(name).stem}{suffix}, or move it away." if suffix else "")
        yield Probe(
            name="ignored file",
            level=ProbeLevel.WARN,
            value=f"{folder / name}: {why}",
            hint=hint or f"Known: {', '.join(known)}.",
        )


def _resembles_toml(name: str) -> bool:
    """Notes and copies beside the files are no mistake."""
    return bool(difflib.get_close_matches(Path(name).suffix.lower(), [".toml"], cutoff=0.75))


def _suggest(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"Did you mean {near[0]}?" if near else ""


def _find_unknown_profiles(services: Services) -> Iterator[Probe]:
    known = services.policies.profiles
    for name in sorted(set(services.settings.profiles) - set(known)):
        yield Probe(
            name="ignored setting",
            level=ProbeLevel.WARN,
            value=f"profiles.{name}: there is no profile of this name",
            hint=_suggest(name, known) or "`sandbox profiles list` shows all.",
        )


def _find_broken_keys(services: Services) -> Iterator[Probe]:
    """Keys are read as a receipt would read them."""
    settings = services.settings.receipts
    hint = "Correct the setting, or put the file back (docs/receipts.md)."
    try:
        if settings.signing_key:
            keys.load_signer(key_files.read_key_file(Path(settings.signing_key)), settings.signing_key)
    except SandboxError as error:
        yield Probe(name="signing key", level=ProbeLevel.FAIL, value=_describe(error), hint=hint)
    for path in settings.trusted_keys:
        try:
            key_files.read_trusted_keys([Path(path)])
        except SandboxError as error:
            yield Probe(name="trusted key", level=ProbeLevel.FAIL, value=_describe(error), hint=hint)


def _describe(error: SandboxError) -> str:
    return f"{error.brief}: {error.details}" if error.details else error.brief
