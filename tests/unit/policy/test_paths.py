"""One grammar for repository paths, and one reversible text form. Ids of the tables: THREATS."""

from __future__ import annotations

import unicodedata
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.errors import ErrorCode, SandboxError
from sandbox.policy import paths
from sandbox.policy.paths import LISTED_PATH_HINT, is_dotgit, parse_repo_path, path_bytes, show_path
from sandbox.text import neutralise
from tests.unit.conftest import refused

ZERO_WIDTH = "\u200c"


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "empty"),
        ("../x", "traversal"),
        ("a/../../x", "traversal"),
        ("a/..", "traversal"),
        (".", "traversal"),
        ("./a", "traversal"),
        ("a/.", "traversal"),
        ("a/", "traversal"),
        ("a//b", "traversal"),
        ("/etc/passwd", "absolute"),
        ("//x", "absolute"),
        ("C:\\x", "absolute"),
        ("c:x", "drive"),
        ("a:b", "drive"),
        ("~/.ssh/id", "absolute"),
        ("~root/x", "absolute"),
        ("..\\x", "backslash"),
        ("a\\b", "backslash"),
        ("a\0b", "control"),
        ("a\nb", "control"),
        ("a\tb", "control"),
        ("a\x1b[31m", "control"),
        ("a\x7f", "control"),
        ("%2e%2e/x", "escape"),
        ("%2E%2E/x", "escape"),
        ("a%2fb", "escape"),
        ("a%00b", "escape"),
        ("%41", "escape"),
        ("\udcff", "encoding"),
        ("\ud800x", "encoding"),
        ("a" * 256, "length"),
        ("/".join(["a" * 100] * 41), "length"),
    ],
)
def test_h01_a_path_outside_the_grammar_is_refused_by_a_named_rule(text: str, rule: str) -> None:
    with refused(ErrorCode.UNSAFE_PATH) as caught:
        parse_repo_path(text)
    assert f"'{rule}'" in caught.value.brief


def test_a_path_as_a_listing_spells_it_out_is_answered_with_the_character_that_is_meant() -> None:
    """Read as the character, it could be another file: a name may have these characters. Control: the name itself."""
    name = "nö\N{RIGHT-TO-LEFT OVERRIDE}e.txt"
    shown = neutralise(name)
    assert parse_repo_path(name) == name != shown
    with refused(ErrorCode.UNSAFE_PATH) as caught:
        parse_repo_path(shown)
    words = "Listings show an invisible character as \\u202e. The name has the character itself, U+202E: "
    assert caught.value.hint.startswith(words)
    with refused(ErrorCode.UNSAFE_PATH) as caught:
        parse_repo_path(neutralise("a\U000e0041b"))
    assert "U+E0041: " in caught.value.hint
    with refused(ErrorCode.UNSAFE_PATH) as caught:
        parse_repo_path("a\\b")
    assert caught.value.hint.startswith("Write / between folders.")


ACCEPTED = """a a/b/c -rf ..a a..b ... .gitignore .github/workflows/x.yml % 100% a%zz %FF gitdir git~x * :(top)x $(x)"""


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("./src/a.py", "src/a.py"),
        ("/src/a.py", "src/a.py"),
        ("src//./a.py", "src/a.py"),
        ("src/", "src"),
        ("./caf%E9", "caf%E9"),
        ("../x", None),
        ("./../x", None),
        ("/.git/config", None),
        ("/C:x", None),
        (".", None),
        ("//", None),
        ("./" + "a/" * 200 + "a", None),
    ],
)
def test_a_refused_path_suggests_the_valid_one_that_it_nearly_is(text: str, meant: str | None) -> None:
    with refused(ErrorCode.UNSAFE_PATH) as caught:
        parse_repo_path(text)
    wanted = LISTED_PATH_HINT if meant is None else f"Write it from the root of the repository: {meant}"
    assert caught.value.hint == wanted


@pytest.mark.parametrize(
    "text",
    [*ACCEPTED.split(), "a b", " x", "a'b\"c", "\u00e9", "\u2024\u2024/x", "x\u202egnp.sh", "a" * 255],
    ids=ascii,
)
def test_an_ordinary_or_merely_odd_path_is_accepted_as_it_is(text: str) -> None:
    assert parse_repo_path(text) == text


DOTGIT = [
    ".git",
    ".GIT",
    ".Git",
    ".git ",
    ".git.",
    ".git. .",
    ".git::$INDEX_ALLOCATION",
    ".git:stream",
    "git~1",
    "GIT~1",
    "git~12",
    f".g{ZERO_WIDTH}it",
    f"{ZERO_WIDTH}.git",
    ".gi\u200dt",
    ".git\ufeff",
    ".g\u206ait",
    "\uff0egit",
    ".\uff47\uff49\uff54",
]


@pytest.mark.parametrize("name", DOTGIT, ids=ascii)
@pytest.mark.parametrize("place", ["{}", "{}/config", "a/{}", "a/b/{}/hooks/x"])
def test_j02_j03_c06_every_spelling_of_dotgit_is_refused_at_every_depth(name: str, place: str) -> None:
    assert is_dotgit(name.encode())
    with refused(ErrorCode.UNSAFE_PATH) as caught:
        parse_repo_path(place.format(name))
    assert "'dotgit'" in caught.value.brief


@pytest.mark.parametrize(
    "name", [".gitignore", ".gitmodules", "git", "x.git", ".gitx", "git~", "agit~1", "..git", ".gi"]
)
def test_a_name_that_only_looks_similar_is_no_dotgit(name: str) -> None:
    assert not is_dotgit(name.encode())


def test_a_name_that_is_no_text_is_no_dotgit_and_does_not_fail() -> None:
    assert not is_dotgit(b"\xff\xfe")
    assert is_dotgit(b".GIT")


@settings(max_examples=200)
@given(st.binary(max_size=30).filter(lambda b: b"\0" not in b))
def test_h20_any_bytes_survive_their_text_form(raw: bytes) -> None:
    text = show_path(raw)
    assert path_bytes(text) == raw
    assert text.encode("utf-8") if raw else text == ""


@settings(max_examples=200)
@given(st.lists(st.sampled_from([b"%", b"2", b"5", b"F", b"\xff", b"\xc3", b"\xa9", b"a"]), max_size=10).map(b"".join))
def test_percent_signs_and_broken_utf8_survive_together(raw: bytes) -> None:
    assert path_bytes(show_path(raw)) == raw


@settings(max_examples=200)
@given(st.text(max_size=20) | st.lists(st.sampled_from(["a", "..", ".", "/", "%2e", "%FF", "~", ".git"])).map("".join))
def test_an_accepted_path_is_canonical_and_stays_below_its_root(text: str) -> None:
    try:
        path = parse_repo_path(text)
    except SandboxError as error:
        if error.code is not ErrorCode.UNSAFE_PATH:
            raise
        return
    assert parse_repo_path(path) == path
    assert show_path(path_bytes(path)) == path
    assert not {b"", b".", b".."} & set(path_bytes(path).split(b"/"))


def test_two_spellings_of_one_name_become_one() -> None:
    assert parse_repo_path("%C3%A9") == "\u00e9"


@given(st.text(alphabet=st.characters(codec=None), max_size=300))
def test_any_text_is_accepted_or_refused_in_our_words(text: str) -> None:
    with suppress(SandboxError):
        parse_repo_path(text)


IGNORED_BY_EXT4 = [
    "\u00ad",
    "\u034f",
    "\u061c",
    "\u115f",
    "\u180e",
    "\u200b",
    "\u2060",
    "\ufe0f",
    "\uffa0",
    "\U000e0001",
]


@pytest.mark.parametrize("char", IGNORED_BY_EXT4, ids=ascii)
def test_c06_no_code_point_that_a_casefolded_directory_ignores_hides_dotgit(char: str) -> None:
    """Control: compatibility normalisation and case folding alone do not see it."""
    for name in (f".g{char}it", f"{char}.git", f".git{char}", f"git{char}~1"):
        assert unicodedata.normalize("NFKC", name).casefold() not in {".git", "git~1"}
        assert is_dotgit(name.encode())


def test_s190_long_names_are_not_cached() -> None:
    """Thousands of them, of a megabyte each, would stay in memory. Control: short ones are, and both are judged."""
    before = paths._fold_once.cache_info().currsize
    assert not paths.is_dotgit("\N{ZERO WIDTH JOINER}".encode() * 100_000)
    assert paths.is_dotgit(b".g" + "\N{ZERO WIDTH JOINER}".encode() * 100_000 + b"it")
    assert paths._fold_once.cache_info().currsize == before
    assert not paths.is_dotgit(b"a name that no other test has")
    assert paths._fold_once.cache_info().currsize == before + 1 or before == 4096
