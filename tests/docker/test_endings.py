"""How a check really ends, and what people then read. Real engine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.cli.run_explanations import explain
from sandbox.engine.connection import DockerEngine
from sandbox.files.mount_points import unmount_below
from sandbox.models import CauseKind, Verdict
from sandbox.workbench import Workbench
from tests.unit.conftest import initialised

pytestmark = pytest.mark.xdist_group("endings")  # the containers and folders of its fixtures are made once
JUNIT = """'<testsuite tests=\\"1\\" failures=\\"1\\"><testcase name=\\"a\\"><failure/></testcase></testsuite>'"""
CRASHED = "cause: code: it was ended by SIGSEGV"
SCRIPTS: dict[str, tuple[str, str, Verdict, str]] = {
    "passed": ("true", "", Verdict.PASSED, ""),
    "failed": ("exit 3", "", Verdict.FAILED, "exit code 3"),
    "signal": ("kill -SEGV $$", "", Verdict.FAILED, "SIGSEGV"),
    "memory": (
        "head -c 200000000 /dev/zero | tail -c 150000000 >/dev/null",
        "",
        Verdict.OOM_KILLED,
        "limits.memory_bytes",
    ),
    "killed-by-itself": ("sh -c 'kill -KILL $$'; exit $?", "", Verdict.FAILED, "SIGKILL: sent by one of its own"),
    "deadline": ("sleep 1000", "timeout_s = 1", Verdict.TIMED_OUT, "deadline"),
    "processes": ("for i in $(seq 100); do sleep 5 & done", "", Verdict.FAILED, "limits.pids"),
    "file-size": ("head -c 3000000 /dev/zero >big", "", Verdict.FAILED, "limits.file_bytes"),
    "tmp": ("head -c 1500000 /dev/zero >/tmp/big", "", Verdict.FAILED, "limits.tmp_bytes"),
    "leftovers": ("sleep 1000 & sleep 1000 & true", "", Verdict.PASSED, "2 processes were still running"),
    "missing": ("no-such-tool", "", Verdict.FAILED, "there is no command 'no-such-tool'"),
    "crash-after-a-report": (f"echo {JUNIT} >/report/r.xml; kill -SEGV $$", "", Verdict.FAILED, CRASHED),
    "endless-output": ("yes", "", Verdict.OUTPUT_LIMIT, "limits.output_total_bytes"),
    "flood": ("head -c 3000000 /dev/zero", "", Verdict.PASSED, "stdout: 2.9 MiB, of which 2.8 MiB"),
}
LIMITS = (
    "memory_bytes = 67108864, pids = 32, file_bytes = 2000000, tmp_bytes = 1000000, "
    "output_bytes = 65536, output_total_bytes = 20000000"
)
PROFILE = """
label = "ending"
image = "base"
priority = 99
[[detect.any]]
file = "end"
"""
CHECK = """
[[check]]
id = "{name}"
label = "{name}"
argv = ["sh", "-c", "{script}"]
{timeout}
limits = {{ {limits} }}
"""


@pytest.fixture(scope="module")
def bench(
    engine: DockerEngine, base_image: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Workbench, str]]:
    assert engine.is_local
    assert base_image
    root = tmp_path_factory.mktemp("endings")
    (root / "home" / "profiles").mkdir(parents=True)
    checks = [
        CHECK.format(name=name, script=script, timeout=timeout or "timeout_s = 300", limits=LIMITS)
        for name, (script, timeout, _, _) in SCRIPTS.items()
    ]
    (root / "home" / "profiles" / "ending.toml").write_text(PROFILE + "".join(checks))
    upstream = initialised(root / "upstream")
    upstream.write("end", b"\n")
    upstream.commit()
    with Workbench(Path(root / "home"), environ=dict(os.environ), allow_file=True) as workbench:
        task = workbench.create_task(workbench.clone(str(upstream.root)).repository.id).id
        yield workbench, task
        workbench.close_task(task, delete_worktree=True, discard=True)
    unmount_below(root)


CAUSES = {
    "passed": None,
    "failed": CauseKind.UNKNOWN,
    "signal": CauseKind.CODE,
    "crash-after-a-report": CauseKind.CODE,
    "missing": CauseKind.ENVIRONMENT,
    "memory": CauseKind.GUEST_INFRASTRUCTURE,
    "processes": CauseKind.GUEST_INFRASTRUCTURE,
    "tmp": CauseKind.GUEST_INFRASTRUCTURE,
    "endless-output": CauseKind.GUEST_INFRASTRUCTURE,
    "deadline": CauseKind.UNKNOWN,
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_end_of_a_check_is_told_in_words_with_its_cause(bench: tuple[Workbench, str], name: str) -> None:
    workbench, task = bench
    _, _, verdict, words = SCRIPTS[name]
    (run,) = workbench.run_checks(task, [name])
    assert run.verdict is verdict, run
    text = "\n".join(explain(run))
    assert words in text
    assert bool(text) == bool(words)
    assert workbench.runs(task, 1)[0] == run
    if name in CAUSES:
        assert (run.cause and run.cause.kind) == CAUSES[name], run


def test_refused_processes_are_this_checks_own(bench: tuple[Workbench, str]) -> None:
    """Also the second time in the same container, whose peak was reached before; not in the check after that."""
    workbench, task = bench
    for _ in range(2):
        (run,) = workbench.run_checks(task, ["processes"])
        assert run.usage.forks_refused is None or run.usage.forks_refused > 0
        assert run.usage.own_pids_limit is not False
        assert "limits.pids" in "\n".join(explain(run))
    (run,) = workbench.run_checks(task, ["passed"])
    assert not run.usage.forks_refused
