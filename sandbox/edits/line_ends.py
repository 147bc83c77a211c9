"""Line endings of an edit that differ from those of its file: editors and models lose them.

Only if the whole file has one kind and the whole edit the other: then the change can be reversed exactly.
"""

from __future__ import annotations

KEPT = "CRLF line endings were kept, as in the file"


def has_only_crlf(content: bytes) -> bool:
    """Whether each line ends with CRLF, and there is one that ends."""
    ends = content.count(b"\r\n")
    return ends > 0 and ends == content.count(b"\n")


def match_line_ends(content: bytes, old: bytes, new: bytes) -> tuple[bytes, bytes, tuple[str, ...]]:
    """A text and its replacement with the line endings of the file, and a note if they were changed."""
    both = old + new
    if b"\r" not in both and b"\n" in both and has_only_crlf(content):
        return old.replace(b"\n", b"\r\n"), new.replace(b"\n", b"\r\n"), (KEPT,)
    if b"\r\n" in old and b"\r\n" not in content and both.count(b"\r\n") == both.count(b"\n"):
        dropped = "CRLF line endings of the text were changed to LF, as in the file"
        return old.replace(b"\r\n", b"\n"), new.replace(b"\r\n", b"\n"), (dropped,)
    return old, new, ()
