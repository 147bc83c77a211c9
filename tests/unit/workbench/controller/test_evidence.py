"""What the journal keeps of a result is registered by the name of the result's model."""

from __future__ import annotations

import inspect

import pytest

from sandbox import models
from sandbox.models import FileContent, StopResult
from sandbox.workbench.controller.journaling import _EXTRACTORS, Evidence, extract_evidence


@pytest.mark.parametrize("name", _EXTRACTORS)
def test_each_registered_name_is_the_model_that_its_function_takes(name: str) -> None:
    assert inspect.isclass(getattr(models, name))
    assert inspect.signature(_EXTRACTORS[name]).parameters["result"].annotation == name


def test_a_result_gives_the_evidence_of_its_model_and_others_give_none() -> None:
    class Derived(StopResult):
        pass

    namesake = type("StopResult", (), {"stopped": ("x",)})
    derived = Derived(task_id="task-00000000-0000-4000-8000-000000000000", stopped=())
    assert extract_evidence(derived) == Evidence(names=())
    assert extract_evidence(namesake()) == Evidence()
    assert extract_evidence(FileContent) == Evidence()
    assert extract_evidence(("no run",)) == Evidence()
