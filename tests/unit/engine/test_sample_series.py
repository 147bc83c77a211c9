"""Usage over time: few samples of a short run, few of a long one."""

from __future__ import annotations

import itertools

import pytest

from sandbox.cli.usage import _show, draw, to_rate
from sandbox.engine.cgroups import CgroupPaths, Counters
from sandbox.engine.sample_series import INTERVAL_S, SampleSeries
from sandbox.models import Limits, UsageSample, UsageSeries


def make_series(most: int = 1200) -> SampleSeries:
    paths = CgroupPaths(2)
    return SampleSeries(paths, memory=lambda _paths: 7, pids=lambda _paths: 3, disk_used=lambda: 5, most=most)


def test_four_samples_a_second_and_the_last() -> None:
    series = make_series()
    for step in range(101):  # 25 a second, for 4 s
        series.add(step * 0.04, Counters(cpu_time_s=10 + step * 0.02), is_last=step == 100)
    times = [sample.at_s for sample in series.samples]
    assert times[0] == 0.0
    assert times[-1] == 4.0
    assert 14 <= len(times) <= 4 / INTERVAL_S + 2
    assert (series.samples[-1].cpu_time_s, series.samples[-1].memory_bytes, series.samples[-1].pids) == (2.0, 7, 3)
    assert series.samples[-1].disk_written_bytes is None, "not counted is not zero"
    assert {sample.disk_used_bytes for sample in series.samples} == {5}


def test_a_long_run_has_as_many_samples_as_a_short_one_and_they_cover_it() -> None:
    series = make_series(most=100)
    for second in range(10_000):
        series.add(float(second), Counters())
    times = [sample.at_s for sample in series.samples]
    assert len(times) < 100
    assert times[0] == 0.0
    assert times[-1] > 9_800
    gaps = {later - one for one, later in itertools.pairwise(times)}
    assert max(gaps) <= 2 * min(gaps)


def test_a_rate_is_unknown_where_the_kernel_says_nothing() -> None:
    samples = [
        UsageSample(at_s=0.0, cpu_time_s=0.0),
        UsageSample(at_s=2.0, cpu_time_s=3.0),
        UsageSample(at_s=3.0, cpu_time_s=None),
        UsageSample(at_s=3.0, cpu_time_s=1.0),
    ]
    assert to_rate(samples) == [1.5, None, None]


@pytest.mark.parametrize(
    ("times", "values", "drawn"),
    [
        ([], [], ""),
        ([0.0, 1.0, 2.0, 3.0], [0.0, 4.0, 8.0, 80.0], "0488"),
        ([0.0, 3.0], [8.0, 4.0], "8884"),
        ([0.0, 3.0], [0.0001, 0.0], "1110"),
        ([0.0], [8.0], "8888"),
    ],
    ids=["nothing", "each level, cut at the limit", "gaps repeat", "little is not nothing", "one"],
)
def test_a_series_is_drawn_against_its_limit(times: list[float], values: list[float], drawn: str) -> None:
    assert draw(times, values, 8.0, "012345678", columns=4) == drawn


def test_a_run_is_drawn_with_what_its_files_held_against_the_limit(capsys: pytest.CaptureFixture[str]) -> None:
    samples = tuple(UsageSample(at_s=float(at), disk_written_bytes=at << 20, disk_used_bytes=1024) for at in range(5))
    limits = Limits(disk_bytes=2048)
    _show(UsageSeries(run_id="run-1", check_id="test", limits=limits, samples=samples))
    *_, disk, written = capsys.readouterr().out.splitlines()
    assert (disk.split("|")[0].strip(), disk.split("|")[2]) == ("disk", " at most 1 KiB of 2 KiB (50 %)")
    assert (written.split("|")[0].strip(), written.split("|")[2]) == ("written", " at most 4 MiB, no limit")
    assert written.split("|")[1].endswith("\u2588"), "its largest value is a full bar"


def test_a_run_far_below_its_limits_is_drawn_as_a_curve_with_the_limit_beside_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    samples = tuple(UsageSample(at_s=float(at), cpu_time_s=at * 0.03, memory_bytes=at << 20, pids=2) for at in range(9))
    limits = Limits(memory_bytes=1 << 30, pids=4, cpus=2.0)
    _show(UsageSeries(run_id="run-1", check_id="test", limits=limits, samples=samples))
    rows = {line.split("|")[0].strip(): line.split("|")[1:] for line in capsys.readouterr().out.splitlines()[1:]}
    bars, said = rows["memory"]
    assert (bars[0], bars[-1], len(set(bars))) == (" ", "\u2588", 9), "each level is used"
    assert said == " at most 8 MiB of 1 GiB (under 1 %)"
    assert rows["cpu"][1] == " at most 0.03 of 2 (2 %)"
    bars, said = rows["processes"]
    assert set(bars) == {"\u2584"}, "half of a limit is half a bar"
    assert said == " at most 2 of 4 (50 %)"
