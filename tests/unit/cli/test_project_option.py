from __future__ import annotations

import click
import pytest

from sandbox.cli.project_option import parse_projects


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("api=services/api", {"api": {"subpath": "services/api"}}),
        ("api=services/api:python", {"api": {"subpath": "services/api", "profile": "python"}}),
        ("services/Api/", {"api": {"subpath": "services/Api/"}}),
        ("web:node", {"web": {"profile": "node"}}),
        ("web", {"web": {}}),
        ("js=.:node", {"js": {"subpath": ".", "profile": "node"}}),
    ],
)
def test_a_project_is_a_name_a_folder_and_a_profile(text: str, found: dict[str, dict[str, str]]) -> None:
    assert parse_projects([text]) == found


@pytest.mark.parametrize("texts", [["="], ["api="], ["=api"], ["."], ["Api=web"], ["a.b=web"], ["a=web", "a=x"]])
def test_what_names_no_project_is_a_usage_error(texts: list[str]) -> None:
    with pytest.raises(click.UsageError):
        parse_projects(texts)
