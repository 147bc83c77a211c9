"""`[launch]` and `[promote]` of profiles: what is refused, and what a verdict is bound to."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from sandbox.models import CheckRun
from sandbox.profiles import Profile, load_profiles
from sandbox.workbench.checks.gate import TreeVerdicts

HEAD = 'label = "x"\nimage = "base"\n[[check]]\nid = "build"\nlabel = "b"\nargv = ["true"]\n'
LAUNCH = '[launch]\nargv = ["./app"]\nrequires = ["build"]\n[launch.ready]\nport = 8080\n'


def load(tmp_path: Path, text: str) -> Profile:
    (tmp_path / "x.toml").write_text(text)
    return load_profiles([tmp_path], PurePosixPath("/workspace"))["x"]


def test_a_launch_is_one_more_check_after_those_it_requires(tmp_path: Path) -> None:
    profile = load(tmp_path, HEAD + LAUNCH + "[promote]\nartifacts = ['out']\n")
    assert not profile.problem
    assert [check.id for check in profile.checks] == ["build"], "verify does not launch"
    launched = profile.with_launch()
    assert [check.id for check in launched.order_checks(["launch"])] == ["build", "launch"]
    check = launched.checks[-1]
    assert (check.workspace, check.timeout_s) == ("read-only", 30 + 2 + 10 + 30)


def test_a_profile_that_extends_another_launches_as_it_does(tmp_path: Path) -> None:
    load(tmp_path, HEAD + LAUNCH)
    (tmp_path / "y.toml").write_text('extends = "x"\nlabel = "y"\n')
    assert load_profiles([tmp_path], PurePosixPath("/workspace"))["y"].launch is None, "only of a shipped one, below"
    later = tmp_path / "own"
    later.mkdir()
    (later / "y.toml").write_text('extends = "x"\nlabel = "y"\n')
    launch = load_profiles([tmp_path, later], PurePosixPath("/workspace"))["y"].launch
    assert launch is not None
    assert launch.argv == ("./app",)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (HEAD + LAUNCH + 'line = "up"\n', "one of file, line, port and argv"),
        (HEAD + LAUNCH.replace("port = 8080", ""), "one of file, line, port and argv"),
        (HEAD + LAUNCH.replace("port = 8080", 'line = "("'), "not a regular expression"),
        (HEAD + LAUNCH.replace('"build"', '"nope"'), "unknown check 'nope'"),
        (HEAD.replace('"build"', '"launch"') + LAUNCH.replace('["build"]', "[]"), "no check can be named 'launch'"),
        (HEAD + "[promote]\nartifacts = ['out']\n", "[promote] needs [launch]"),
        (HEAD + LAUNCH + "[[launch.probe]]\nid = 'a'\nargv = ['x']\n" * 2, "several probes are named a"),
        (HEAD + LAUNCH + "[[launch.probe]]\nid = 'a'\nargv = ['x']\nartifact = '../x'\n", "artifact"),
        (HEAD + "[check.launch.ready]\nport = 8080\n", "the table [launch]"),
        (HEAD + LAUNCH + "[launch.stop]\nsignal = 'KILL'\n", "signal"),
    ],
    ids=["two", "none", "pattern", "requires", "name", "promote", "probes", "artifact", "check", "signal"],
)
def test_mistakes_are_named(tmp_path: Path, text: str, problem: str) -> None:
    assert problem in load(tmp_path, text).problem


def run(check_id: str, verdict: str = "passed") -> CheckRun:
    document: dict[str, object] = {
        "run_id": "run-1", "check_id": check_id, "task_id": None, "verdict": verdict, "exit_code": 0, "signal": None,
        "started_at": "2026-01-01T00:00:00Z", "wall_time_s": 1.0, "usage": {"limits": {}}, "stdout_tail": "",
        "stderr_tail": "", "stdout_bytes": 0, "stderr_bytes": 0, "truncated": False, "tree": "1" * 40,
        "clean_room": True, "cached": False, "image_digest": "", "runtime": "runc", "report": None,
    }  # fmt: skip
    return CheckRun.model_validate(document)


def test_the_gate_asks_for_a_candidate_only_if_it_is_required() -> None:
    passed = {"build": run("build")}
    assert TreeVerdicts(passed).verified
    assert TreeVerdicts(passed, candidate_required=True).missing == ("launch",)
    assert not TreeVerdicts(passed, candidate=run("launch", "failed"), candidate_required=True).verified
    assert TreeVerdicts(passed, candidate=run("launch"), candidate_required=True).verified
