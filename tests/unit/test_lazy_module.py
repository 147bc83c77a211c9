"""Modules that are imported when they are first used, by one thread or two."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sandbox.lazy_module import LazyModule

PATIENCE_S = 60


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("slow_gate", "slow_module"):
        monkeypatch.setitem(sys.modules, name, sys)
        monkeypatch.delitem(sys.modules, name)  # both are undone
    return tmp_path


def test_a_second_thread_waits_for_a_module_that_the_first_one_imports(folder: Path) -> None:
    (folder / "slow_gate.py").write_text("import threading\nbegun, go = threading.Event(), threading.Event()\n")
    (folder / "slow_module.py").write_text(
        f"import slow_gate\nslow_gate.begun.set()\nassert slow_gate.go.wait({PATIENCE_S})\nVALUE = 7\n"
    )
    gate, module = LazyModule("slow_gate"), LazyModule("slow_module")
    begun, go = gate.begun, gate.go
    with ThreadPoolExecutor() as pool:
        first = pool.submit(lambda: module.VALUE)
        assert begun.wait(PATIENCE_S)
        second = pool.submit(lambda: module.VALUE)
        try:
            with pytest.raises(TimeoutError):  # without the wait it has failed by then
                second.result(0.3)
        finally:
            go.set()
        assert [one.result(PATIENCE_S) for one in (first, second)] == [7, 7]


def test_a_module_is_imported_when_it_is_first_used(folder: Path) -> None:
    (folder / "slow_gate.py").write_text("VALUE = 8\n")
    module = LazyModule("slow_gate")
    assert "slow_gate" not in sys.modules
    assert (module.VALUE, "slow_gate" in sys.modules) == (8, True)
