"""The names of users in a guest."""

from __future__ import annotations

from sandbox.engine.account_files import build_group, build_passwd


def test_a_guest_has_an_entry_of_its_own() -> None:
    lines = build_passwd((66_017, 66_017), "/home/sandbox").decode().splitlines()
    assert lines[-1] == "sandbox:x:66017:66017:sandbox:/home/sandbox:/bin/sh"
    assert lines[0] == "root:x:0:0:root:/root:/bin/sh"
    assert "sandbox:x:66017:" in build_group((66_017, 66_017)).decode().splitlines()


def test_every_line_has_all_fields_and_no_name_comes_twice() -> None:
    for text, fields in ((build_passwd((66_000, 66_000), "/h"), 7), (build_group((66_000, 66_000)), 4)):
        rows = [line.split(":") for line in text.decode().splitlines()]
        assert {len(row) for row in rows} == {fields}
        assert len({row[0] for row in rows}) == len(rows)
        assert len({row[2] for row in rows}) == len(rows)
