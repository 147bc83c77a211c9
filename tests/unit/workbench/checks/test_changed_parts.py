"""Which checks a change asks for, in a repository with several projects."""

from __future__ import annotations

import pytest

from sandbox.models import Check
from sandbox.profiles import Profile
from sandbox.workbench.checks.changed_parts import find_changed_checks


def part(name: str, folder: str, *ids: str) -> Profile:
    checks = tuple(Check(id=each, label=each, argv=("true",)) for each in ids)
    bare = Profile(name="make", label="", image="base")
    return bare.model_copy(update={"folder": folder, "project_name": name, "checks": checks})


API, WEB = part("api", "services/api", "api.test"), part("web", "web", "web.test")
SEVERAL = part("", "", "api.test", "web.test").model_copy(update={"project_parts": (API, WEB)})


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ((), ()),
        (("README.md",), ()),
        (("services/api/a.c",), ("api.test",)),
        (("services/api2/a.c", "website/x"), ()),
        (("web/x", "services/api/y"), ("api.test", "web.test")),
    ],
)
def test_a_project_is_checked_if_a_file_in_its_folder_changed(changed: tuple[str, ...], found: tuple[str, ...]) -> None:
    assert find_changed_checks(SEVERAL, changed) == found


def test_a_project_at_the_top_has_all_files() -> None:
    top = part("", "", "test")
    assert find_changed_checks(top, ("any/file",)) == ("test",)
    assert find_changed_checks(top, ()) == ()
