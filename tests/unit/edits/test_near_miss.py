"""What is said of a text that is not in a file, and of a path that is not in a repository."""

from __future__ import annotations

import json
import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devtools.host_speed import slowness
from sandbox.edits.near_miss import find_near
from sandbox.edits.near_paths import find_near_paths

SOURCE = b"".join(b"def step_%d(value):\n    return value + %d\n\n" % (n, n) for n in range(200))


def where(content: bytes, wanted: bytes) -> list[tuple[int, int]]:
    return [(place.first, place.last) for place in find_near(content, wanted).places]


@pytest.mark.parametrize(
    "wanted",
    [
        b"def step_7(value):\n\treturn value + 7\n",
        b"def step_7(value):\r\n    return value + 7",
        b"def  step_7( value ):\n    return value + 7\n\n",
        b"def step_7(value): return value + 7 ",
    ],
    ids=["tabs", "line-ends", "spaces", "one-line"],
)
def test_white_space_alone_is_told_apart(wanted: bytes) -> None:
    near = find_near(SOURCE, wanted)
    assert near.white_space
    assert [(p.first, p.last) for p in near.places[:1]] == [(22, 23)]


@pytest.mark.parametrize(
    ("wanted", "first"),
    [
        (b"def step_7(values):\n    return value + 7\n", 22),
        (b"def step_42(value):\n    retrun value + 42", 127),
        (b"step_199(vaule)", 598),
        (b"    return value + 150 # sum\n\ndef step_151(value):", 452),
    ],
    ids=["first-line", "second-line", "within-a-line", "across"],
)
def test_the_closest_lines_come_first(wanted: bytes, first: int) -> None:
    near = find_near(SOURCE, wanted)
    assert not near.white_space
    assert near.places[0].first == first
    assert len(near.places) <= 3
    assert f"\n{first} | " in near.describe()


def test_what_is_like_nothing_has_no_place() -> None:
    assert where(SOURCE, b"ZZZ QQQ") == []
    assert where(b"", b"x") == []
    assert where(b"\n\n", b"  \n ") == []
    assert find_near(SOURCE, b"ZZZ QQQ").describe() == ""


def test_a_long_text_is_shown_where_it_differs() -> None:
    lines = SOURCE.split(b"\n")
    wanted = b"\n".join([*lines[:100], b"    return valeu", *lines[101:150]])
    place = find_near(SOURCE, wanted).places[0]
    assert place.first <= 101 <= place.last
    assert place.last - place.first < 12
    assert place.text.split("\n")[0] == lines[place.first - 1].decode()


@given(content=st.binary(max_size=400), wanted=st.binary(min_size=1, max_size=60))
def test_places_are_lines_of_the_file_and_bounded(content: bytes, wanted: bytes) -> None:
    near = find_near(content, wanted)
    assert len(near.places) <= 3
    for place in near.places:
        assert 1 <= place.first <= place.last <= content.count(b"\n") + 1
        assert len(place.text) <= 700
    json.dumps(near.as_data())


HOSTILE = {
    "blank-lines": (b"\n" * 10**7, b"x\n" * 5000),
    "one-line": (b"ab" * 5 * 10**6, b"abc" * 5000),
    "same-lines": (b"aaaa\n" * 2 * 10**6, b"aaaa\n" * 3000 + b"b"),
    "white-space": (b" \t" * 5 * 10**6, b"x y z"),
    "random": (random.Random(1).randbytes(10**7), random.Random(2).randbytes(16000)),  # noqa: S311 - a test's data
}


@pytest.mark.parametrize(("content", "wanted"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_file_costs_no_more_than_its_size(content: bytes, wanted: bytes) -> None:
    started = time.process_time()
    near = find_near(content, wanted)
    assert time.process_time() - started < 5 * slowness()
    assert len(near.describe()) < 5000


def test_paths_of_the_same_name_come_before_those_spelled_alike() -> None:
    known = ["src/app/main.py", "tests/app/main.py", "src/app/man.py", "docs/index.md", "src/evil\nmain.py"]
    assert find_near_paths("src/main.py", known) == ("src/app/main.py", "tests/app/main.py", "src/app/man.py")
    assert find_near_paths("docs/INDEX.md", known)[0] == "docs/index.md"
    assert find_near_paths("nothing-like-it", known) == ()
    assert find_near_paths("x" * 5000, known) == ()
    assert find_near_paths("a", []) == ()


def test_near_paths_of_a_large_repository_are_found_in_moments() -> None:
    known = [f"packages/module_{n % 97}/deep/er/file_{n}.py" for n in range(60_000)]
    started = time.process_time()
    found = find_near_paths("packages/module_7/deep/er/file_1074.pz", known)
    assert time.process_time() - started < 3 * slowness()
    assert "packages/module_7/deep/er/file_1074.py" in found
