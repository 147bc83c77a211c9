"""THREATS S105 to S108, S188: reports of tests that hide a failure, fill memory, take hours to read, or have names that
command a reader.
"""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

from sandbox.attack.harness.entry import AttackEntry
from sandbox.attack.harness.outcomes import GotThrough
from sandbox.attack.harness.scene import Scene, require_equal, require_hit
from sandbox.attack.harness.verdict_samples import COMMIT, TREE, make_run
from sandbox.checks.collected import CollectedResults
from sandbox.checks.comparison import CheckSide, compare_check
from sandbox.checks.report import read_report
from sandbox.forges.comparison_table import describe_comparison
from sandbox.models import CheckComparison, TreeComparison, Verdict
from sandbox.models.words import TestOutcome

_NAME = "\x1b]0;owned\x07 [click](https://forge.invalid) @admin <!-- x --> `"
_MANY = 400_000
_FAILURE = "<failure message='no'/>"
CARELESS = re.compile(r"^\s*#?\s*(?:---|Failed test\b.*)?\s*$")
"""As the reader of TAP once looked for lines without a text."""
_BLANKS = 1_600
_READ_S = 1.0
"""For a report of a few kilobytes; the careless reader takes three times as long, and hours for 20 KB."""


def _write_report(scene: Scene, name: str, tests: str) -> None:
    """A folder with a JUnit report: `+a -b`: a passed, b failed."""
    cases = (f"<testcase name='{test[1:]}'>{_FAILURE if test[0] == '-' else ''}</testcase>" for test in tests.split())
    folder = scene.root / name
    folder.mkdir()
    (folder / "junit.xml").write_text(f"<testsuite>{''.join(cases)}</testsuite>")


def _read_side(folder: Path) -> CheckSide:
    """A check that failed, with the tests of its report."""
    results = CollectedResults()
    read_report(folder, results=results)
    return CheckSide(make_run(Verdict.FAILED), results.results, results.complete)


def _compare(before: CheckSide, after: CheckSide) -> CheckComparison:
    return compare_check("test", before, after)


def _write_hiding(scene: Scene) -> None:
    """On the base one of three fails. Here the third fails, too, and its line is gone; or all is said to be well."""
    _write_report(scene, "before", "-one +two +three")
    _write_report(scene, "hidden", "-one +two")
    _write_report(scene, "well", "+one +two +three")


_HIDING = ("hidden", "well")


def _sees_nothing_new(scene: Scene) -> str:
    before = _failing(_read_side(scene.root / "before"))
    require_hit(before == {"one"}, "the report of the base has another failure")
    for name in _HIDING:
        require_hit(_failing(_read_side(scene.root / name)) <= before, f"the report `{name}` hides no failure")
    return "by the names of failing tests there is no new failure"


def _failing(side: CheckSide) -> set[str]:
    return {result.test for result in side.results or () if result.outcome is TestOutcome.FAILED}


def _finds_hidden(scene: Scene) -> str:
    before = _read_side(scene.root / "before")
    for name in _HIDING:
        if not _compare(before, _read_side(scene.root / name)).reasons:
            raise GotThrough(f"no new failure in the report `{name}`")
    return "a test that is missing, and a failure that no test explains, are new failures"


def _write_twins(scene: Scene) -> None:
    _write_report(scene, "before", "+a -b")
    _write_report(scene, "twins", "-a +a -b")


def _keeps_the_last(scene: Scene) -> str:
    table = {result.test: result.outcome for result in _read_side(scene.root / "twins").results or ()}
    require_hit(table.get("a") is TestOutcome.PASSED, "the failure is in the table")
    return "a table by name keeps the one that passes"


def _counts_twins(scene: Scene) -> str:
    found = _compare(_read_side(scene.root / "before"), _read_side(scene.root / "twins"))
    require_equal(found.reasons, ("1 test fails newly",), "the new failures")
    return "tests of one name are counted: one more fails"


def _write_bombs(scene: Scene) -> None:
    honest = {"filename": "a.py", "code": "E1", "location": {"row": 1}, "message": "no"}
    folder = scene.root / "bombs"
    folder.mkdir()
    (folder / "many.json").write_text("[" + '{"":[]},' * (_MANY // 2) + "0]")
    (folder / "deep.json").write_text("[" * _MANY)
    (folder / "elements.xml").write_text("<testsuite>" + "<testcase name='x'/>" * _MANY + "</testsuite>")
    (folder / "honest.json").write_text(json.dumps([honest]))


def _unfolds(scene: Scene) -> str:
    values = json.loads((scene.root / "bombs" / "many.json").read_text())
    require_hit(len(values) > _MANY // 2, "it holds few values")
    return f"`json.loads` makes {len(values) * 2:,} objects of one file"


def _leaves_out_bombs(scene: Scene) -> str:
    results = CollectedResults()
    found = read_report(scene.root / "bombs", results=results)
    require_equal(found.failures if found else None, 1, "failures of the honest report beside them")
    require_equal(len(results.results), 1, "results that were kept")
    require_equal(results.complete, False, "whether the results are called complete")
    return "three files were left out, and the results say that they are not complete"


def _write_names(scene: Scene) -> None:
    _write_report(scene, "before", "+fine")
    folder = scene.root / "names"
    folder.mkdir()
    (folder / "tests.tap").write_text(f"not ok 1 - {_NAME}\n1..1\n")


def _has_commands(scene: Scene) -> str:
    text = (scene.root / "names" / "tests.tap").read_text()
    require_hit("\x1b]0;" in text and "](https://" in text, "the name is harmless")
    return "as it is written the name commands a terminal, and is a link, a mention and a comment"


def _is_inert(scene: Scene) -> str:
    found = _compare(_read_side(scene.root / "before"), _read_side(scene.root / "names"))
    tree = TreeComparison(against="base", commit=COMMIT, tree=TREE, checks=(found,), no_new_failures=False)
    lines = [line for line in describe_comparison(tree).splitlines() if "click" in line]
    require_hit(lines, "the name is not in the text")
    for line in lines:
        fence = line.removeprefix("- newly failing: ").split(" ")[0]
        if "\x1b" in line or not (set(fence) == {"`"} and line.endswith(fence)):
            raise GotThrough(f"in a pull request the name is {line!a}")
    return "one line of code without control characters"


def _write_blanks(scene: Scene) -> None:
    folder = scene.root / "blanks"
    folder.mkdir()
    (folder / "tests.tap").write_text(f"not ok 1 - one\n{' ' * _BLANKS}x\nok 2 - two\n1..2\n")


def _measure_careless(blanks: int) -> float:
    """Processor time in seconds, the lowest of three."""
    times = []
    for _ in range(3):
        started = time.process_time()
        CARELESS.match(" " * blanks + "x")
        times.append(time.process_time() - started)
    return min(times)


def _grows_as_the_cube(_: Scene) -> str:
    growth = _measure_careless(400) / _measure_careless(200)
    require_hit(growth > 4, f"twice the blanks take {growth:.1f} times as long")  # as a square grows
    return f"twice as many blanks take a careless pattern {growth:.0f} times as long"


def _reads_blanks_at_once(scene: Scene) -> str:
    results = CollectedResults()
    started = time.process_time()
    found = read_report(scene.root / "blanks", results=results)
    took = time.process_time() - started
    if took > _READ_S:
        raise GotThrough(f"{_BLANKS:,} blanks in a report take {took:.1f} s")
    require_equal(found.failures if found else None, 1, "failures of the report")
    return f"a line of {_BLANKS:,} blanks is read at once"


ENTRIES = (
    AttackEntry("S105", "a report that hides a failing test", "verify --against", _sees_nothing_new, _finds_hidden,
          _write_hiding, scene="bare"),
    AttackEntry("S106", "two tests of one name", "verify --against", _keeps_the_last, _counts_twins, _write_twins,
          scene="bare"),
    AttackEntry("S107", "reports that unfold", "check results", _unfolds, _leaves_out_bombs, _write_bombs,
          scene="bare"),
    AttackEntry("S108", "names of tests that are commands", "pr open", _has_commands, _is_inert, _write_names,
          scene="bare"),
    AttackEntry("S188", "a report that takes hours to read", "check results", _grows_as_the_cube,
          _reads_blanks_at_once, _write_blanks, scene="bare"),
)  # fmt: skip
