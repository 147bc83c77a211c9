"""TOML of a repository: what would take gigabytes is refused before it is parsed, and lock files are read."""

from __future__ import annotations

import tomllib

import pytest

from sandbox.policy import untrusted_toml

KEY = ".".join("b" * 180)


@pytest.mark.parametrize(
    "text",
    [
        "".join(f"a{number}.{KEY} = 1\n" for number in range(300)),
        "".join(f"[a{number}.{KEY}]\n" for number in range(300)),
        "".join(f"a{number} = {{{KEY} = 1}}\n" for number in range(300)),
        "a = " + "[\n" * 5_000,
        "a = " + "9" * 5_000,
    ],
    ids=["keys", "tables", "inline", "nested", "digits"],
)
def test_what_costs_a_multiple_of_its_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"dots|brackets|digits"):
        untrusted_toml.loads(text)


def test_what_is_refused_for_its_dots_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tomllib, "loads", lambda _: pytest.fail("parsed"))
    with pytest.raises(ValueError, match="dots"):
        untrusted_toml.loads("".join(f"a{number}.{KEY} = 1\n" for number in range(300)))


def test_dots_in_quotes_are_not_counted() -> None:
    """As in uv.lock: 20,000 addresses with seven dots each."""
    text = "".join(
        f"[[package]]\nname = 'a.b'\nurl = \"https://files.example.org/a.b/c-{number}.0.1.tar.gz\"\n"
        for number in range(20_000)
    )
    assert len(untrusted_toml.loads(text)["package"]) == 20_000
