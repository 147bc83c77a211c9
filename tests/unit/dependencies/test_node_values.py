from __future__ import annotations

import base64

import pytest

from sandbox.dependencies.node_values import parse_integrity, require_name, require_range, require_version, split_alias
from sandbox.dependencies.requirement_text import RefusedTextError
from sandbox.models.dependencies import RefusalReason


@pytest.mark.parametrize("text", ["a", "A.b_c-1", "@s/p", "@s-x/p.js", "0", "~a"])
def test_a_plain_name_is_taken(text: str) -> None:
    assert require_name(text) == text


@pytest.mark.parametrize(
    "text",
    ["", "^1.2", "~1", "~> 1.2", "1.x || >=2.5.0 <3", "1.2.3 - 2", "*", "x", "latest", ">= 1.0.0-rc.1+b",
     "=v1.2.3", "1||2"],
)  # fmt: skip
def test_a_range_or_tag_is_taken(text: str) -> None:
    assert require_range(text) == text


@pytest.mark.parametrize(
    ("text", "alias"),
    [
        ("npm:b@^1", ("b", "^1")),
        ("npm:@s/b@1.0.0", ("@s/b", "1.0.0")),
        ("npm:@s/b", ("@s/b", "*")),
        ("npm:^1.0", ("a", "^1.0")),
        ("^1.0", ("a", "^1.0")),
    ],
)
def test_an_alias_has_the_real_name(text: str, alias: tuple[str, str]) -> None:
    assert split_alias("a", text) == alias


def test_the_sha512_of_several_hashes_is_taken() -> None:
    strong = base64.b64encode(bytes(64)).decode()
    weak = base64.b64encode(bytes(20)).decode()
    assert parse_integrity(f"sha1-{weak} sha512-{strong}?opt") == f"sha512:{'0' * 128}"
    for text in (f"sha1-{weak}", "sha512-x", f"sha512-{weak}", "", None, 5):
        with pytest.raises(RefusedTextError) as raised:
            parse_integrity(text)
        assert raised.value.reason is RefusalReason.HASH


@pytest.mark.parametrize("text", ["^1.0.0", "1", "1.2", "latest", "", "1.2.3 ", 1])
def test_a_version_of_a_lock_file_is_exactly_one(text: object) -> None:
    with pytest.raises(RefusedTextError):
        require_version(text)
