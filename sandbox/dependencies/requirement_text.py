"""Parse the text of one requirement (PEP 508) to plain data, or say why it is refused.

Stricter than pip's own reader, because pip reads what is written from it: pip takes `name===../x` for a path, expands
`${HOME}` anywhere in a line, and splits a line at the first word that begins with `-`, even within a marker's quotes.
"""

from __future__ import annotations

import re

from packaging.requirements import InvalidRequirement
from packaging.requirements import Requirement as ParsedRequirement
from packaging.utils import canonicalize_name

from sandbox.models.dependencies import RefusalReason, RefusedEntry, Requirement, RequirementRole

TEXT_CHARS = 1_000  # of one requirement, hashes aside
BRACKETS = 20  # of its marker: the parser calls itself for each
SHOWN_CHARS = 200

_VERSION_CONTROL = re.compile(r"(?:^|@\s*)(?:git|hg|svn|bzr)(?:\+|:)|^git@|\.git(?:[@#]|$)", re.IGNORECASE)
_OPTION = re.compile(r"^-")
_URL = re.compile(r"(?<![a-z0-9+.-])[0-9+.-]*+[a-z][a-z0-9+.-]*+:/", re.IGNORECASE)  # each word is looked at once
_PATH = re.compile(r"^(?:[./~\\]|[A-Za-z]:[\\/])|^[^;\s\[<>=!~]*[/\\]|^file:|@\s*(?:file:|[./~])", re.IGNORECASE)
_ARCHIVE = re.compile(r"^[^;\s\[<>=!~@]*\.(?:whl|zip|tar|tgz|tbz2?|txz|tar\.\w+|egg)(?:$|[;\s\[<>=!~])", re.IGNORECASE)
_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}(?![A-Za-z0-9._-])")
_MARKER = re.compile(
    r"""(?: [a-z_]++                                    # a variable, and, or, in, not
          | "(?:[A-Za-z0-9.+*_][A-Za-z0-9.+*_-]*+)?"    # a value: no space, no `$`, no `-` at its start
          | [()] | <=|>=|==|!=|~=|<|> | [ ] )*""",
    re.VERBOSE,
)
_STRONG_HASH = re.compile(r"(?:sha256:[0-9a-f]{64}|sha384:[0-9a-f]{96}|sha512:[0-9a-f]{128})")


class RefusedTextError(ValueError):
    """A text that is no plain requirement. It never leaves this package."""

    def __init__(self, reason: RefusalReason) -> None:
        super().__init__(reason.value)
        self.reason = reason


def parse_requirement(
    text: str, role: RequirementRole, origin: str, hashes: tuple[str, ...] = ()
) -> Requirement | RefusedEntry:
    """Parse one requirement of a manifest. Pure; never raises."""
    try:
        parsed = _parse_plainly(text.strip())
        return Requirement(
            name=canonicalize_name(parsed.name),
            specifier=str(parsed.specifier),
            extras=tuple(sorted(canonicalize_name(extra) for extra in parsed.extras)),
            marker=_require_plain_marker(parsed),
            hashes=tuple(require_strong_hash(value) for value in hashes),
            role=role,
            origin=origin,
        )
    except RefusedTextError as refused:
        return refuse(text, refused.reason, origin)


def refuse(text: str, reason: RefusalReason, origin: str) -> RefusedEntry:
    """The record of a refused entry. Its text is cut and made printable."""
    return RefusedEntry(text=show_text(text), reason=reason, origin=origin)


def show_text(text: str) -> str:
    """The beginning of a text, printable ASCII only: it goes into records and errors."""
    return ascii(text.strip()[:SHOWN_CHARS])[1:-1]


def require_strong_hash(value: str) -> str:
    """Return `ALGORITHM:HEX` in lower case. Raises: RefusedTextError for a weak algorithm or what is no hash."""
    if not _STRONG_HASH.fullmatch(value.lower()):
        raise RefusedTextError(RefusalReason.HASH)
    return value.lower()


def _parse_plainly(text: str) -> ParsedRequirement:
    """Raises: RefusedTextError with the most telling reason."""
    if len(text) > TEXT_CHARS or text.count("(") > BRACKETS:
        raise RefusedTextError(RefusalReason.LIMIT)
    reason = _find_reason(text)
    if reason is not None:
        raise RefusedTextError(reason)
    try:
        parsed = ParsedRequirement(text)
    except (InvalidRequirement, RecursionError) as error:
        head, _, marker = text.partition(";")
        raise RefusedTextError(_explain_syntax(head, marker)) from error
    if parsed.url is not None:
        raise RefusedTextError(RefusalReason.URL)
    if any(specifier.operator == "===" for specifier in parsed.specifier):
        raise RefusedTextError(RefusalReason.VERSION)  # any text may follow, such as a path or `${VARIABLE}`
    return parsed


def _find_reason(text: str) -> RefusalReason | None:
    if not text.isprintable() or not text.isascii():
        return RefusalReason.SYNTAX
    for pattern, reason in (
        (_OPTION, RefusalReason.OPTION),
        (_VERSION_CONTROL, RefusalReason.VERSION_CONTROL),
        (_PATH, RefusalReason.PATH),
        (_ARCHIVE, RefusalReason.PATH),
    ):
        if pattern.search(text):
            return reason
    if _URL.search(text.partition(";")[0]):
        return RefusalReason.URL
    return None if _NAME.match(text) else RefusalReason.NAME


def _explain_syntax(head: str, marker: str) -> RefusalReason:
    """Find out which part of a text could not be parsed."""
    try:
        ParsedRequirement(head)
    except InvalidRequirement:
        return RefusalReason.SYNTAX
    return RefusalReason.MARKER if marker else RefusalReason.SYNTAX


def _require_plain_marker(parsed: ParsedRequirement) -> str:
    marker = "" if parsed.marker is None else str(parsed.marker)
    if not _MARKER.fullmatch(marker):
        raise RefusedTextError(RefusalReason.MARKER)
    return marker
