"""Which steps the gate guards, and what it says. The cells with a real tree are in tests/docker/test_gate.py."""

from __future__ import annotations

from typing import get_args

import pytest

from sandbox.config import GateSettings
from sandbox.gate import DeliveryStep, Require, describe_refusal, needs_verification

PUSH, DRAFT, READY = DeliveryStep.PUSH, DeliveryStep.DRAFT_PR, DeliveryStep.READY_PR
GUARDED: dict[Require, set[DeliveryStep]] = {
    "none": set(),
    "pr-ready": {READY},
    "pr": {DRAFT, READY},
    "push": {PUSH, DRAFT, READY},
}


@pytest.mark.parametrize("require", get_args(Require))
@pytest.mark.parametrize("step", DeliveryStep)
def test_each_setting_guards_its_step_and_all_that_come_after_it(require: Require, step: DeliveryStep) -> None:
    assert needs_verification(step, require) is (step in GUARDED[require])


def test_the_settings_know_the_same_words() -> None:
    annotation = GateSettings.model_fields["require"].annotation
    assert set(get_args(annotation)) == set(get_args(Require)) == set(GUARDED)


def test_a_refusal_names_tree_step_and_the_checks_that_lack_a_verdict() -> None:
    text = describe_refusal(PUSH, "abcdef" * 7, ("build", "test"), "make")
    assert "tree abcdefabcdef " in text
    assert "before a push" in text
    assert "'build', 'test'" in text


def test_a_profile_without_checks_is_named() -> None:
    assert "the profile 'generic' has no checks" in describe_refusal(READY, "a" * 40, (), "generic")
