"""Real repositories with missing or overwritten parts, cloned for real: one try, and words that say where it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox.errors import ErrorCode
from sandbox.git.cache_clones import refresh
from tests.unit.conftest import Upstream, access_to, refused


def object_file(upstream: Upstream, revision: str) -> Path:
    oid = upstream.oid(revision)
    path = upstream.git_dir / "objects" / oid[:2] / oid[2:]
    path.chmod(0o644)
    return path


def overwrite_pack(upstream: Upstream) -> None:
    upstream.git("repack", "-adq")
    (pack,) = (upstream.git_dir / "objects" / "pack").glob("*.pack")
    pack.chmod(0o644)
    content = bytearray(pack.read_bytes())
    content[12:32] = b"X" * 20
    pack.write_bytes(content)


DAMAGE: dict[str, Callable[[Upstream], object]] = {
    "a missing file": lambda upstream: object_file(upstream, "HEAD:f").unlink(),
    "a missing directory": lambda upstream: object_file(upstream, "HEAD^{tree}").unlink(),
    "a missing parent": lambda upstream: object_file(upstream, "HEAD~1").unlink(),
    "an overwritten file": lambda upstream: object_file(upstream, "HEAD:f").write_bytes(b"garbage"),
    "an empty commit": lambda upstream: object_file(upstream, "HEAD").write_bytes(b""),
    "an overwritten pack": overwrite_pack,
    "a broken configuration": lambda upstream: (upstream.git_dir / "config").write_text("[core\n"),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_remote_is_named_as_that_and_not_asked_again(
    damage: Callable[[Upstream], object], upstream: Upstream, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for text in (b"one\n", b"two\n"):
        upstream.write("f", text)
        upstream.commit()
    access = access_to(f"file://{upstream.root}", tmp_path / "known_hosts")
    damage(upstream)
    with refused(ErrorCode.REMOTE_BROKEN) as caught:
        refresh(tmp_path / "clones" / "cache", access)
    assert caught.value.brief == "The remote's repository is damaged"
    assert "git fsck" in caught.value.hint
    assert "tried" not in caught.value.details
    assert "trying again" not in caplog.text
