"""What is read of a tree is bounded, also what is not there."""

from __future__ import annotations

from sandbox.dependencies.collection import MAX_ENTRIES, MAX_FILES, MAX_LOOKS, Collection
from sandbox.models.dependencies import RefusalReason


def test_files_that_are_not_there_are_not_looked_for_without_end() -> None:
    asked = list[str]()

    def read(path: str) -> bytes | None:
        asked.append(path)
        return None

    collection = Collection(read)
    for number in range(10 * MAX_LOOKS):
        assert not collection.load_text(f"{number}/Cargo.toml")
    assert len(asked) == MAX_LOOKS
    assert {entry.reason for entry in collection.refused} == {RefusalReason.LIMIT}


def test_records_of_what_is_not_read_are_limited_also_for_files_in_turn() -> None:
    collection = Collection(lambda _: None)
    for number in range(10 * MAX_ENTRIES):
        collection.refuse("a", RefusalReason.NAME, f"{number}/Cargo.toml")
    assert MAX_ENTRIES < len(collection.refused) <= MAX_ENTRIES + MAX_FILES
    assert collection.refused[-1].reason is RefusalReason.LIMIT


def test_a_manifest_that_costs_too_much_to_parse_is_refused_for_a_limit() -> None:
    files = {"limit.toml": b"x = " + b"a" * 10_000, "syntax.toml": b"x = a"}
    collection = Collection(files.get)
    assert [collection.load_toml(path) for path in files] == [{}, {}]
    assert [(entry.reason, entry.origin) for entry in collection.refused] == [
        (RefusalReason.LIMIT, "limit.toml"),
        (RefusalReason.SYNTAX, "syntax.toml"),
    ]
    assert "line 1 has more than 8000 characters" in collection.refused[0].text
    assert "(at line 1, column 5)" in collection.refused[1].text
