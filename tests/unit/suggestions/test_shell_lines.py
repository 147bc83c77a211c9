"""Only commands that mean the same without a shell are taken from a script."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devtools.host_speed import slowness
from sandbox.suggestions.shell_lines import PlainCommand, find_installed_packages, join_lines, parse_command


@pytest.mark.parametrize(
    ("line", "argv", "env"),
    [
        ("make test", ("make", "test"), ()),
        ("cmake -S . -B build -DX='a b'", ("cmake", "-S", ".", "-B", "build", "-DX=a b"), ()),
        ("CC=clang V= make -j2", ("make", "-j2"), (("CC", "clang"), ("V", ""))),
        ('pytest -k "not slow"', ("pytest", "-k", "not slow"), ()),
        ("python -m pytest", ("python", "-m", "pytest"), ()),
        ("./configure --prefix=/usr", ("./configure", "--prefix=/usr"), ()),
        ("echo", None, ()),
    ],
)
def test_a_command_with_fixed_words_is_taken(line: str, argv: tuple[str, ...] | None, env: object) -> None:
    if argv is None:
        with pytest.raises(ValueError, match="no check"):
            parse_command(line)
    else:
        assert parse_command(line) == PlainCommand(argv, env)  # type: ignore[arg-type]  # pytest's table


@pytest.mark.parametrize(
    "line",
    [
        "make && make test", "make; make test", "make | tee log", "make > log", "make &", "(make)", "make || true",
        "make $X", "make `id`", "make ${{ matrix.x }}", "rm *.o", "make {a,b}", "cd x", "export A=b", "A=b", "source x",
        "sudo make install", "curl https://x", "pip install x", "python -m pip install x", "npm ci", "git clone x",
        "/usr/bin/wget x", "yarn", "eval make", "if true", "make 'x", "make a#b", "make \u202e", "make \x1b[0m", "''",
    ],
)  # fmt: skip
def test_a_command_that_needs_a_shell_a_network_or_root_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_command(line)


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("apt-get install -y libpng-dev zlib1g-dev", ["libpng-dev", "zlib1g-dev"]),
        ("sudo -E apt-get update && sudo DEBIAN_FRONTEND=noninteractive apt install a; make", ["a"]),
        ("sudo -u root apt-get -qq -o Dpkg::Use-Pty=0 install -t stable a=1.2 b:amd64", ["a", "b"]),
        ("apt-get install a | tee log", ["a"]),
        ("apt install ${{ matrix.config.a }} b -y", ["${{matrix.config.a}}", "b"]),
        ("apt-get remove a", []),
        ("echo apt-get install a", []),
        ("apt-get install 'a", []),
    ],
)
def test_packages_are_found_also_beside_other_commands(line: str, names: list[str]) -> None:
    assert list(find_installed_packages(line)) == names


def test_lines_are_joined_and_comments_dropped() -> None:
    assert list(join_lines("set -eux\n# x\nmake \\\n  test # y\n\n  echo 'a # b'\n")) == [
        "make    test",
        "echo 'a # b'",
    ]


@given(st.text(" #'\"a\t"))
def test_a_comment_has_no_quote_in_it(line: str) -> None:
    """Control: the expression that says so, which is quadratic in the number of `#`."""
    expected = re.sub(r"(?:^|\s)#[^'\"]*$", "", line).strip()
    assert list(join_lines(line)) == [expected] * bool(expected)


def test_s188_marks_of_comments_before_a_quote_are_read_in_linear_time() -> None:
    started = time.thread_time()
    assert len(list(join_lines((" #" * 1999 + "'\n") * 3000 + " #" * 1024**2 + "'"))) == 3001
    assert time.thread_time() - started < 10 * slowness()
