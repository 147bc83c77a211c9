"""Which request takes which of `VerifyOptions`: one that it would ignore is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest

from sandbox.errors import ErrorCode
from sandbox.models import BisectQuery
from sandbox.workbench import VerifyOptions, Workbench
from sandbox.workbench.checks.verify_options import RoomRequest, choose_options
from tests.unit.conftest import Upstream, refused
from tests.unit.desk import Desk

OTHER_VALUES: dict[str, object] = {
    "cache": False,
    "jobs": 2,
    "keep_going": True,
    "runtime": "runsc",
    "include_changes": True,
    "refresh": True,
    "lfs": False,
    "projects": {"x": {"subpath": "nonsense"}},
    "subpath": "nonsense",
    "named_folder": "nonsense",
    "from_scratch": True,
    "against": "nonsense",
    "repeat": 3,
    "shuffle": 5,
    "changed_since": "nonsense",
}
OF_RUN = {"include_changes", "lfs", "projects", "subpath", "named_folder", "changed_since"}
OF_VERIFY = {"against", "repeat", "shuffle"}
IGNORED: dict[RoomRequest, set[str]] = {
    "run": OF_VERIFY,
    "verify": OF_RUN,
    "candidate": OF_RUN | OF_VERIFY,
    "bisect": OF_RUN | OF_VERIFY | {"keep_going"},
}
CALLS: dict[str, tuple[RoomRequest, Callable[[Workbench, str, str, VerifyOptions], object]]] = {
    "run": ("run", lambda bench, _, repo, how: bench.run(repo, options=how)),
    "verify": ("verify", lambda bench, task, _, how: bench.verify(task, options=how)),
    "start_verify": ("verify", lambda bench, task, _, how: bench.start_verify(task, options=how)),
    "candidate of a task": ("candidate", lambda bench, task, _, how: bench.candidate(task, options=how)),
    "candidate of a repository": ("candidate", lambda bench, _, repo, how: bench.candidate(repo, options=how)),
    "start_candidate": ("candidate", lambda bench, task, _, how: bench.start_candidate(task, options=how)),
    "bisect": (
        "bisect",
        lambda bench, _, repo, how: bench.bisect(
            repo, BisectQuery(check_id="test", good="main", bad="main"), None, how
        ),
    ),
}


def test_every_option_has_a_rule() -> None:
    assert OTHER_VALUES.keys() == {field.name for field in fields(VerifyOptions)}


@pytest.mark.parametrize("name", OTHER_VALUES)
@pytest.mark.parametrize("request_name", IGNORED)
def test_a_request_takes_its_options_and_refuses_the_others(request_name: RoomRequest, name: str) -> None:
    options = VerifyOptions(**{name: OTHER_VALUES[name]})  # type: ignore[arg-type]  # by name
    if name not in IGNORED[request_name]:
        assert choose_options(request_name, options) is options
        return
    with refused(ErrorCode.INVALID_INPUT) as error:
        choose_options(request_name, options)
    assert error.value.brief == f"`{request_name}` does not take the option `{name}`"
    assert error.value.hint


def test_each_method_refuses_what_it_would_ignore(upstream: Upstream, tmp_path: Path) -> None:
    desk = Desk(upstream, tmp_path / "home")
    cases = [(call, option) for request, call in CALLS.values() for option in sorted(IGNORED[request])]
    with desk.workbench as workbench:
        for call, option in cases:
            options = VerifyOptions(**{option: OTHER_VALUES[option]})  # type: ignore[arg-type]  # by name
            with refused(ErrorCode.INVALID_INPUT) as error:
                call(workbench, desk.task.id, desk.repo_id, options)
            assert error.value.brief.endswith(f"does not take the option `{option}`")
