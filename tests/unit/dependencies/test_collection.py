"""What is read of a tree is bounded, also what is not there."""

from __future__ import annotations

from sandbox.dependencies.collection import MAX_LOOKS, Collection
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
