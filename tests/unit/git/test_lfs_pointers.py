"""Which blobs are pointers of Git LFS."""

from __future__ import annotations

import pytest

from devtools.forges.lfs import pointer_of
from sandbox.errors import ErrorCode
from sandbox.git.lfs_pointers import is_pointer, parse_pointer
from tests.unit.conftest import refused

GOOD = pointer_of(b"content")


def test_a_pointer_names_the_hash_and_the_size() -> None:
    found = parse_pointer(GOOD)
    assert found is not None
    assert (found.size, found.text) == (7, GOOD)
    assert found.sha256 == "sha256:ed7002b439e9ac845f22357d822bac1444730fbdb6016d3ec9432297b9ec9f73"


@pytest.mark.parametrize(
    "content",
    [
        GOOD + b"more\n",
        GOOD.replace(b"size 7", b"size 07"),
        GOOD.replace(b"size 7", b"size -7"),
        GOOD.replace(b"git-lfs.github.com", b"evil.example"),
        GOOD.replace(b"\n", b"\r\n"),
        GOOD + b"\n" * 1000,
        b"",
    ],
    ids=["more lines", "leading zero", "negative", "version", "line ends", "long", "empty"],
)
def test_other_texts_are_files(content: bytes) -> None:
    assert parse_pointer(content) is None
    assert not is_pointer(content)


def test_a_pointer_with_extensions_is_refused_by_name() -> None:
    extended = GOOD.replace(b"oid ", b"ext-0-crypt sha256:%s\noid " % (b"0" * 64), 1)
    assert is_pointer(extended)
    with refused(ErrorCode.UNSAFE_REPOSITORY) as caught:
        parse_pointer(extended)
    assert "ext-0-crypt" in caught.value.details
