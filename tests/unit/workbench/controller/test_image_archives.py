"""Archives of images as a Python program asks for them."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox.images.archive_format import format_header
from sandbox.images.debian import BOOTSTRAPPED
from sandbox.images.lookup import NAME_LABEL
from sandbox.store.quarantine import QuarantineNotes
from sandbox.workbench import Workbench
from tests.unit.memory_engine import MemoryEngine


@pytest.mark.parametrize("as_given", [str, Path], ids=["text", "path"])
def test_a_path_may_be_text_and_progress_and_names_may_be_left_out(
    tmp_path: Path, as_given: Callable[[Path], str | Path]
) -> None:
    path, lines = tmp_path / "images.tar", list[str]()
    with Workbench(tmp_path / "home", settings={"disk": {"min_free_bytes": 0}}) as workbench:
        engine = MemoryEngine(QuarantineNotes(workbench._services.home.quarantine))
        engine.import_image(io.BytesIO(format_header("debian", 0) + bytes(1024)), BOOTSTRAPPED, {NAME_LABEL: "debian"})
        vars(workbench._services)["engine"] = engine
        workbench.build_image("init", lines.append)
        exported = workbench.export_images(as_given(path))
        assert exported.path == path
        assert workbench.import_images(as_given(path)).digest == exported.digest
        workbench.import_images(as_given(path), lines.append, expected=exported.digest)
        assert lines[-1] == "checking images.tar", "control"
