"""Usage over time as polylines."""

from __future__ import annotations

from sandbox.daemon.page_templates import render_text
from sandbox.daemon.usage_chart import HEIGHT, WIDTH, draw_charts
from sandbox.models import Limits, UsageSample, UsageSeries


def draw(memory_bytes: int) -> list[tuple[str, str, float, float | None, str]]:
    samples = (
        UsageSample(at_s=0.0, cpu_time_s=0.0, memory_bytes=0),
        UsageSample(at_s=2.0, cpu_time_s=3.0, memory_bytes=memory_bytes),
    )
    limits = Limits(memory_bytes=1000, cpus=2.0)
    found = draw_charts(UsageSeries(run_id="run-1", check_id="test", limits=limits, samples=samples))
    return [(chart.name, chart.unit, round(chart.top, 3), chart.limit_y, chart.points) for chart in found]


def test_a_curve_is_drawn_against_its_limit() -> None:
    cpu, memory = draw(500)
    assert cpu == ("CPU", "CPUs", 2.2, 7.3, f"{WIDTH}.0,{HEIGHT - 1.5 / 2.2 * HEIGHT:.1f}")
    assert memory == ("Memory", "bytes", 1100.0, 7.3, f"0.0,{HEIGHT}.0 {WIDTH}.0,{HEIGHT - 500 / 1100 * HEIGHT:.1f}")


def test_a_curve_far_below_its_limit_is_drawn_larger_without_it() -> None:
    assert draw(100)[1] == (
        "Memory",
        "bytes",
        110.0,
        None,
        f"0.0,{HEIGHT}.0 {WIDTH}.0,{HEIGHT - 100 / 110 * HEIGHT:.1f}",
    )


def test_what_is_above_its_limit_stays_in_the_picture() -> None:
    name, _, top, limit_y, points = draw(2000)[1]
    assert (name, top, limit_y) == ("Memory", 2200.0, HEIGHT - round(1000 / 2200 * HEIGHT, 1))
    assert points.endswith(f",{HEIGHT - 2000 / 2200 * HEIGHT:.1f}")


def test_files_that_are_written_again_and_again_exceed_no_limit() -> None:
    """What was written is not what `limits.disk_bytes` bounds: only what the files hold is drawn against it."""
    samples = tuple(
        UsageSample(at_s=float(at), disk_written_bytes=at * 500, disk_used_bytes=400 if at else None) for at in range(5)
    )
    found = UsageSeries(run_id="run-1", check_id="test", limits=Limits(disk_bytes=1000), samples=samples)
    disk, written = draw_charts(found)
    assert (disk.name, disk.highest, disk.limit, disk.limit_y) == ("Disk", 400.0, 1000.0, 7.3)
    assert (written.name, written.highest, written.limit, written.limit_y) == ("Written to disk", 2000.0, None, None)
    html = render_text("usage", {"usage": found})
    assert "Disk: at most 400 B of 1000 B (40 %)" in html
    assert "Written to disk: at most 2.0 KiB, no limit<" in html
    assert html.count('class="limit"') == 1
