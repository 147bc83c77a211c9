"""Which steps the gate guards, and what it says. The cells with a real tree are in tests/docker/test_gate.py."""

from __future__ import annotations

from typing import get_args

import pytest

from sandbox.config import GateSettings
from sandbox.gate import Require, Step, refusal, required

PUSH, DRAFT, READY = Step.PUSH, Step.DRAFT_PR, Step.READY_PR
GUARDED: dict[Require, set[Step]] = {
    "none": set(),
    "pr-ready": {READY},
    "pr": {DRAFT, READY},
    "push": {PUSH, DRAFT, READY},
}


@pytest.mark.parametrize("require", get_args(Require))
@pytest.mark.parametrize("step", Step)
def test_each_setting_guards_its_step_and_all_that_come_after_it(require: Require, step: Step) -> None:
    assert required(step, require) is (step in GUARDED[require])


def test_the_settings_know_the_same_words() -> None:
    annotation = GateSettings.model_fields["require"].annotation
    assert set(get_args(annotation)) == set(get_args(Require)) == set(GUARDED)


def test_a_refusal_names_tree_step_and_the_checks_that_lack_a_verdict() -> None:
    text = refusal(PUSH, "abcdef" * 7, ("build", "test"), "make")
    assert "tree abcdefabcdef " in text
    assert "before a push" in text
    assert "'build', 'test'" in text


def test_a_profile_without_checks_is_named() -> None:
    assert "the profile 'generic' has no checks" in refusal(READY, "a" * 40, (), "generic")
