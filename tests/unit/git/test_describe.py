"""What a commit is called: as git and setuptools-scm call it."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.errors import ErrorCode
from sandbox.git.describe import derive_version, describe_commit
from sandbox.git.process import Git
from tests.unit.conftest import Upstream, refused

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("tag", "distance", "version"),
    [
        ("v1.2.3", 0, "1.2.3"),
        ("1.2.3", 4, "1.2.4.dev4+g012345678"),
        ("release-2.0", 1, "2.1.dev1+g012345678"),
        ("project/v3", 1, "4.dev1+g012345678"),
        ("1.0rc1", 2, "1.0rc2.dev2+g012345678"),
        ("1.1.dev0", 2, "1.1.dev2+g012345678"),
        ("v1.0-rc.1", 0, "1.0rc1"),
        ("nightly-2024x", 3, "0.1.dev3+g012345678"),
    ],
)
def test_a_version_follows_from_the_nearest_tag(tag: str, distance: int, version: str) -> None:
    assert derive_version(tag, distance, COMMIT) == version


def test_a_commit_is_described_by_git_itself(upstream: Upstream) -> None:
    upstream.write("f", b"one\n")
    first = upstream.commit()
    git = Git(upstream.git_dir)
    found = describe_commit(git, first)
    assert (found.described, found.version) == (first[:9], f"0.1.dev1+g{first[:9]}")

    upstream.git("tag", "v1.0")
    upstream.git("tag", "stable")  # no digit: not a version
    second = upstream.commit()
    found = describe_commit(git, second)
    assert found.described == upstream.git("describe", "--tags", "--long", "--abbrev=9", "--match=v*").decode().strip()
    assert (found.commit, found.version) == (second, f"1.1.dev1+g{second[:9]}")
    assert found.time_s == int(upstream.git("show", "--no-patch", "--format=%ct", second))


def test_a_tag_that_is_no_plain_text_describes_nothing(upstream: Upstream) -> None:
    upstream.write("f", b"one\n")
    commit = upstream.commit()
    upstream.git("tag", "v1\N{RIGHT-TO-LEFT OVERRIDE}2")
    assert describe_commit(Git(upstream.git_dir), commit).described == commit[:9]


def test_an_unknown_commit_is_not_described(upstream: Upstream, tmp_path: Path) -> None:
    with refused(ErrorCode.NOT_FOUND):
        describe_commit(Git(upstream.git_dir), COMMIT)
