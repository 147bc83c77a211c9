"""The action for GitHub and the component for GitLab: their published schemas, and a runner made by hand.

The runner puts inputs where the CI would, and runs the scripts with a `sandbox` that writes down its arguments and
variables. `tests/docker/test_ci.py` runs the action with the real command.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from sandbox.cli.run import run as run_command

ROOT = Path(__file__).parents[3]
CI = ROOT / "ci"
PIP = """#!/bin/sh
case "$2" in
venv) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
*) for word in "$@"; do printf '%s\\0' "$word"; done >"$RECORD" ;;
esac
"""
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
    env = {**job["variables"], "CI_PROJECT_DIR": "a source", "PACKAGE": "none"}
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


def test_the_action_installs_the_repository_that_it_is_in(runner: Runner) -> None:
    installed = install_by_action(runner, {})
    place = installed.removesuffix("[fsspec]")
    assert installed != place
    assert tomllib.loads((Path(place) / "pyproject.toml").read_text())["project"]["name"] == "space-sandbox"
    commands = runner.root / "temp" / "space-sandbox-venv" / "command"
    assert (runner.root / "path").read_text() == f"{commands}\n"
    assert [path.name for path in commands.iterdir()] == ["sandbox"], "the job's own python stays the first one"
    named = "space-sandbox[fsspec] @ git+https://example.invalid/o/space-sandbox@v1"
    assert install_by_action(runner, {"package": named}) == named
    assert install_by_action(runner, {"package": EVIL}) == EVIL


def install_by_action(runner: Runner, inputs: dict[str, str]) -> str:
    """What pip is asked for."""
    (runner.root / "bin" / "python3").write_text(PIP)
    (runner.root / "bin" / "python3").chmod(0o755)
    (runner.root / "path").unlink(missing_ok=True)
    step = action()["runs"]["steps"][0]
    assert step["if"] == "${{ inputs.package != 'none' }}"
    assert "${{" not in step["run"]
    contexts = {"inputs.package": inputs.get("package", ""), "runner.temp": f"{runner.root}/temp"}
    contexts["github.action_path"] = str(CI / "github")
    env = {
        name: re.sub(r"\$\{\{ ([a-z_.]+) \}\}", lambda found: contexts[found[1]], text)
        for name, text in step["env"].items()
    }
    env["GITHUB_PATH"] = str(runner.root / "path")
    words = runner.run(["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c"], step["run"], env)
    assert words[:-1] == ["-m", "pip", "install", "--quiet", "--"]
    return words[-1]


def test_the_component_installs_what_it_is_told(runner: Runner) -> None:
    """There is no default that would work: no index has a release."""
    spec, job = component({"package": "a package"})
    assert "default" not in spec["spec"]["inputs"]["package"]
    (runner.root / "bin" / "python3").write_text(PIP)
    (runner.root / "bin" / "python3").chmod(0o755)
    (first, *_) = job["space-sandbox"]["script"]
    for package in ("space-sandbox[fsspec] @ git+https://example.invalid/o/s@v1", EVIL):
        words = runner.run(["sh", "-ec"], first, {"PACKAGE": package})
        assert words == ["-m", "pip", "install", "--quiet", "--", package]


def test_no_template_asks_an_index_for_a_package_that_it_does_not_have() -> None:
    """Until `docs/install.md` names a release."""
    assert "There is no release on a package index yet" in (ROOT / "docs" / "install.md").read_text()
    texts = [path.read_text() for path in CI.rglob("*.yml")]
    assert len(texts) == 2
    assert not [line for text in texts for line in text.splitlines() if re.search(r"install.*space-sandbox\[", line)]


def test_the_recipes_of_the_docs_have_inputs_of_the_templates_and_the_history_that_they_need() -> None:
    blocks = re.findall(r"^```yaml\n(.*?)^```", (ROOT / "docs" / "ci.md").read_text(), re.MULTILINE | re.DOTALL)
    checkout, ours = yaml.safe_load(next(block for block in blocks if "ci/github" in block))
    assert ours["with"].keys() <= action()["inputs"].keys()
    assert "changed-since" in ours["with"]
    assert checkout["with"]["fetch-depth"] == 0
    (included,) = yaml.safe_load(next(block for block in blocks if "ci/gitlab" in block))["include"]
    spec, job = component(included["inputs"])
    known = spec["spec"]["inputs"]
    assert included["inputs"].keys() <= known.keys()
    assert {name for name, given in known.items() if "default" not in given} <= included["inputs"].keys()
    assert (ROOT / included["file"].lstrip("/")).is_file()
    variables = job["space-sandbox"]["variables"]
    assert variables["GIT_DEPTH"] == "0"
    assert variables["CHANGED_SINCE"] == included["inputs"]["changed-since"]
