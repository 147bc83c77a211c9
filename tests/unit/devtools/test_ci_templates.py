"""The action for GitHub and the component for GitLab: their published schemas, and a runner made by hand.

The runner puts inputs where the CI would, and runs the scripts with a `sandbox` that writes down its arguments and
variables. `tests/docker/test_ci.py` runs the action with the real command.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from sandbox.cli.run import run as run_command

CI = Path(__file__).parents[3] / "ci"
RECORDER = """#!/bin/sh
{ for word in "$@"; do printf '%s\\0' "$word"; done; } >"$RECORD"
env >"$RECORD.env"
"""
EVIL = "$(touch pwned) `touch pwned`; touch pwned"


def schema(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((files("check_jsonschema") / f"builtin_schemas/vendor/{name}.json").read_text())
    return found


def action() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((CI / "github" / "action.yml").read_text())
    return found


def component(inputs: dict[str, str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The specification and the job, with inputs put in as GitLab does: in the text."""
    text = (CI / "gitlab" / "templates" / "sandbox.yml").read_text()
    spec = next(yaml.safe_load_all(text))
    values = {name: given.get("default", "") for name, given in spec["spec"]["inputs"].items()} | inputs
    body = re.sub(r"\$\[\[ inputs\.([a-z-]+) \]\]", lambda found: values[found[1]], text.partition("\n---\n")[2])
    return spec, yaml.safe_load(body)


def test_the_action_is_what_githubs_schema_says() -> None:
    jsonschema.validate(action(), schema("github-actions"))
    broken = action() | {"runs": {"using": "composite"}}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(broken, schema("github-actions"))


def test_the_component_is_what_gitlabs_schema_says() -> None:
    spec, job = component({})
    jsonschema.validate(spec, schema("gitlab-ci"))
    jsonschema.validate(job, schema("gitlab-ci"))
    job["space-sandbox"]["artifacts"]["when"] = "sometimes"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(job, schema("gitlab-ci"))


class Runner:
    """Runs scripts in a folder, with a `sandbox` that records."""

    def __init__(self, root: Path) -> None:
        self.root, self.record = root, root / "record"
        (root / "bin").mkdir()
        (root / "bin" / "sandbox").write_text(RECORDER)
        (root / "bin" / "sandbox").chmod(0o755)

    def run(self, shell: list[str], script: str, env: dict[str, str]) -> list[str]:
        variables = {"PATH": f"{self.root}/bin:{os.environ['PATH']}", "RECORD": str(self.record), **env}
        subprocess.run([*shell, script], cwd=self.root, env=variables, check=True, timeout=60)
        assert not (self.root / "pwned").exists()
        return self.record.read_text().split("\0")[:-1]

    def variable(self, name: str) -> str | None:
        lines = self.record.with_suffix(".env").read_text().splitlines()
        return next((line.partition("=")[2] for line in lines if line.startswith(f"{name}=")), None)


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    return Runner(tmp_path)


def run_action(runner: Runner, inputs: dict[str, str]) -> list[str]:
    """As a runner of GitHub does: expressions are only in the variables of a step, so no input is in a script."""
    document = action()
    values = {name: str(given.get("default", "")) for name, given in document["inputs"].items()}
    values |= {"source": "a source", "reports": str(runner.root / "reports"), **inputs}
    (step,) = [step for step in document["runs"]["steps"] if step.get("id") == "run"]
    assert "${{" not in step["run"]
    env = {name: values[text.removeprefix("${{ inputs.").removesuffix(" }}")] for name, text in step["env"].items()}
    return runner.run(["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c"], step["run"], env)


def run_component(runner: Runner, inputs: dict[str, str]) -> list[str]:
    job = component(inputs)[1]["space-sandbox"]
    env = {**job["variables"], "CI_PROJECT_DIR": "a source", "VERSION": "none"}
    return runner.run(["sh", "-ec"], "\n".join(job["script"]), env)


@pytest.mark.parametrize("run", [run_action, run_component])
def test_inputs_become_arguments_that_the_command_has(run: Any, runner: Runner) -> None:
    words = run(runner, {"checks": "build test", "subpath": "api", "changed-since": "main", "cache": "/shared"})

    options = {word for word in words if word.startswith("--") and word != "--"}
    known = {option for parameter in run_command.params for option in parameter.opts}
    assert options <= known
    assert {"--check", "--subpath", "--changed-since", "--report", "--ref"} <= options
    assert words[-2:] == ["--", "a source"]
    assert runner.variable("SANDBOX_CACHE_URL") == "/shared"


@pytest.mark.parametrize("run", [run_action, run_component])
def test_an_input_is_data_for_the_shell(run: Any, runner: Runner) -> None:
    words = run(runner, {"subpath": EVIL, "changed-since": EVIL})
    assert words.count(EVIL) == 2
    assert runner.variable("SANDBOX_CACHE_URL") is None
