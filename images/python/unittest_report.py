"""`python -m unittest` with a JUnit report beside its output: `unittest_report.py REPORT [ARGUMENT...]`."""

import re
import sys
import time
import unittest
from contextlib import suppress
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

_NOT_IN_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write_text(value: object) -> str:
    """What a project gives as a name, a reason or an error, which may be no text, or nothing that can be shown."""
    try:
        text = str(value)
    except Exception:  # noqa: BLE001 -- an error of the project's
        text = "<no text>"
    return _NOT_IN_XML.sub("?", text)


class Result(unittest.TextTestResult):
    """Keeps an element for each test. What fails without a test, such as `setUpClass`, has one too."""

    def __init__(self, *words: Any, **named: Any) -> None:
        super().__init__(*words, **named)
        self.suite = ElementTree.Element("testsuite", name="unittest")
        self.cases: dict[str, ElementTree.Element] = {}
        self.begun = time.monotonic()

    def startTest(self, test: Any) -> None:
        super().startTest(test)
        self.begun = time.monotonic()
        self.find_case(test)

    def stopTest(self, test: Any) -> None:
        super().stopTest(test)
        self.find_case(test).set("time", f"{time.monotonic() - self.begun:.3f}")

    def find_case(self, test: Any) -> ElementTree.Element:
        name = write_text(test.id())
        if name not in self.cases:
            folder, _, last = ("", "", name) if name.endswith(")") else name.rpartition(".")  # setUpClass (a.B)
            self.cases[name] = ElementTree.SubElement(self.suite, "testcase", classname=folder, name=last)
        return self.cases[name]

    def note(self, test: Any, kind: str, message: object, text: str = "") -> None:
        case = self.find_case(test)
        if case.find(kind) is None:
            ElementTree.SubElement(case, kind, message=write_text(message)).text = write_text(text)

    def note_failure(self, test: Any, kind: str, err: Any) -> None:
        text = self._exc_info_to_string(err, test)
        self.note(test, kind, f"{err[0].__name__}: {write_text(err[1])}", text)

    def addFailure(self, test: Any, err: Any) -> None:
        super().addFailure(test, err)
        self.note_failure(test, "failure", err)

    def addError(self, test: Any, err: Any) -> None:
        super().addError(test, err)
        self.note_failure(test, "error", err)

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
        super().addSubTest(test, subtest, err)
        if err is not None:
            self.note_failure(test, "failure", err)

    def addSkip(self, test: Any, reason: str) -> None:
        super().addSkip(test, reason)
        self.note(test, "skipped", reason)

    def addUnexpectedSuccess(self, test: Any) -> None:
        super().addUnexpectedSuccess(test)
        self.note(test, "failure", "unexpected success")


class Runner(unittest.TextTestRunner):
    """Writes the report after the last test; one that cannot be written changes nothing."""

    resultclass = Result

    def run(self, test: Any) -> Any:
        result = super().run(test)
        with suppress(OSError, ValueError):
            ElementTree.ElementTree(result.suite).write(REPORT, encoding="utf-8", xml_declaration=True)
        return result


if __name__ == "__main__":
    REPORT = Path(sys.argv[1])
    sys.argv[:2] = ["python -m unittest"]
    sys.path[0] = str(Path.cwd())  # as `-m` has it, not the folder of this file
    unittest.main(module=None, testRunner=Runner)
