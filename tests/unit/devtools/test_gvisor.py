"""Registering gVisor changes nothing else of an engine's configuration."""

from __future__ import annotations

import json

import pytest

from devtools.gvisor import ARGUMENTS, Refused, reloadable, with_runtime

ENTRY = {"path": "/usr/bin/runsc", "runtimeArgs": list(ARGUMENTS)}


@pytest.mark.parametrize("before", ["", "{}", '{"runtimes": {}}'])
def test_it_is_added_to_an_empty_configuration(before: str) -> None:
    assert json.loads(with_runtime(before, "/usr/bin/runsc")) == {"runtimes": {"runsc": ENTRY}}


def test_what_is_there_stays() -> None:
    before = {"data-root": "/d", "runtimes": {"kata": {"path": "/k"}}}
    after = {"data-root": "/d", "runtimes": {"kata": {"path": "/k"}, "runsc": ENTRY}}
    assert json.loads(with_runtime(json.dumps(before), "/usr/bin/runsc")) == after


def test_an_entry_of_the_operators_is_not_replaced() -> None:
    before = {"runtimes": {"runsc": {"path": "/opt/runsc", "runtimeArgs": ["--platform=kvm"]}}}
    assert json.loads(with_runtime(json.dumps(before), "/usr/bin/runsc")) == before


@pytest.mark.parametrize("before", ["{", "[]", '{"runtimes": []}', '{"runtimes": {"runsc": {"runtimeType": "x"}}}'])
def test_what_it_does_not_understand_it_leaves_alone(before: str) -> None:
    with pytest.raises(Refused):
        with_runtime(before, "/usr/bin/runsc")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["/usr/sbin/dockerd"], True),
        (["dockerd", "-H", "fd://"], True),
        (["dockerd", "--config-file=/x"], False),
        (["dockerd", "--config-file", "/x"], False),
        (["dockerd", "--add-runtime=kata=/k"], False),
    ],
)
def test_an_engine_with_a_configuration_of_its_own_is_left_alone(words: list[str], expected: bool) -> None:
    assert reloadable(words) is expected
