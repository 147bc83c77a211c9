"""An operator's container policy reaches the guest, and no verdict of another policy answers for it. Real engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.errors import ErrorCode
from sandbox.files.mount_points import unmount_below
from sandbox.models import ProbeLevel
from tests.docker.test_verify import Bench, Scripts, told
from tests.unit.conftest import refused

SCRIPTS: Scripts = {"look": ("df -k /dev/shm | tail -1; mkfifo /tmp/x && echo a fifo; echo TZ=$TZ", [])}


@pytest.fixture
def bench(tmp_path: Path, base_image: str) -> Iterator[Bench]:
    found = Bench(tmp_path, SCRIPTS)
    yield found
    found.workbench.close_task(found.task_id, delete_worktree=True, discard=True)
    found.close()
    unmount_below(tmp_path)


def write(bench: Bench, text: str) -> None:
    (bench.home / "policies").mkdir(exist_ok=True)
    (bench.home / "policies" / "container.toml").write_text(text)
    bench.again(SCRIPTS)


def test_another_policy_runs_the_check_again_and_the_guest_gets_it(bench: Bench) -> None:
    bench.commit(b"good\nand more\n")
    first = bench.verify()
    assert told(first) == [("look", "passed", False)]
    assert "65536" in first.runs[0].stdout_tail
    assert "a fifo" in first.runs[0].stdout_tail
    assert told(bench.verify()) == [("look", "passed", True)], "the control: the same policy answers from before"
    write(bench, 'shm_bytes = 4194304\nseccomp_deny = ["mknod", "mknodat"]\n[env]\nTZ = "UTC"\n')
    second = bench.verify()
    assert [run.cached for run in second.runs] == [False]
    assert "4096" in second.runs[0].stdout_tail
    assert "a fifo" not in second.runs[0].stdout_tail
    assert "TZ=UTC" in second.runs[0].stdout_tail
    (bench.home / "policies" / "container.toml").unlink()
    bench.again(SCRIPTS)
    assert told(bench.verify()) == [("look", "passed", True)], "the first answer is still there"


def test_a_kept_container_of_another_policy_is_not_used(bench: Bench) -> None:
    (run,) = bench.workbench.run_checks(bench.task_id, ["look"])
    assert "65536" in run.stdout_tail
    write(bench, "shm_bytes = 4194304\n")
    (run,) = bench.workbench.run_checks(bench.task_id, ["look"])
    assert "4096" in run.stdout_tail


def test_a_lower_ceiling_refuses_what_asks_for_more(bench: Bench) -> None:
    write(bench, "[ceiling]\npids = 63\n")
    with refused(ErrorCode.POLICY_VIOLATION):
        bench.workbench.run_checks(bench.task_id, ["look"])
    write(bench, "[ceiling]\npids = 64\ntmp_bytes = 536870912\n")
    assert bench.workbench.run_checks(bench.task_id, ["look"])
    assert bench.workbench.map(bench.task_id).files_total == 3, "our own tools take what there is"


def test_doctor_names_a_file_that_cannot_be_used(bench: Bench) -> None:
    assert not [probe for probe in bench.workbench.doctor() if probe.name == "policy file"]
    write(bench, "network = true\n")
    failed = [probe for probe in bench.workbench.doctor() if probe.name == "policy file"]
    assert [(probe.level, "network" in probe.value) for probe in failed] == [(ProbeLevel.FAIL, True)]
    with refused(ErrorCode.POLICY_VIOLATION):
        bench.workbench.run_checks(bench.task_id, ["look"])
