"""The usage of a run over time, as stored."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sandbox.errors import ErrorCode
from sandbox.models import Check, UsageSample
from sandbox.store.home import Home
from sandbox.store.usage_files import find_usage, save_usage
from tests.unit.conftest import refused

CHECK = Check(id="test", label="Test", argv=("true",))
SAMPLES = (UsageSample(at_s=0.0), UsageSample(at_s=1.5, pids=3))


def test_usage_has_a_schema_version_and_is_read_with_and_without(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.prepare()
    logs = home.logs("repo")
    logs.mkdir(parents=True)
    save_usage(logs, "run-1", CHECK, SAMPLES)
    path = logs / "run-1.usage"
    document = json.loads(path.read_bytes())
    assert document.pop("schema_version") == 1
    now = find_usage(home, "repo", "run-1")
    path.write_text(json.dumps(document, separators=(",", ":")))
    before = find_usage(home, "repo", "run-1")
    assert now == before
    assert now is not None
    assert now.samples == SAMPLES
    assert find_usage(home, "repo", "run-2") is None


@pytest.mark.parametrize("damaged", ['{"schema_version":2}', '{"schema_version":1}', '{"schema_version":1,', "{", "[]"])
def test_damaged_usage_and_that_of_another_version_is_an_error(tmp_path: Path, damaged: str) -> None:
    home = Home(tmp_path / "home")
    home.prepare()
    home.logs("repo").mkdir(parents=True)
    (home.logs("repo") / "run-1.usage").write_text(damaged)
    with refused(ErrorCode.INTERNAL):
        find_usage(home, "repo", "run-1")
