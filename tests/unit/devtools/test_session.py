"""The recorded terminal session shows what stays on a terminal, and asks no other host for anything."""

from __future__ import annotations

import re

from devtools import session


def test_of_an_erased_line_the_last_state_stays() -> None:
    assert session.last_states("a: 1 s\r\x1b[Ka: \x1b[32mpassed\x1b[0m\r\nb\n") == ["a: \x1b[32mpassed\x1b[0m", "b", ""]


def test_a_drawing_is_deterministic_and_has_commands_and_colors() -> None:
    steps = [("sandbox run .", "build \x1b[32mpassed\x1b[0m\r\n")]
    picture = session.draw(steps)
    assert picture == session.draw(steps)
    assert "sandbox&#160;run&#160;." in picture
    assert "passed" in picture


def test_the_picture_names_no_other_host_and_no_scratch_directory() -> None:
    picture = session.PICTURE.read_text(encoding="utf-8")
    assert set(re.findall(r"https?://[^\"\s]+", picture)) == {"http://www.w3.org/2000/svg"}
    assert "/tmp/" not in picture
