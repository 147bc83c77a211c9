"""What one check used of a container that others used before it: differences, and peaks only when they are its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.engine.cgroups import CgroupPaths, Counters
from sandbox.engine.meter import Meter
from sandbox.engine.pressure import PressureReading, WaitSums
from sandbox.models import Pressure

BEFORE = Counters(cpu_time_s=10.0, memory_peak_bytes=1000, pids_peak=20, oom_kills=2, disk_written_bytes=500)


def metered(before: Counters, after: Counters, paths: CgroupPaths) -> Counters:
    readings = [before]
    meter = Meter(paths, reader=lambda _: readings[-1])
    with meter:
        readings.append(after)
    return meter.counters


@pytest.fixture
def nowhere(tmp_path: Path) -> CgroupPaths:
    """Control groups whose peak cannot be reset, and whose processes nobody counts."""
    return CgroupPaths(1, tmp_path, tmp_path, tmp_path)


def test_sums_are_differences(nowhere: CgroupPaths) -> None:
    after = Counters(cpu_time_s=12.5, memory_peak_bytes=1000, pids_peak=20, oom_kills=3, disk_written_bytes=700)
    found = metered(BEFORE, after, nowhere)
    assert (found.cpu_time_s, found.oom_kills, found.disk_written_bytes) == (2.5, 1, 200)
    assert metered(Counters(forks_refused=5), Counters(forks_refused=7), nowhere).forks_refused == 2
    assert metered(Counters(cpu_throttled_s=1.5), Counters(cpu_throttled_s=2.0), nowhere).cpu_throttled_s == 0.5


def test_a_peak_that_grew_is_this_checks(nowhere: CgroupPaths) -> None:
    after = Counters(memory_peak_bytes=1001, pids_peak=21)
    found = metered(BEFORE, after, nowhere)
    assert (found.memory_peak_bytes, found.pids_peak) == (1001, 21)


def test_a_peak_of_an_earlier_check_is_unknown_not_this_ones(nowhere: CgroupPaths) -> None:
    found = metered(BEFORE, BEFORE, nowhere)
    assert (found.memory_peak_bytes, found.pids_peak) == (None, None)
    assert found.oom_kills == 0


def test_a_first_check_has_the_containers_peak(nowhere: CgroupPaths) -> None:
    with Meter(nowhere, is_first=True, reader=lambda _: BEFORE) as meter:
        pass
    assert meter.counters.memory_peak_bytes == BEFORE.memory_peak_bytes


def test_processes_that_samples_saw_count_when_the_peak_did_not_grow(nowhere: CgroupPaths, tmp_path: Path) -> None:
    (tmp_path / "pids.current").write_text("7\n")
    assert metered(BEFORE, BEFORE, nowhere).pids_peak == 7


def test_a_counter_that_cannot_be_read_is_unknown(nowhere: CgroupPaths) -> None:
    assert metered(Counters(), Counters(), nowhere) == Counters()
    assert metered(Counters(), BEFORE, nowhere).oom_kills is None


def test_a_container_that_is_gone_at_the_end_keeps_what_was_seen(nowhere: CgroupPaths) -> None:
    readings = [BEFORE, Counters(cpu_time_s=11.0, oom_kills=3), Counters()]
    with Meter(nowhere, reader=lambda _: readings.pop(0)) as meter:
        pass
    assert (meter.counters.cpu_time_s, meter.counters.oom_kills) == (1.0, 1)


def test_no_control_groups_no_counters() -> None:
    with Meter(None) as meter:
        meter.sample()
    assert meter.counters == Counters()


def test_pressure_is_what_was_added_since_the_start(nowhere: CgroupPaths) -> None:
    readings = [PressureReading(host=WaitSums(3.0, 1.0)), PressureReading(host=WaitSums(5.5, 1.0))]
    meter = Meter(nowhere, reader=lambda _: BEFORE, pressure_reader=lambda _: readings.pop(0))
    with meter:
        assert meter.pressure is None
    assert meter.pressure == Pressure(of="host", cpu_s=2.5, memory_s=0.0)


@pytest.mark.parametrize(("version", "name"), [(1, "memory.max_usage_in_bytes"), (2, "memory.peak")])
def test_the_kernels_peak_is_reset_where_it_can_be(tmp_path: Path, version: int, name: str) -> None:
    """A file stands for the kernel's: after the write it holds what the kernel would count from then on."""
    counter = tmp_path / name
    counter.write_text("7\n")
    with Meter(CgroupPaths(version, tmp_path, tmp_path, tmp_path), reader=lambda _: BEFORE) as meter:
        assert counter.read_text() == "0\n", "it was not reset"
        counter.write_text("4096\n")
    assert meter.counters.memory_peak_bytes == 4096
