"""Rows are data: what is declared, what a machine is told, what it writes back."""

from __future__ import annotations

import shlex
import tomllib
from pathlib import Path

import pytest
from pydantic import ValidationError

from devtools.vm.__main__ import format_environment, is_complete, merge_results
from devtools.vm.architectures import PLATFORMS
from devtools.vm.guest_limits import PROFILE, SCENARIOS, format_figure
from devtools.vm.matrix_rows import REFUSED_COLUMNS, Architecture, Column, Machine, Matrix, load_matrix
from devtools.vm.measurements import MEASUREMENTS, describe_attacks, describe_tests, have_run
from devtools.vm.qemu import KVM, TCG, Boot, RootDisk, boot_command, find_accelerator
from devtools.vm.root_disk import ROOT, is_own, select_requirements
from devtools.vm.row_results import Cell, Facts, Outcome, RowResult, format_line, load_results, read_lines, save_results
from sandbox.models import AttackOutcome, AttackResult

MATRIX = load_matrix()
CELL = Cell(column=Column.DOCTOR, outcome=Outcome.WORKS, seen="all ok", wall_time_s=1.5)


def test_every_column_has_a_measurement() -> None:
    assert list(MEASUREMENTS) == list(Column)


def test_a_refused_engine_is_asked_for_doctor_and_a_job_alone() -> None:
    name = "debian-13-rootless-podman"
    refused = MATRIX.rows[name].model_copy(update={"refused": "Podman"})
    assert MATRIX.model_copy(update={"rows": {name: refused}}).columns(name) == REFUSED_COLUMNS
    assert set(Column) - set(MATRIX.columns(name)) == {Column.SELINUX}


def test_selinux_is_measured_where_it_is_in_force_and_before_hostile_guests() -> None:
    columns = MATRIX.columns("debian-13-selinux")
    assert columns == tuple(Column)
    assert columns[-3:] == (Column.SELINUX, Column.CONTRACT, Column.ATTACKS)


def test_a_row_of_no_system_is_an_error() -> None:
    document = MATRIX.model_dump()
    document["rows"]["debian-13-root"]["system"] = "hurd"
    with pytest.raises(ValidationError, match="hurd"):
        Matrix.model_validate(document)


def test_a_machine_is_told_its_columns_as_words_of_the_shell() -> None:
    text = format_environment(MATRIX.rows["debian-13-group"], (Column.MAIN_JOB, Column.KILL), "K,L01")
    values = dict(word.split("=", 1) for word in shlex.split(text))
    assert values["ATTACKS"] == "K,L01"
    assert values["RUNS_AS"] == "tester"
    assert shlex.split(values["COLUMNS"]) == ["main job", "kill and reconcile"]


def test_lines_are_read_back_among_noise_and_one_that_was_cut_off_is_left_out() -> None:
    facts = Facts(versions={"kernel": "6.12"})
    port = f"noise\r\n{format_line(CELL)}\r\n[ 9.1] {format_line(facts)}\r\n@matrix ended\r\n{format_line(CELL)[:-9]}"
    assert read_lines(port) == ({"kernel": "6.12"}, (CELL,))


def test_the_last_line_of_a_column_counts() -> None:
    longer = CELL.model_copy(update={"part": "2 of 9", "seen": "more"})
    assert read_lines(f"{format_line(CELL)}\n{format_line(longer)}") == ({}, (longer,))


def test_a_cell_that_was_not_measured_again_keeps_its_date_and_commit() -> None:
    def measured(date: str, *cells: Cell) -> RowResult:
        made = {"date": date, "commit": f"of {date}", "versions": {"git": date}, "cells": cells}
        return RowResult(product="p", accelerator="tcg", wall_time_s=1.0, **made)

    disk, output = (CELL.model_copy(update={"column": column}) for column in (Column.DISK, Column.OUTPUT))
    first = merge_results(None, measured("day 1", output, CELL))
    second = merge_results(first, measured("day 2", disk, CELL))
    assert [(cell.column, cell.date, cell.commit) for cell in second.cells] == [
        (Column.DOCTOR, "day 2", "of day 2"),
        (Column.DISK, "day 2", "of day 2"),
        (Column.OUTPUT, "day 1", "of day 1"),
    ]
    assert second.versions == {"git": "day 2"}


def test_attacks_are_counted_and_those_that_did_not_hold_are_named() -> None:
    def attacked(id_: str, outcome: AttackOutcome) -> AttackResult:
        return AttackResult(id=id_, title="t", section="s", tried="x", outcome=outcome, seen="why", wall_time_s=1.0)

    results = [
        attacked("A01", AttackOutcome.HELD),
        attacked("A02", AttackOutcome.GOT_THROUGH),
        attacked("A03", AttackOutcome.SKIPPED),
        attacked("A04", AttackOutcome.HELD),
    ]
    seen = describe_attacks(results)
    assert seen == "2 held, 1 got through, 1 skipped; A02 got_through: why; skipped A03"


def test_tests_that_failed_are_named_before_the_reasons() -> None:
    printed = "..F\nE       assert '' == 'kept'\nFAILED test_executor.py::test_a - assert\n1 failed, 2 passed in 3.0s\n"
    seen = describe_tests(printed, "")
    assert seen == "1 failed, 2 passed in 3.0s; FAILED test_executor.py::test_a - assert; E       assert '' == 'kept'"
    assert describe_tests("..\n2 passed in 3.0s\n", "a warning") == "2 passed in 3.0s"
    assert describe_tests("", "no pytest") == "no pytest"


@pytest.mark.parametrize(
    ("seen", "good"),
    [
        ("47 passed, 38 deselected in 113.20s (0:01:53)", True),
        ("46 passed, 1 skipped, 38 deselected in 113.20s", False),
        ("47 skipped, 38 deselected in 3.2s", False),
        ("no tests ran in 0.1s", False),
        ("", False),
    ],
)
def test_a_contract_whose_tests_were_skipped_was_not_measured(seen: str, good: bool) -> None:
    assert have_run(seen) is good


def test_results_of_rows_that_are_no_longer_declared_are_dropped(tmp_path: Path) -> None:
    kept = RowResult(date="d", product="p", accelerator="tcg", wall_time_s=1.0, versions={}, cells=(CELL,))
    save_results({"a": kept, "gone": kept}, ["b", "a"], tmp_path / "results.json")
    assert load_results(tmp_path / "results.json") == {"a": kept}


@pytest.mark.parametrize(
    ("outcome", "columns", "complete"),
    [
        (Outcome.WORKS, (Column.DOCTOR,), True),
        (Outcome.REFUSED, (Column.DOCTOR,), True),
        (Outcome.FAILED, (Column.DOCTOR,), False),
        (Outcome.WORKS, (Column.DOCTOR, Column.DISK), False),
    ],
    ids=["works", "refused", "failed", "not reached"],
)
def test_a_row_is_complete_when_each_column_was_reached(
    outcome: Outcome, columns: tuple[Column, ...], complete: bool
) -> None:
    cell = CELL.model_copy(update={"outcome": outcome})
    measured = RowResult(date="d", product="p", accelerator="kvm", wall_time_s=1.0, versions={}, cells=(cell,))
    assert is_complete(measured, columns) is complete
    assert not is_complete(measured.model_copy(update={"ended": "its time limit was reached"}), columns)


def test_large_packages_are_left_out_of_the_requirements_with_their_hashes() -> None:
    lock = "click==1 \\\n    --hash=sha256:aa\nmypy==2 \\\n    --hash=sha256:bb\nrich==3 \\\n    --hash=sha256:cc\n"
    assert select_requirements(lock) == lock.replace("mypy==2 \\\n    --hash=sha256:bb\n", "")


def test_no_requirement_of_a_machine_depends_on_the_python_of_this_host() -> None:
    """Seen with Debian 12: pip chose for the 3.11.7 of the host what the 3.11.2 of the machine cannot have."""
    lock = select_requirements((ROOT / "requirements.lock").read_text(encoding="utf-8"))
    of_linux = [line for line in lock.splitlines() if "sys_platform ==" not in line]  # none of the others is Linux
    assert [line for line in of_linux if "python_full_version" in line or "python_version" in line] == []


def test_a_machine_has_no_network_and_changes_its_root_disk_only_when_it_is_made(tmp_path: Path) -> None:
    disk = RootDisk(tmp_path / "root", tmp_path / "kernel", tmp_path / "initrd")
    machine = Machine(cpus=2, memory_mib=64, disk_mib=64)
    words = boot_command(Boot(disk, tmp_path / "data", tmp_path, machine), KVM)
    assert words[words.index("-nic") + 1] == "none"
    root = f"file={tmp_path}/root,if=virtio,format=raw,cache=unsafe,snapshot="
    assert f"{root}on" in words
    assert f"{root}off" in boot_command(Boot(disk, tmp_path / "data", tmp_path, machine, keeps=True), KVM)


def test_an_arm64_machine_has_a_console_and_another_port_for_the_lines(tmp_path: Path) -> None:
    disk = RootDisk(tmp_path / "root", tmp_path / "kernel", tmp_path / "initrd", architecture=Architecture.ARM64)
    boot = Boot(disk, tmp_path / "data", tmp_path, Machine(cpus=2, memory_mib=64, disk_mib=64))
    words = boot_command(boot, TCG)
    assert words[0] == "qemu-system-aarch64"
    assert "console=ttyAMA0" in words[words.index("-append") + 1].split()
    assert words.count("-serial") == 1  # the board has one
    assert words[words.index("-serial") + 1] == f"file:{boot.console}"
    assert f"file,id=port,path={boot.port}" in words
    assert PLATFORMS[Architecture.ARM64].port == "hvc0"


def test_hardware_support_is_for_machines_of_this_hosts_architecture(tmp_path: Path) -> None:
    (foreign,) = (architecture for architecture in Architecture if not is_own(architecture))
    disk = RootDisk(tmp_path / "root", tmp_path / "kernel", tmp_path / "initrd", architecture=foreign)
    machine = Machine(cpus=2, memory_mib=64, disk_mib=64)
    assert find_accelerator(Boot(disk, tmp_path / "data", tmp_path, machine)) == TCG
    assert list(tmp_path.iterdir()) == []  # no machine was started


@pytest.mark.parametrize("name", PROFILE)
def test_profiles_of_the_rows_are_toml_with_the_checks_that_are_measured(name: str) -> None:
    checks = {check["id"] for check in tomllib.loads(PROFILE[name])["check"]}
    assert checks >= ({"build", "test"} if name == "job" else {scenario.check for scenario in SCENARIOS.values()})


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("memory_peak_bytes", 64 * 1024**2, "memory peak 64.0 MiB"),
        ("cpu_time_s", 0.614, "cpu time 0.61 s"),
        ("pids_peak", 16, "pids peak 16"),
        ("disk_written_bytes", None, "disk written bytes -"),
    ],
    ids=["bytes", "seconds", "a count", "not measured"],
)
def test_a_figure_has_its_unit(name: str, value: float | None, text: str) -> None:
    assert format_figure(name, value) == text
