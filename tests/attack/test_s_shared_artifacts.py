"""THREATS S113: artifacts in a store that somebody else writes into.

Control: an artifact that nobody touched is read through the store, whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from sandbox.errors import ErrorCode
from sandbox.models import Artifact, ArtifactList
from sandbox.store import artifact_store
from sandbox.store.home import Home
from sandbox.workbench import Workbench
from sandbox.workbench.checks.shared_parts import PART_BYTES
from tests.unit.conftest import refused

pytestmark = pytest.mark.must

RUN, OWNER = f"run-{'1' * 32}", "host-o-r"
CONTENT = b"first part " + bytes(PART_BYTES) + b" second part"


class Pair:
    """One home has a run with an artifact, the other reads it."""

    def __init__(self, root: Path, stack: ExitStack) -> None:
        self.store = root / "store"
        self.first, self.second = (stack.enter_context(self._open(root / name)) for name in ("first", "second"))
        home = Home(self.first.home)
        home.logs(OWNER).mkdir(parents=True)
        (home.logs(OWNER) / f"{RUN}.json").write_text("{}")
        sha256, size = artifact_store.store_content(home, [CONTENT])
        self.artifact = Artifact(path="out/app", sha256=sha256, size=size)
        artifact_store.save_list(home, OWNER, ArtifactList(run_id=RUN, artifacts=(self.artifact,)))

    def _open(self, home: Path, **cache: object) -> Workbench:
        return Workbench(home, environ={}, settings={"cache": {"url": str(self.store), "artifacts": True, **cache}})

    def read(self, parts: tuple[str, ...]) -> bytes:
        return b"".join(self.second.read_shared_artifact(self.artifact, parts))


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with ExitStack() as stack:
        found = Pair(tmp_path, stack)
        yield found


def test_s113_an_artifact_of_one_home_is_read_by_another(pair: Pair) -> None:
    """The control of all others."""
    parts = pair.first.share_artifact(RUN, "out/app")
    assert len(parts) == 2
    assert {path.stat().st_size for path in pair.store.iterdir()} == {PART_BYTES, len(CONTENT) - PART_BYTES}
    assert pair.read(parts) == CONTENT


def change_a_part(pair: Pair, parts: tuple[str, ...]) -> tuple[str, ...]:
    (pair.store / f"artifact-part-{parts[1]}").write_bytes(b"evil")
    return parts


def link_a_part(pair: Pair, parts: tuple[str, ...]) -> tuple[str, ...]:
    path = pair.store / f"artifact-part-{parts[1]}"
    path.unlink()
    path.symlink_to("/etc/hostname")
    return parts


def remove_a_part(pair: Pair, parts: tuple[str, ...]) -> tuple[str, ...]:
    (pair.store / f"artifact-part-{parts[1]}").unlink()
    return parts


def grow(pair: Pair, parts: tuple[str, ...]) -> tuple[str, ...]:
    """One part, again and again, of an artifact that is said to be as large."""
    pair.artifact = pair.artifact.model_copy(update={"size": 1000 * PART_BYTES})
    return parts[:1] * 1000


@pytest.mark.parametrize(
    ("attack", "code"),
    [
        (change_a_part, ErrorCode.INTERNAL),
        (link_a_part, ErrorCode.NETWORK_ERROR),
        (remove_a_part, ErrorCode.NETWORK_ERROR),
        (lambda _, parts: parts[::-1], ErrorCode.INTERNAL),
        (lambda _, parts: (parts[0], parts[0]), ErrorCode.INTERNAL),
        (lambda _, parts: parts[:1], ErrorCode.INTERNAL),
        (lambda _, parts: parts * 1000, ErrorCode.INTERNAL),
        (grow, ErrorCode.INTERNAL),
        (lambda _, parts: (), ErrorCode.INTERNAL),
    ],
)  # fmt: skip
def test_s113_a_poisoned_artifact_is_refused(
    pair: Pair, attack: Callable[[Pair, tuple[str, ...]], tuple[str, ...]], code: ErrorCode
) -> None:
    poisoned = attack(pair, pair.first.share_artifact(RUN, "out/app"))
    chunks = pair.second.read_shared_artifact(pair.artifact, poisoned)
    got = bytearray()
    with refused(code):
        for chunk in chunks:
            got += chunk
    assert len(got) <= PART_BYTES, "the last part comes only if all of it is right"


def test_s113_a_home_that_does_not_share_or_does_not_write_puts_nothing_there(pair: Pair, tmp_path: Path) -> None:
    for cache in ({"artifacts": False}, {"write": False}):
        with pair._open(tmp_path / "first", **cache) as bench:
            assert bench.share_artifact(RUN, "out/app") == ()
    assert not pair.store.exists()
    with pair._open(tmp_path / "third", artifacts=False) as bench, refused(ErrorCode.INVALID_INPUT):
        list(bench.read_shared_artifact(pair.artifact, ("0" * 64,)))
