"""How much of a limit was used, in words."""

from __future__ import annotations

import pytest

from sandbox.limit_shares import format_share, is_near_limit


@pytest.mark.parametrize(("used", "said"), [(0, "0 %"), (1, "under 1 %"), (10, "1 %"), (1500, "150 %")])
def test_a_little_of_a_limit_is_not_none_of_it(used: int, said: str) -> None:
    assert format_share(used, 1000) == said


@pytest.mark.parametrize(("highest", "near"), [(250, False), (251, True), (2000, True)])
def test_a_curve_under_a_quarter_of_its_limit_is_far_from_it(highest: int, near: bool) -> None:
    assert is_near_limit(highest, 1000) is near
