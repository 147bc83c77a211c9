"""The key by which workers and callers of a cluster name a repository."""

from __future__ import annotations

import re

import pytest

from sandbox.cluster.repository_key import make_repository_key


@pytest.mark.parametrize(
    "url",
    [
        "https://github.com/owner/name",
        "https://GitHub.com/Owner/name.git/",
        "git@github.com:owner/name.git",
        "ssh://git@github.com/owner/name",
    ],
)
def test_every_spelling_of_a_url_has_one_key(url: str) -> None:
    key = make_repository_key(url)
    assert key == make_repository_key("https://github.com/owner/name")
    assert re.fullmatch("[0-9a-f]{16}", key)


def test_other_repositories_have_other_keys() -> None:
    urls = ("https://github.com/owner/name", "https://github.com/owner/other", "https://gitlab.com/owner/name")
    assert len({make_repository_key(url) for url in urls}) == 3


@pytest.mark.parametrize("url", ["", "no url", "https://user:secret@github.com/owner/name"])
def test_what_no_worker_can_clone_has_no_key(url: str) -> None:
    assert make_repository_key(url) == ""
