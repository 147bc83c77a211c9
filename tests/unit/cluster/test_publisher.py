"""Which repositories a controller that publishes clones. Id: THREATS S145."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from sandbox.cluster.publisher import require_listed
from sandbox.config import Settings
from sandbox.errors import ErrorCode
from tests.unit.conftest import refused


@pytest.mark.parametrize(
    ("url", "pattern", "is_listed"),
    [
        ("https://github.com/Acme/App", "github.com/acme/*", True),
        ("https://github.com/acme/app", "GitHub.com/Acme/App", True),
        ("https://GIT.example.org/team/app", "git.example.org/team/*", True),
        ("https://git.example.org/team/app", "Git.Example.org/team/app", True),
        ("https://git.example.org/Team/app", "git.example.org/team/app", False),
        ("ssh://git@git.example.org/team/APP", "git.example.org/team/app", False),
        ("https://git.example.org/team/app", "git.example.org/Team/*", False),
        ("https://forge.example.org/Acme/App", "forge.example.org/acme/*", True),
        ("https://github.com/other/app", "github.com/acme/*", False),
    ],
)
def test_s145_names_that_only_differ_in_case_are_the_same_on_a_forge_only(
    url: str, pattern: str, *, is_listed: bool
) -> None:
    settings = Settings.model_validate(
        {"cluster": {"publishes": [pattern]}, "remotes": {"gitlab_hosts": ["forge.example.org"]}}
    )
    with nullcontext() if is_listed else refused(ErrorCode.POLICY_VIOLATION):
        require_listed(url, settings)
