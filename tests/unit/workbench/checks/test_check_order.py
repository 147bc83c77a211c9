"""What a request for checks is answered with."""

from __future__ import annotations

import pytest

from sandbox.errors import ErrorCode
from sandbox.models import Check
from sandbox.policy.container import ContainerPolicy
from sandbox.profiles import Profile
from sandbox.workbench.checks.check_order import order_checks
from tests.unit.conftest import refused


@pytest.mark.parametrize(("asked", "meant"), [("tset", "Did you mean: test?"), ("zzz", "Known: build, test.")])
def test_an_unknown_check_is_answered_with_those_of_the_profile_and_no_task(asked: str, meant: str) -> None:
    """`sandbox run` has no task."""
    checks = tuple(Check(id=name, label=name, argv=("make", name)) for name in ("build", "test"))
    profile = Profile(name="p", label="p", image="i", check=checks)
    with refused(ErrorCode.NOT_FOUND) as caught:
        order_checks(profile, [asked], ContainerPolicy())
    assert (caught.value.details, "TASK" in caught.value.hint) == (meant, False)
    assert "build, test" in caught.value.hint


def test_a_set_of_ids_is_in_the_order_of_the_profile() -> None:
    """It has no first one: a set was a TypeError, and of a run in the background `internal`."""
    checks = tuple(Check(id=name, label=name, argv=("make", name)) for name in ("build", "test"))
    profile = Profile(name="p", label="p", image="i", check=checks)
    assert [one.id for one in order_checks(profile, {"test", "build"}, ContainerPolicy())] == ["build", "test"]
    with refused(ErrorCode.NOT_FOUND):
        order_checks(Profile(name="p", label="p", image="i"), {"test"}, ContainerPolicy())
