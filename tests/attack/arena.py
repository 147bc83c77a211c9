"""The victim of `sandbox.attack`, for tests: on the git of the test's choice, where an untyped failure fails the test.

A test first lets the attack hit an unhardened command (`fires`), which must leave its mark, then the product: without
the first half the second proves nothing.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from devtools.newergit import version_of
from sandbox.attack.harness.scene import Scene
from sandbox.errors import ErrorCode, SandboxError

GIT = shutil.which("git") or "git"

ALL_RUNS = bool(os.environ.get("ALL_ATTACKS"))
"""Whether every entry about git runs on the newer git too, and races for longer: `make attacks`."""

RACE_S = 4.0 if ALL_RUNS else 1.5
"""How long the product is raced against, once the control has lost the same race."""


def variants(values: Iterable[object], *ours: object) -> list[Any]:
    """Parameters, of which `make test` has `ours`. The others show the same of another value: `make thorough`."""
    values = [*values]
    assert set(ours) <= set(values)
    return [pytest.param(v, id=str(v), marks=() if v in ours else pytest.mark.thorough) for v in values]


@dataclass
class Arena(Scene):
    """One victim below `root`; `git_program` is the controls' and the product's."""

    git_program: str = GIT

    def build_environment(self) -> dict[str, str]:
        """The product's environment. It finds the installed git by itself; any other is the operator's setting."""
        environ = super().build_environment()
        if "DOCKER_HOST" in os.environ:
            environ["DOCKER_HOST"] = os.environ["DOCKER_HOST"]
        if self.git_program != GIT:
            environ["SANDBOX_GIT_EXECUTABLE"] = self.git_program
        return environ

    @cached_property
    def git_version(self) -> tuple[int, int]:
        return version_of(Path(self.git_program))

    def set_group(self, group: str, bound: str) -> None:
        """Run guests in this group, with this line of the container policy."""
        folder = self.home / "policies"
        folder.mkdir()
        (folder / "container.toml").write_text(f'group = "{group}"\n{bound}\n')
        self.workbench = self.open_workbench()

    def run_every_operation(self) -> list[SandboxError]:
        """Every host operation on the task, to its end; refusals are answers, anything untyped is a failure."""
        raised = super().run_every_operation()
        assert not [(e.brief, e.details) for e in raised if e.code is ErrorCode.INTERNAL]
        return raised


@contextmanager
def refused(*codes: ErrorCode) -> Iterator[list[SandboxError]]:
    """The body must raise a typed error with one of these codes (any but `internal` when none is named)."""
    caught: list[SandboxError] = []
    try:
        yield caught
    except SandboxError as error:
        caught.append(error)
    assert caught, f"accepted, but {' or '.join(codes) or 'a refusal'} was expected"
    allowed = caught[0].code in codes if codes else caught[0].code is not ErrorCode.INTERNAL
    assert allowed, (caught[0].code, caught[0].brief, caught[0].details)


def outcome(step: Callable[[], object]) -> SandboxError | None:
    """The typed error that a step ended with, if any; everything else passes through."""
    try:
        step()
    except SandboxError as error:
        return error
    return None
