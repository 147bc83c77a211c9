"""A test program with a JUnit report beside its output: `unittest_report.py REPORT (-m MODULE|FILE) [ARGUMENT...]`.

The program runs as `python -m MODULE` or `python FILE` would run it. What a runner with unittest's text results runs in
its process is reported, whoever starts it: unittest itself, Django, a program of the project. Others write nothing.
"""

import atexit
import os
import re
import runpy
import sys
import time
import unittest
from contextlib import suppress
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

_NOT_IN_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class Recorded(unittest.TextTestResult):
    """Tells the recorder what happens, while it records this result.

    It is put before a class of the project, so that its own names must be no one else's.
    """

    sandbox_recorder: "Recorder"

    def startTestRun(self) -> None:
        self.sandbox_recorder.begin(self)
        super().startTestRun()

    def startTest(self, test: Any) -> None:
        super().startTest(test)
        self.sandbox_recorder.begin(self)
        self.sandbox_recorder.start(self, test)

    def stopTest(self, test: Any) -> None:
        super().stopTest(test)
        self.sandbox_recorder.stop(self, test)

    def addFailure(self, test: Any, err: Any) -> None:
        super().addFailure(test, err)
        self.sandbox_recorder.note_failure(self, test, "failure", err)

    def addError(self, test: Any, err: Any) -> None:
        super().addError(test, err)
        self.sandbox_recorder.note_failure(self, test, "error", err)

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
        super().addSubTest(test, subtest, err)
        if err is not None:
            self.sandbox_recorder.note_failure(self, test, "failure", err)

    def addSkip(self, test: Any, reason: str) -> None:
        super().addSkip(test, reason)
        self.sandbox_recorder.note(self, test, "skipped", reason)

    def addUnexpectedSuccess(self, test: Any) -> None:
        super().addUnexpectedSuccess(test)
        self.sandbox_recorder.note(self, test, "failure", "unexpected success")

    def stopTestRun(self) -> None:
        super().stopTestRun()
        self.sandbox_recorder.end(self)


class Recorder:
    """Records one result at a time, with an element for each test; what fails without a test, such as `setUpClass`, has
    one too. What runs inside a test, such as the tests of a runner, is no run of its own. A process that the program
    starts or forks records nothing.
    """

    def __init__(self, report: Path) -> None:
        self.report = report
        self.process = os.getpid()
        self.runs = 0
        self.result: Any = None
        self.begun = time.monotonic()
        self.suite = ElementTree.Element("testsuite", name="unittest")
        self.cases: dict[str, ElementTree.Element] = {}

    def watch(self, result: Any) -> None:
        """Let a new result tell what happens to it, if its class can be extended."""
        kind = type(result)
        if self.process == os.getpid() and not isinstance(result, Recorded):
            with suppress(TypeError):
                result.__class__ = type(kind.__name__, (Recorded, kind), {"sandbox_recorder": self})

    def begin(self, result: Any) -> None:
        """Record this result, if none is recorded."""
        if self.result is None and self.process == os.getpid():
            self.result, self.cases = result, {}
            self.suite = ElementTree.Element("testsuite", name="unittest")

    def start(self, result: Any, test: Any) -> None:
        if result is self.result:
            self.begun = time.monotonic()
            self.find_case(test)

    def stop(self, result: Any, test: Any) -> None:
        if result is self.result:
            self.find_case(test).set("time", f"{time.monotonic() - self.begun:.3f}")

    def find_case(self, test: Any) -> ElementTree.Element:
        name = _NOT_IN_XML.sub("?", test.id())
        if name not in self.cases:
            folder, _, last = ("", "", name) if name.endswith(")") else name.rpartition(".")  # setUpClass (a.B)
            self.cases[name] = ElementTree.SubElement(self.suite, "testcase", classname=folder, name=last)
        return self.cases[name]

    def note(self, result: Any, test: Any, kind: str, message: str, text: str = "") -> None:
        if result is not self.result:
            return
        case = self.find_case(test)
        if case.find(kind) is None:
            ElementTree.SubElement(case, kind, message=_NOT_IN_XML.sub("?", message)).text = _NOT_IN_XML.sub("?", text)

    def note_failure(self, result: Any, test: Any, kind: str, err: Any) -> None:
        try:
            said = str(err[1])
        except Exception:  # noqa: BLE001 -- an error of the project's that cannot be shown
            said = "<no text>"
        self.note(result, test, kind, f"{err[0].__name__}: {said}", result._exc_info_to_string(err, test))

    def end(self, result: Any) -> None:
        """Write the report; one that cannot be written changes nothing."""
        if result is None or result is not self.result or self.process != os.getpid():
            return
        name = f"{self.report.stem}-{self.runs}.xml" if self.runs else self.report.name
        with suppress(OSError, ValueError):
            written = ElementTree.ElementTree(self.suite)
            written.write(self.report.with_name(name), encoding="utf-8", xml_declaration=True)
        self.runs, self.result = self.runs + 1, None


def watch_results(recorder: Recorder) -> None:
    """Let unittest's text results, and what is derived from them, tell the recorder what happens; also those that are
    never told that they end.
    """
    kind: Any = unittest.TextTestResult
    make = kind.__init__

    def make_and_watch(result: Any, *words: Any, **named: Any) -> None:
        make(result, *words, **named)
        recorder.watch(result)

    kind.__init__ = make_and_watch
    atexit.register(lambda: recorder.end(recorder.result))


if __name__ == "__main__":
    watch_results(Recorder(Path(sys.argv[1])))
    if sys.argv[2] == "-m":
        del sys.argv[:3]
        sys.path[0] = str(Path.cwd())  # as Python does, not the folder of this file
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        del sys.argv[:2]
        sys.path[0] = str(Path(sys.argv[0]).absolute().parent)
        runpy.run_path(sys.argv[0], run_name="__main__")
