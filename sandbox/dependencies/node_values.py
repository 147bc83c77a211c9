"""Names, versions, ranges and hashes of npm packages: plain data, or the reason why a text is refused. Pure.

Stricter than npm's own reader (`npm-package-arg`), because npm reads what is written from it: npm takes a range that
ends in `.tgz` for a file, and `a/b` for a repository at a forge.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Any

from sandbox.dependencies.requirement_text import RefusedTextError
from sandbox.models.dependencies import RefusalReason

TEXT_CHARS = 300  # of a range
_NAME_CHARS = 100  # of a name; npm allows 214, and file names hold several
_PLAIN = r"[A-Za-z0-9~][A-Za-z0-9._~-]*"
_NAME = re.compile(rf"(?:@{_PLAIN}/)?{_PLAIN}")
_VERSION = re.compile(r"\d{1,15}\.\d{1,15}\.\d{1,15}(?:-[0-9A-Za-z.-]{1,80})?(?:\+[0-9A-Za-z.-]{1,80})?")
_SEPARATOR = re.compile(r"\|\||\s+")
_COMPARATOR = re.compile(
    r"(?:~>?|\^|[<>]=?|=|-)|(?:~>?|\^|[<>]=?|=)?v?(?:\d{1,15}|[xX*])(?:\.(?:\d{1,15}|[xX*])){0,2}"
    r"(?:-[0-9A-Za-z.-]{1,80})?(?:\+[0-9A-Za-z.-]{1,80})?"
)
_TAG = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,50}")
_ARCHIVE = re.compile(r"\.(?:tgz|tar\.gz|tar)$", re.IGNORECASE)
_REASONS = (
    (re.compile(r"^-"), RefusalReason.OPTION),
    (re.compile(r"^(?:git[+:@]|(?:github|gitlab|bitbucket|gist|ssh):|\w+@[\w.-]+:)|\.git(?:#|$)"),
     RefusalReason.VERSION_CONTROL),
    (re.compile(r"^(?:file|link|portal|patch|workspace|exec):|^(?:[./\\]|~/)|^[A-Za-z]:[\\/]"), RefusalReason.PATH),
    (re.compile(r"^[a-z][a-z0-9+.-]*://", re.IGNORECASE), RefusalReason.URL),
    (re.compile(r"^[\w.-]+/[\w.-]+(?:#|$)"), RefusalReason.VERSION_CONTROL),
    (_ARCHIVE, RefusalReason.PATH),
)  # fmt: skip


def require_name(text: object) -> str:
    """Raises: RefusedTextError for what is no plain name of a package, such as an option or a path."""
    if not isinstance(text, str) or len(text) > _NAME_CHARS or not _NAME.fullmatch(text) or text == "node_modules":
        raise RefusedTextError(RefusalReason.NAME)
    return text


def require_version(text: object) -> str:
    """One version, as lock files have it. Raises: RefusedTextError."""
    if not isinstance(text, str) or not _VERSION.fullmatch(text):
        raise RefusedTextError(find_reason(text) if isinstance(text, str) else RefusalReason.SYNTAX)
    return text


def require_range(text: object) -> str:
    """A range of versions or a tag such as `latest`. Raises: RefusedTextError with the most telling reason."""
    if not isinstance(text, str):
        raise RefusedTextError(RefusalReason.SYNTAX)
    plain = text.strip()
    if len(plain) > TEXT_CHARS:
        raise RefusedTextError(RefusalReason.LIMIT)
    if _ARCHIVE.search(plain):
        raise RefusedTextError(RefusalReason.PATH)
    if _TAG.fullmatch(plain):
        return plain
    if not plain.isascii() or not all(_COMPARATOR.fullmatch(part) for part in _SEPARATOR.split(plain) if part):
        raise RefusedTextError(find_reason(plain))
    return plain


def split_alias(name: str, text: str) -> tuple[str, str]:
    """The real name and the range of `npm:NAME@RANGE`; else `name` and the text itself. Raises: RefusedTextError."""
    if not text.startswith("npm:"):
        return name, text
    rest = text.removeprefix("npm:")
    if _COMPARATOR.fullmatch(rest):
        return name, rest  # yarn's `npm:^1.0.0`
    real, wanted = split_spec(rest)
    return require_name(real), wanted or "*"


def split_spec(text: str) -> tuple[str, str]:
    """The name and the range of `NAME@RANGE` or `@SCOPE/NAME@RANGE`, '' for a name alone; both unchecked."""
    name, _, wanted = text[1:].partition("@")
    return text[:1] + name, wanted


def parse_integrity(text: object) -> str:
    """`sha512:HEX` of Subresource Integrity; the strongest of several. Raises: RefusedTextError if there is none."""
    for part in text.split() if isinstance(text, str) else ():
        algorithm, _, value = part.partition("-")
        try:
            digest = base64.b64decode(value.partition("?")[0], validate=True)
        except (binascii.Error, ValueError):
            continue
        if algorithm == "sha512" and len(digest) == 64:
            return f"sha512:{digest.hex()}"
    raise RefusedTextError(RefusalReason.HASH)


def find_reason(text: str) -> RefusalReason:
    """Why a text is no version."""
    return next((reason for pattern, reason in _REASONS if pattern.search(text)), RefusalReason.VERSION)


def read_engines(document: Mapping[str, Any]) -> str:
    """The range of Node.js that a package is for, as package.json and lock files say it; `*` for any."""
    found = document.get("engines")
    try:
        return require_range(found.get("node", "*") if isinstance(found, dict) else "*") or "*"
    except RefusedTextError:
        return "*"
