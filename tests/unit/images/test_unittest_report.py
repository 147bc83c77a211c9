"""What unittest ran is counted and named as what pytest runs, and its exit status stays."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sandbox.checks.report import read_report

PROGRAM = Path(__file__).parents[3] / "images" / "python" / "unittest_report.py"
TESTS = """
import unittest
import helper
class A(unittest.TestCase):
    def test_passes(self): pass
    def test_fails(self): self.assertEqual("\\x01", 2)
    def test_raises(self): raise ValueError("no")
    def test_says_nothing(self):
        class Silent(Exception):
            def __str__(self): raise OSError
        raise Silent
    def test_part_of_control(self):
        with self.subTest("a\\x1bb"): self.skipTest("no")
    @unittest.skip("later")
    def test_skipped(self): pass
    @unittest.skip(ImportError("no text"))
    def test_skipped_for_no_text(self): pass
    def test_parts(self):
        for n in range(3):
            with self.subTest(n=n): self.assertNotEqual(n, 1)
class B(unittest.TestCase):
    @classmethod
    def setUpClass(cls): raise OSError("no class")
    def test_never(self): pass
"""


def run(folder: Path, *words: str) -> int:
    (folder / "report").mkdir()
    argv = [sys.executable, "-B", str(PROGRAM), str(folder / "report/unittest-0.xml"), *words]
    return subprocess.run(argv, cwd=folder, capture_output=True, check=False).returncode


def test_each_test_of_unittest_is_in_the_report(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("")
    (tmp_path / "test_a.py").write_text(TESTS)
    assert run(tmp_path, "discover", "-v") == 1
    report = read_report(tmp_path / "report")
    assert report is not None
    assert (report.tests, report.failures, report.errors, report.skipped) == (10, 2, 3, 3)
    messages = {failure.name: failure.message for failure in report.failed}
    assert messages["test_a.A::test_fails"].startswith("AssertionError: ")
    assert messages["test_a.A::test_raises"] == "ValueError: no"
    assert messages["setUpClass (test_a.B)"] == "OSError: no class"


@pytest.mark.parametrize("words", [("discover",), ("test_b.B.test_passes",)])
def test_what_passes_with_unittest_passes(words: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "test_b.py").write_text(
        "import unittest\nclass B(unittest.TestCase):\n    def test_passes(self): pass\n"
    )
    assert run(tmp_path, *words) == 0
    report = read_report(tmp_path / "report")
    assert report is not None
    assert (report.tests, report.failures) == (1, 0)
