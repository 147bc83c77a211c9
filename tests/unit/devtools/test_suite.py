"""What `make test` says at its end."""

from __future__ import annotations

from pathlib import Path

from devtools.suite import GVISOR, about_gvisor, skipped_for_gvisor

REPORT = f"""<testsuites><testsuite>
<testcase name="a"/>
<testcase name="b"><skipped message="The engine has no runtime 'runsc': run `{GVISOR}`"/></testcase>
<testcase name="c"><skipped message="no keyring"/></testcase>
<testcase name="d"><skipped message="Skipped">file.py:1: needs it: {GVISOR}</skipped></testcase>
</testsuite></testsuites>"""


def test_tests_that_lack_gvisor_are_counted_and_the_way_to_include_them_is_named(tmp_path: Path) -> None:
    path = tmp_path / "suite.xml"
    assert skipped_for_gvisor(path) == 0
    path.write_text(REPORT)
    assert skipped_for_gvisor(path) == 2
    said = about_gvisor(2)
    assert "shows nothing about gVisor: 2 tests" in said
    assert GVISOR in said
    assert about_gvisor(0) == ""


def test_every_skip_for_gvisor_is_recognised() -> None:
    """Each place that skips for want of the runtime names the way to have it."""
    root = Path(__file__).parents[3] / "tests"
    skips = [
        line
        for path in root.rglob("*.py")
        if path != Path(__file__)
        for line in path.read_text().splitlines()
        if "unavailable(" in line and "no runtime '" in line
    ]
    assert skips
    assert [line for line in skips if GVISOR not in line] == []
