"""The digest of a profile's image, from an engine that is not Docker."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.config import ImageSettings
from sandbox.engine.protocol import ContainerEngine
from sandbox.errors import ErrorCode, SandboxError
from sandbox.images import ImageBuildContext, resolve_image
from sandbox.store.home import Home
from sandbox.store.quarantine import QuarantineNotes
from tests.unit.memory_engine import MemoryEngine


@pytest.fixture
def engine(tmp_path: Path) -> MemoryEngine:
    return MemoryEngine(QuarantineNotes(tmp_path / "quarantine"))


def resolve(engine: ContainerEngine, home: Path, reference: str) -> str:
    return resolve_image(ImageBuildContext(engine, Home(home), ImageSettings(), {}), reference)


def test_an_image_is_found_by_its_tag_and_by_its_digest(engine: MemoryEngine, tmp_path: Path) -> None:
    wanted = engine.add_image("registry.example/tools:2").digest
    engine.add_image("registry.example/tools:1")
    assert resolve(engine, tmp_path, "registry.example/tools:2") == wanted
    assert resolve(engine, tmp_path, wanted) == wanted


def test_a_missing_image_is_an_error_that_names_a_similar_one(engine: MemoryEngine, tmp_path: Path) -> None:
    engine.add_image("registry.example/tools:2")
    with pytest.raises(SandboxError) as caught:
        resolve(engine, tmp_path, "registry.example/tool:2")
    assert caught.value.code is ErrorCode.IMAGE_MISSING
    assert "Did you mean registry.example/tools:2?" in caught.value.hint


def test_an_image_with_a_volume_is_refused(engine: MemoryEngine, tmp_path: Path) -> None:
    engine.add_image("registry.example/data:1", has_volumes=True)
    with pytest.raises(SandboxError) as caught:
        resolve(engine, tmp_path, "registry.example/data:1")
    assert caught.value.code is ErrorCode.POLICY_VIOLATION


def test_an_image_of_the_catalogue_is_never_another_one_with_its_name(engine: MemoryEngine, tmp_path: Path) -> None:
    engine.add_image("base")
    with pytest.raises(SandboxError) as caught:
        resolve(engine, tmp_path, "base")
    assert (caught.value.code, caught.value.hint) == (
        ErrorCode.IMAGE_MISSING,
        "Build it: sandbox images build base",
    )
