"""The control of a project that was not verified: the same checks in an ordinary container.

Same image, same layers, the engine's own defaults otherwise, root, and no network. If its tests fail there too, they
fail in any environment of these packages.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sandbox.checks.report import read_report
from sandbox.dependencies.environment import build_environment, target
from sandbox.engine.create_options import PATH
from sandbox.models.layers import LayerEcosystem

_PROFILES = Path(__file__).parents[2] / "policies" / "profiles"
_DEADLINE_S = 1500


def fails_as_well(project: Path, home: Path, document: Mapping[str, Any], folder: Path) -> bool | None:
    """Whether the checks that failed also fail in an ordinary container, with at least the same failed tests.

    `folder`: for the copy of the project and the reports; removed afterwards. None if there was no run to compare.
    """
    failed = [run for run in document.get("runs", []) if run["verdict"] != "passed"]
    if not failed:
        return None
    run = failed[0]
    argv = _find_argv(document["profile"], run["check_id"])
    layers = [_read_layer(home, key) for key in run["layers"]]
    try:
        shutil.copytree(project, folder / "tree", symlinks=True)
        (folder / "report").mkdir()
        status = _run(argv, run["image_digest"], layers, folder)
        report = read_report(folder / "report")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    seen = {test["test"] for test in run.get("failures", [])}
    ours = (run.get("report") or {}).get("failures", 0) + (run.get("report") or {}).get("errors", 0)
    theirs = (report.failures + report.errors) if report else 0
    known = {test.name for test in report.failed} if report else set()
    return status != 0 and (seen <= known or (len(known) >= 50 and ours <= theirs))


def _find_argv(profile: str, check_id: str) -> list[str]:
    checks = tomllib.loads((_PROFILES / f"{profile}.toml").read_text(encoding="utf-8"))["check"]
    return list(next(check["argv"] for check in checks if check["id"] == check_id))


def _read_layer(home: Path, key: str) -> tuple[LayerEcosystem, Path]:
    root = home / "repositories" / "dependencies"
    layer = json.loads((root / "layers" / f"{key}.json").read_text(encoding="utf-8"))
    return layer["ecosystem"], root / "trees" / layer["folder"]


def _run(argv: Sequence[str], image: str, layers: Sequence[tuple[LayerEcosystem, Path]], folder: Path) -> int:
    """The exit status of a command in an ordinary container; 124 if it does not end in time."""
    options = ["--volume", f"{folder.absolute()}/tree:/workspace", "--volume", f"{folder.absolute()}/report:/report"]
    for ecosystem, tree in layers:
        options += ["--volume", f"{tree.absolute()}:{target(ecosystem)}:ro"]
        for name, value in build_environment(ecosystem, PATH).items():
            options += ["--env", f"{name}={value}"]
    command = ["docker", "run", "--rm", "--network", "none", "--user", "0", "--workdir", "/workspace", *options, image]
    limited = [*command, "timeout", str(_DEADLINE_S), *argv]
    return subprocess.run(limited, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode
