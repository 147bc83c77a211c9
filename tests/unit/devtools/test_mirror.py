"""Unit tests lie where the code lies: tests/unit/<room> for sandbox/<room>."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[3]
BESIDE = {"devtools", "guest_pid1"}
"""Rooms of tests for code outside of the package: the scripts, and the guest's PID 1 (images/init)."""


def test_every_folder_of_unit_tests_is_a_room_of_the_package() -> None:
    tests = ROOT / "tests" / "unit"
    rooms = {path.parent.relative_to(tests) for path in tests.rglob("test_*.py")}
    unknown = [room for room in rooms if BESIDE.isdisjoint(room.parts[:1]) and not (ROOT / "sandbox" / room).is_dir()]
    assert unknown == []


def test_at_the_top_lie_only_tests_of_modules_at_the_top() -> None:
    tests = [path.stem.removeprefix("test_") for path in (ROOT / "tests" / "unit").glob("test_*.py")]
    assert [name for name in tests if not (ROOT / "sandbox" / f"{name}.py").is_file()] == []
