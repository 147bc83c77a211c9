"""The Debian base: what is asked before it is bootstrapped."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.config import ImageSettings
from sandbox.engine.image_types import Image, Progress
from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.disk_usage import FreeSpace
from sandbox.images import debian
from sandbox.store.quarantine import QuarantineNotes
from tests.unit.conftest import refused
from tests.unit.memory_engine import MemoryEngine

MIB = 1024**2
# mmdebstrap 1.3.5, whose words are shortened to what has a meaning here, and which fetches at once
TOOL = r"""#!/bin/sh
echo "I: automatically chosen mode: root" >&2
root=$TMPDIR/mmdebstrap.x/var/cache/apt/archives
mkdir -p $root/partial
printf 'I: downloading packages \033[31mwith apt...\n' >&2
head -c 3145728 /dev/zero >$root/a.deb
sleep 0.3
head -c 1048576 /dev/zero >$root/partial/b.deb
sleep 0.3
echo "I: extracting archives..." >&2
sleep 0.1
[ -n "$FAILS" ] && echo "E: apt-get update failed" >&2 && exit 25
echo data >$TMPDIR/root.tar
"""


@pytest.mark.parametrize(
    ("free_bytes", "outcome"), [(100 * MIB, ErrorCode.QUOTA_EXCEEDED), (600 * MIB, ErrorCode.INTERNAL)]
)
def test_a_root_file_system_is_begun_only_where_it_fits(
    monkeypatch: pytest.MonkeyPatch, free_bytes: int, outcome: ErrorCode, tmp_path: Path
) -> None:
    def run(*_: object) -> None:
        raise SandboxError(ErrorCode.INTERNAL, "the first command was run")

    monkeypatch.setattr(debian, "_run", run)
    monkeypatch.setattr(FreeSpace, "of", lambda _folder: FreeSpace(0, 0, free_bytes, None))
    with refused(outcome):
        debian.bootstrap(MemoryEngine(QuarantineNotes(tmp_path)), "mmdebstrap", "", {}, lambda _line: None)


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MemoryEngine:
    """Without an image or a registry, on a host with one bootstrap tool, which needs no network."""
    tool = tmp_path / "bin" / "mmdebstrap"
    tool.parent.mkdir()
    tool.write_text(TOOL)
    tool.chmod(0o755)
    monkeypatch.setattr(debian, "_SYSTEM_PATH", f"{tool.parent}:{debian._SYSTEM_PATH}")
    monkeypatch.setattr(debian, "_OWN_MOUNTS", ())
    monkeypatch.setattr(debian, "_REPORT_S", 0.02)
    monkeypatch.setattr(FreeSpace, "of", lambda _folder: FreeSpace(0, 0, 600 * MIB, None))
    return MemoryEngine(QuarantineNotes(tmp_path))


def test_a_bootstrap_says_what_it_does_and_how_much_it_has_fetched(engine: MemoryEngine) -> None:
    lines: list[str] = []
    debian.ensure_base(engine, ImageSettings(), {}, lines.append)
    assert "downloading packages with apt, 4 MiB" in lines
    assert [line for line in lines if "MiB" not in line] == [
        f"pulling {debian.PUBLISHED}",
        f"not built: {debian.PUBLISHED}",
        f"The image '{debian.PUBLISHED}' cannot be pulled",
        f"bootstrapping {debian.BOOTSTRAPPED} with mmdebstrap",
        "automatically chosen mode: root",
        "downloading packages with apt",
        "extracting archives",
        "importing it into the engine, 5 B",
        f"obtained {debian.BOOTSTRAPPED}",
    ]


def test_a_bootstrap_that_fails_leaves_its_words_to_the_error(
    engine: MemoryEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(debian, "PROXIES", ("FAILS",))
    lines: list[str] = []
    with refused(ErrorCode.INTERNAL) as raised:
        debian.ensure_base(engine, ImageSettings(), {"FAILS": "1"}, lines.append)
    assert lines[-1] == f"not built: {debian.BOOTSTRAPPED}"
    assert raised.value.details.splitlines()[-1] == "E: apt-get update failed"


class Registry(MemoryEngine):
    """An engine that pulls."""

    def pull_image(self, reference: str, progress: Progress, deadline_s: float = 0.0) -> Image:
        progress("downloading, 1 MiB")
        return self.add_image(reference)


def test_a_pull_has_a_begin_and_an_end(tmp_path: Path) -> None:
    lines: list[str] = []
    debian.ensure_base(Registry(QuarantineNotes(tmp_path)), ImageSettings(base="debian:mine"), {}, lines.append)
    assert lines == ["pulling debian:mine", "downloading, 1 MiB", "obtained debian:mine"]
