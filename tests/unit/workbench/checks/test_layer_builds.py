from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sandbox.dependencies.layer_plan import ABSENT, UNFIT, LayerPlan
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import Verdict
from sandbox.models.dependencies import RefusalReason
from sandbox.workbench.checks.layer_builds import list_lacking, require_installed


@pytest.mark.parametrize(
    ("refused", "code", "named"),
    [(["a-1.0.0.crate"], ErrorCode.POLICY_VIOLATION, "a-1.0.0.crate"), ([], ErrorCode.INTERNAL, "failed")],
)
def test_an_archive_that_is_refused_is_no_error_of_ours(refused: list[str], code: ErrorCode, named: str) -> None:
    run: Any = SimpleNamespace(verdict=Verdict.FAILED, stderr_tail="why\n")
    with pytest.raises(SandboxError) as raised:
        require_installed(run, refused)
    assert (raised.value.code, raised.value.details) == (code, "why\n")
    assert named in raised.value.brief
    assert raised.value.hint


def test_an_install_that_succeeded_raises_nothing() -> None:
    run: Any = SimpleNamespace(verdict=Verdict.PASSED)
    require_installed(run, [])


def test_what_a_fetch_left_out_is_named_if_the_project_asks_for_it(tmp_path: Path) -> None:
    (tmp_path / ABSENT).write_text("@s/three@^2.0.0\nelse@1\n")
    (tmp_path / UNFIT).write_text("one@1\nelse@2\n")
    plan = LayerPlan({}, wanted=("@s/three@^2.0.0", "one@1"))
    assert [(entry.text, entry.reason) for entry in list_lacking(tmp_path, plan)] == [
        ("@s/three@^2.0.0", RefusalReason.ABSENT),
        ("one@1", RefusalReason.UNFIT),
    ]
