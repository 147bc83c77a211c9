"""The page for a pull request among what a server says about a push."""

from __future__ import annotations

import pytest

from sandbox.git.push.send import find_pull_request_page

GITEA = (
    "remote: \nremote: Create a new pull request for 'x':        \n"
    "remote:   https://git.example/o/n/compare/main...x        \n"
)


@pytest.mark.parametrize(
    ("said", "page"),
    [
        (GITEA, "https://git.example/o/n/compare/main...x"),
        ("remote: see https://git.example:8443/new", "https://git.example:8443/new"),
        ("remote: https://evil.example/login\nremote: https://git.example/new", "https://git.example/new"),
        ("remote: https://git.example@evil.example/", None),
        ("remote: https://user@git.example/", None),
        ("remote: https://[git.example/", None),
        ("remote: http://git.example/new", None),
        ("remote: javascript:https//git.example", None),
        ("To https://git.example/o/n.git\n * [new branch]", None),
        ("remote: https://git.example/\x1b[31m", "https://git.example/"),
        ("", None),
    ],
)
def test_only_a_page_on_the_servers_own_host_is_shown(said: str, page: str | None) -> None:
    assert find_pull_request_page(said, "git.example") == page
