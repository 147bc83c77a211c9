"""What servers of Git LFS answer: models of the batch API, and errors for people. Pure.

Source: git-lfs, docs/api/batch.md.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from sandbox.document_errors import describe_errors
from sandbox.errors import ErrorCode, SandboxError
from sandbox.forges.http_session import TransientForgeError
from sandbox.forges.refusals import read_seconds
from sandbox.git.lfs_pointers import PointedFile
from sandbox.policy.paths import show_path
from sandbox.text import one_line

POINTERS_HINT = "`sandbox run --lfs no`, or `sandbox repo set REPO --unset lfs`, leaves the pointers in place."
_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_VALUE = re.compile(r"[\t\x20-\x7e]{0,8192}")
_OURS = re.compile(r"host|content-length|transfer-encoding|connection|te|trailer|upgrade|expect|range|cookie|proxy-.*")
"""Headers that a server may not choose for us: they are about the connection, or change what is answered."""


class _AnswerPart(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)


_Url = Annotated[str, StringConstraints(max_length=16_384)]


class DownloadAction(_AnswerPart):
    """Where an object is, and the headers to ask for it with. Both are the server's words."""

    href: _Url
    header: dict[str, str] = Field(default_factory=dict, max_length=20)


class _Actions(_AnswerPart):
    download: DownloadAction | None = None


class _ObjectError(_AnswerPart):
    code: int = 0
    message: str = ""


class _Object(_AnswerPart):
    oid: str
    size: int = 0
    actions: _Actions = _Actions()
    error: _ObjectError | None = None


class _Batch(_AnswerPart):
    transfer: str = "basic"
    hash_algo: str = "sha256"
    objects: tuple[_Object, ...] = Field(max_length=1000)


def read_batch(answer: bytes, wanted: Mapping[str, PointedFile]) -> dict[str, DownloadAction]:
    """The action for each wanted object, by its id. Objects that were not asked for are ignored.

    Raises: `not_found`, `remote_broken`, `quota_exceeded`.
    """
    try:
        batch = _Batch.model_validate_json(answer)
    except ValidationError as error:
        raise broken_error("its answer is not one of the batch API", describe_errors(error)) from error
    if batch.transfer != "basic" or batch.hash_algo != "sha256":
        raise broken_error("it chose a transfer that it was not offered", one_line(batch.transfer)[:100])
    given = {found.oid: found for found in batch.objects if found.oid in wanted}
    return {oid: _read_action(file, given.get(oid)) for oid, file in wanted.items()}


def _read_action(file: PointedFile, found: _Object | None) -> DownloadAction:
    if found is None:
        raise broken_error("it did not answer for an object", _describe(file))
    if found.error is not None:
        raise _object_error(file, found.error)
    if found.size != file.pointer.size:
        raise broken_error(f"it says that an object has {found.size} bytes", _describe(file))
    if found.actions.download is None:
        raise broken_error("it does not say where an object is", _describe(file))
    for name, value in found.actions.download.header.items():
        if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value) or _OURS.fullmatch(name.lower()):
            raise broken_error("it asks for a header that it may not choose", ascii(name)[:100])
    return found.actions.download


def _object_error(file: PointedFile, error: _ObjectError) -> SandboxError:
    said = f"{_describe(file)}\nthe server: {error.code} {one_line(error.message)}"  # cut by `redact_secret`
    if error.code in {404, 410}:
        return SandboxError(
            ErrorCode.NOT_FOUND,
            f"The server of Git LFS does not have the content of {show_path(file.entry.path)[:200]}",
            details=said,
            hint=f"Its author has to upload it: `git lfs push --all`. {POINTERS_HINT}",
        )
    if error.code in {507, 509}:
        return _spent_error(said)
    return broken_error("it refuses an object", said)


def refusal(status: int, headers: Mapping[str, str], hostname: str, said: str) -> SandboxError:
    """The error for an answer other than success. `said`: the server's text."""
    details = f"HTTP {status} {one_line(said)[:300]}".rstrip()
    if status in {401, 403}:
        return SandboxError(
            ErrorCode.AUTH_FAILED,
            f"{hostname} refuses the files of Git LFS",
            details=details,
            hint=f"Store a token that may read them: sandbox credentials set {hostname}. {POINTERS_HINT}",
        )
    if status in {404, 405, 406, 410, 501}:
        return SandboxError(
            ErrorCode.REMOTE_NOT_FOUND,
            f"{hostname} has no Git LFS for this repository, or no access to it",
            details=details,
            hint=f"Check that the token may read it: sandbox credentials set {hostname}. {POINTERS_HINT}",
        )
    if status in {507, 509}:
        return _spent_error(details)
    if status == 429 or status >= 500:
        wait_s = read_seconds(headers, "Retry-After") or 0.0
        error = SandboxError(
            ErrorCode.NETWORK_ERROR, f"{hostname} cannot answer now", details=details, hint="Try again later."
        )
        return TransientForgeError(error, wait_s)
    if 300 <= status < 400:
        return broken_error(
            "it redirects to another address; if the project was moved, clone it by its new URL", details
        )
    return broken_error("it refuses a request", details)


def broken_error(what: str, details: str) -> SandboxError:
    """`remote_broken`: the server does not keep to the protocol. `what`: a clause."""
    return SandboxError(
        ErrorCode.REMOTE_BROKEN, f"The server of Git LFS cannot be used: {what}", details=details, hint=POINTERS_HINT
    )


def _spent_error(details: str) -> SandboxError:
    return SandboxError(
        ErrorCode.QUOTA_EXCEEDED,
        "The server's quota for Git LFS is used up",
        details=details,
        hint=f"The owner of the repository can raise it. {POINTERS_HINT}",
    )


def _describe(file: PointedFile) -> str:
    return f"{show_path(file.entry.path)[:200]} sha256:{file.pointer.oid} {file.pointer.size} bytes"
