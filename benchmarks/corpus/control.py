"""The control of a project that was not verified: its tests in an ordinary container, without anything of ours.

The engine's own defaults, a network, an ordinary user, the check's limit of memory (what needs more fails on hosts with
so much, too), and the image for its compilers and interpreter alone. Packages are installed in the container: by pip
the layer's, by name and version, by npm what npm chooses, and crates of a Python package by cargo. For other profiles
the commands of the profile are run, which are their tools' own. Runs code of the pinned projects with a network: on a
host for benchmarks only.

A control says something only if its tests began and ended. One whose packages could not be installed, whose container
the engine did not start, or that was stopped says neither that the project passes elsewhere nor that it fails.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from benchmarks.corpus.entries import Entry
from devtools.published import npm_registry, pypi_index
from sandbox.checks.report import read_report
from sandbox.models import Report

Control = Literal["fails", "passes", "unknown", "not started", "stopped"]
"""`fails`: with at least the same failures. `passes`: without one of them. `unknown`: it fails, but the run names no
failure, and its first error is not in the control's output. `not started`: before its first test, by its installation
or by the engine. `stopped`: at its deadline, or by the limit of memory.
"""

_PROFILES = Path(__file__).parents[2] / "policies" / "profiles"
_DEADLINE_S = 1800
_TIMED_OUT, _KILLED = 124, 137  # what timeout(1) and a shell make of it
_BEGUN = "begun"  # in the folder of reports
_USER = 1000
_ERROR = re.compile(
    r"(?-i:\w(?:Error|Exception))\b|\bnot ok\b|: \*\*\* "
    r"|(?<![-\w./])(?:errors?|fatal|fail(?:ed|ures?)?|cannot|could not|undefined|no such|not found)(?![\w=-]|\.\w)",
    re.IGNORECASE,
)
"""What marks a line as an error, beside other words; not options such as `-Wno-error=`, nor names of files."""
_NO_ERROR = re.compile(r"\b(?:0|no) (?:errors?|fail(?:ed|ures?))\b|\b(?:errors?|fail(?:ed|ures?)): +0\b", re.IGNORECASE)
_COLOR = re.compile(r"\x1b\[[0-9;]*m")
_CA_FILE = Path("/etc/ssl/certs/ca-certificates.crt")
_PYTHON = """\
python3 -m venv /tmp/venv
PATH=/tmp/venv/bin:$PATH
export PIP_CONFIG_FILE=/dev/null PIP_INDEX_URL={index} PIP_CERT=/control-ca.crt
pip install -q --no-deps -r /report/packages.txt
cp -r . /tmp/source
SETUPTOOLS_SCM_PRETEND_VERSION={version} pip install -q --no-deps --no-build-isolation /tmp/source
unset PIP_CONFIG_FILE PIP_INDEX_URL PIP_CERT
"""
_PYTHON_PROFILES = {"python", "python-rust"}  # cargo fetches crates by itself
_PYTEST = "python -m pytest -q --junitxml=/report/junit.xml"
_BEGIN = f"touch /report/{_BEGUN}\n"
_NODE = "NODE_EXTRA_CA_CERTS=/control-ca.crt npm install --registry={registry} --no-audit --no-fund {before}\n"


def run_control(entry: Entry, project: Path, home: Path, document: Mapping[str, Any], folder: Path) -> Control | None:
    """Run the tests of a project in an ordinary container, and compare with the first check that did not pass.

    `folder`: for the copy of the project and the reports; removed afterwards. Its output is kept beside it, in
    `control-NAME.log`. None if there was no run to compare, or one with the checks of another profile: that is ours,
    and these fail anywhere.
    """
    failed = [run for run in document.get("runs", []) if run["verdict"] != "passed"]
    if not failed or document["profile"] != entry.profile:
        return None
    run = failed[0]
    reports = folder / "report"
    try:
        shutil.copytree(project, folder / "tree", symlinks=True, ignore=shutil.ignore_patterns(".git"))
        reports.mkdir()
        (reports / "packages.txt").write_text("".join(f"{line}\n" for line in _list_packages(home, run)))
        _give(folder)
        output = folder.parent / f"control-{entry.name.replace('/', '-')}.log"
        with output.open("wb") as log:
            memory = run["usage"]["limits"]["memory_bytes"]
            command = [*_start(folder, run["image_digest"], memory), "sh", "-ec", _script(entry, document["profile"])]
            status = subprocess.run(command, stdout=log, stderr=log, check=False).returncode
        begun, report = (reports / _BEGUN).exists(), read_report(reports)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    same = contains_failures(run, report, output.read_text(encoding="utf-8", errors="replace"))
    return judge_control(status, begun=begun, same_failures=same)


def judge_control(status: int, *, begun: bool, same_failures: bool | None) -> Control:
    """What a control says. `status`: of `docker run`. `begun`: its packages were installed, and its tests started.
    `same_failures`: see `contains_failures`.

    One that was stopped after it had all failures of the run has shown what was asked.
    """
    if not begun:
        return "not started"
    if status != 0 and same_failures:
        return "fails"
    if status in {_TIMED_OUT, _KILLED}:
        return "stopped"
    return "unknown" if status != 0 and same_failures is None else "passes"


def contains_failures(run: Mapping[str, Any], report: Report | None, output: str) -> bool | None:
    """Whether the control has the failures of a run: failed tests in its report, diagnostics in its output. If the run
    names none: True if the control prints the first error of the run, else None.
    """
    counts, failures = run.get("report") or {}, run.get("failures", [])
    if not failures:
        error = find_first_error(run) if run["verdict"] == "failed" else ""
        return True if error and error in _COLOR.sub("", output) else None
    if counts.get("kind") == "diagnostics":  # the control writes none: compilers and autoreconf print them
        return all(found["message"].partition("\n")[0] in output for found in failures)
    seen = {test["test"] for test in failures}
    ours = counts.get("failures", 0) + counts.get("errors", 0)
    theirs = (report.failures + report.errors) if report else 0
    known = {test.name for test in report.failed} if report else set()
    return seen <= known or (len(known) >= 50 and ours <= theirs)


def find_first_error(run: Mapping[str, Any]) -> str:
    """The first line of a run's output that says what failed, as far as its end is kept; '' if none does."""
    kept = "\n".join(run.get(f"{stream}_tail") or "" for stream in ("stderr", "stdout"))
    lines = (line.strip() for line in _COLOR.sub("", kept).splitlines() if " " in line.strip())
    return next((line for line in lines if _ERROR.search(line) and not _NO_ERROR.search(line)), "")


def _list_packages(home: Path, run: Mapping[str, Any]) -> Iterator[str]:
    """What the layers of Python hold, as requirements."""
    for key in run["layers"]:
        layer = json.loads((home / "repositories" / "dependencies" / "layers" / f"{key}.json").read_text())
        if layer["ecosystem"] == "python":
            yield from (f"{package['name']}=={package['version']}" for package in layer["packages"])


def _give(folder: Path) -> None:
    for path in [folder, *folder.rglob("*")]:
        os.chown(path, _USER, _USER, follow_symlinks=False)


def _start(folder: Path, image: str, memory_bytes: int) -> list[str]:
    """Arguments that start the container; the command follows."""
    mounts = {f"{folder.absolute()}/tree": "/workspace", f"{folder.absolute()}/report": "/report"}
    if _CA_FILE.exists():
        mounts[str(_CA_FILE)] = "/control-ca.crt:ro"
    options = [word for source, target in mounts.items() for word in ("--volume", f"{source}:{target}")]
    unset = [word for name in ("PIP_NO_INDEX", "PIP_FIND_LINKS") for word in ("-u", name)]
    options += [f"--memory={memory_bytes}", f"--memory-swap={memory_bytes}"]
    options += ["--sysctl", "net.ipv6.conf.lo.disable_ipv6=0"]  # ::1, which a check has, and every ordinary host
    user = ["--user", f"{_USER}:{_USER}", "--env", "HOME=/tmp", "--workdir", "/workspace"]
    user += ["--env", "LANG=C.UTF-8"]  # as a check: compilers quote names in another way without it
    return ["docker", "run", "--rm", *user, *options, image, "timeout", str(_DEADLINE_S), "env", *unset]


def _script(entry: Entry, profile: str) -> str:
    """What an ordinary person types, for the shell."""
    if profile in _PYTHON_PROFILES:
        install = _PYTHON.format(index=shlex.quote(pypi_index(os.environ)), version=entry.version)
        return install + _BEGIN + (entry.control or _PYTEST)
    if profile == "node":
        before = f"--before={entry.released.date()}T23:59:59Z" if entry.released else ""
        return (
            _NODE.format(registry=shlex.quote(npm_registry()), before=before) + _BEGIN + (entry.control or "npm test")
        )
    checks = tomllib.loads((_PROFILES / f"{profile}.toml").read_text(encoding="utf-8"))["check"]
    words = [[word for word in check["argv"] if not word.startswith("<")] for check in checks]
    return _BEGIN + (entry.control or "\n".join(shlex.join(argv) for argv in words))
