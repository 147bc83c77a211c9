"""What a file of a workspace may hold: the same for every kind (docs/adr/0186)."""

from __future__ import annotations

from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.tree import READ_CAP

WRITE_BYTES = READ_CAP
"""The largest content that is written: what an edit of a task takes. Reached: `quota_exceeded`."""

READ_BYTES = 64 * 1024**2
"""The largest file that is read: something else than a workspace wrote it. Reached: `quota_exceeded`."""


def require_content(content: object) -> bytes:
    """The content of a write. Raises: `invalid_input` for what is not bytes; `quota_exceeded` past `WRITE_BYTES`."""
    if not isinstance(content, (bytes, bytearray, memoryview)):
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            f"The content of a file should be bytes, not {type(content).__name__}",
            hint="Encode text: text.encode()." if isinstance(content, str) else "",
        )
    if memoryview(content).nbytes > WRITE_BYTES:
        raise SandboxError(
            ErrorCode.QUOTA_EXCEEDED,
            f"A file of a workspace may be written with {WRITE_BYTES} bytes at most",
            hint="No file was changed. A check, or a program in the workspace's directory, may write larger ones.",
        )
    return bytes(content)
