"""An empty value, which a variable of the shell that is not set gives, is refused before a command begins."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sandbox.cli import main
from sandbox.cli.empty_values import require_values
from sandbox.errors import ErrorCode
from tests.unit.conftest import refused

SELECTING = [
    ["images", "import", "FILE", "--digest", ""],
    ["images", "import", "FILE", "--digest="],
    ["receipt", "verify", "FILE", "--repo", ""],
    ["receipt", "verify", "FILE", "--key", ""],
    ["receipt", "verify", "FILE", "--ref="],
    ["receipt", "replay", "FILE", "--repo", ""],
    ["run", "URL", "--profile", ""],
    ["run", "URL", "--runtime", ""],
    ["run", "URL", "--check", ""],
    ["task", "sync", "TASK", "--onto", ""],
    ["task", "close", ""],
    ["gc", "--forget", ""],
    ["approvals", "deny", "--all", "--tool", ""],
    ["audit", "export", "--task", ""],
    ["list", ""],
    ["--home", "", "list"],
]


@pytest.mark.parametrize("line", SELECTING, ids=" ".join)
def test_s227_an_empty_value_is_refused(line: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--home", str(tmp_path / "home"), "--json", *line]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["code"] == "invalid_input"
    assert "empty" in error["brief"]
    assert error["hint"]
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize(
    "line",
    [
        ["file", "edit", "TASK", "PATH", "--old", "x", "--new", "", "--expect", "sha256:x"],
        ["file", "edit", "TASK", "PATH", "--old", "x", "--new=", "--expect", "sha256:x"],
        ["task", "create", "REPO", "--prompt", ""],
        ["repo", "set", "REPO", "--env", "NAME="],
        ["repo", "set", "REPO", "--env=NAME="],
        ["check", "run", "TASK", "test", "--", "--filter", "", "-k="],
    ],
    ids=" ".join,
)
def test_a_text_may_be_empty_and_so_may_what_a_check_gets(line: list[str]) -> None:
    require_values(line)


def test_the_option_is_named() -> None:
    with refused(ErrorCode.INVALID_INPUT) as caught:
        require_values(["run", "URL", "--runtime", ""])
    assert caught.value.brief == "The value after --runtime is empty"
    with refused(ErrorCode.INVALID_INPUT) as caught:
        require_values(["run", "URL", "--runtime="])
    assert caught.value.brief == "The value of --runtime is empty"
