"""THREATS S113: layers in a store that somebody else writes into.

Control: a layer that nobody touched is taken, with its content; each attack begins with one that would be.
"""

from __future__ import annotations

import io
import json
import logging
import os
import tarfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sandbox.errors import ErrorCode
from sandbox.files.tree_archive import pack_tree, unpack_tree
from sandbox.models.layers import Layer
from sandbox.store.layers import LayerStore
from sandbox.workbench.checks.shared_layers import SharedLayers, open_shared_layers
from sandbox.workbench.controller.services import build_services
from tests.unit.conftest import refused
from tests.unit.receipt_samples import Signer

pytestmark = pytest.mark.must

OURS, THEIRS = Signer(), Signer()
KEY, OTHER = "a" * 64, "b" * 64


def open_home(root: Path, name: str, signer: Signer = OURS) -> SharedLayers:
    """A home that signs with a key and trusts ours."""
    (root / f"{name}.pem").write_bytes(signer.pem)
    (root / "public.pem").write_bytes(OURS.public_pem)
    flags = {
        "receipts": {"signing_key": str(root / f"{name}.pem"), "trusted_keys": [str(root / "public.pem")]},
        "cache": {"url": str(root / "store"), "layers": True},
    }
    found = open_shared_layers(build_services(root / name, {"PATH": os.environ["PATH"]}, flags, allow_file=True))
    assert found is not None
    return found


def publish(home: SharedLayers, root: Path, content: bytes = b"good", key: str = KEY) -> Layer:
    """A layer of a home, which has added it to the store."""
    built = root / f"built-{key[0]}"
    (built / "bin").mkdir(parents=True)
    (built / "bin/tool").write_bytes(content)
    (built / "bin/tool").chmod(0o555)
    (built / "python").symlink_to("/usr/bin/python3")
    layer = Layer(
        key=key, ecosystem="python", packages=(), image_digest="sha256:0", platform="linux/amd64", runtime="runc",
        folder=f"{key[:32]}-0", bytes=len(content) + len("/usr/bin/python3"), files=3, built_at=datetime.now(UTC),
        wall_time_s=1.0,
    )  # fmt: skip
    LayerStore(home.services.home).publish(layer, built)
    home.add(layer)
    return layer


def take(home: SharedLayers, root: Path, key: str = KEY) -> Layer | None:
    staging = root / "staging"
    staging.mkdir(exist_ok=True)
    try:
        return home.take(key, staging)
    finally:
        assert list(staging.iterdir()) == []


def test_s113_a_layer_that_one_home_installed_is_used_by_another(tmp_path: Path) -> None:
    """The control of all others."""
    first, second = open_home(tmp_path, "first"), open_home(tmp_path, "second")
    assert take(second, tmp_path) is None
    publish(first, tmp_path)
    layer = take(second, tmp_path)
    assert layer is not None
    tree = LayerStore(second.services.home).tree(layer)
    assert ((tree / "bin/tool").read_bytes(), (tree / "bin/tool").stat().st_mode & 0o777) == (b"good", 0o555)
    assert (tree / "python").readlink() == Path("/usr/bin/python3")
    assert LayerStore(second.services.home).find(KEY) == layer


def replace_part(root: Path) -> None:
    (part,) = (root / "store").glob("layer-part-*")
    part.write_bytes(part.read_bytes().replace(b"good", b"evil"))


def sign_by_a_stranger(root: Path) -> None:
    publish(open_home(root, "stranger", THEIRS), root / "stranger", b"evil")


def name_another_layer(root: Path) -> None:
    publish(open_home(root, "third"), root / "third", b"evil", OTHER)
    (root / f"store/layer-{OTHER}.json").replace(root / f"store/layer-{KEY}.json")


def change_the_statement(root: Path) -> None:
    path = root / f"store/layer-{KEY}.json"
    document = json.loads(path.read_text())
    document["payload"] = document["payload"][:-8] + "AAAAAAA="
    path.write_text(json.dumps(document))


def remove_a_part(root: Path) -> None:
    for part in (root / "store").glob("layer-part-*"):
        part.unlink()


@pytest.mark.parametrize(
    ("poison", "why"),
    [
        (replace_part, "has another content"),
        (sign_by_a_stranger, "No signature of the receipt is by a trusted key"),
        (name_another_layer, "it is about another layer"),
        (change_the_statement, "changed after it was signed"),
        (remove_a_part, "is not there"),
    ],
)
def test_s113_a_poisoned_layer_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, poison: Callable[[Path], None], why: str
) -> None:
    publish(open_home(tmp_path, "first"), tmp_path)
    poison(tmp_path)
    second = open_home(tmp_path, "second")
    with caplog.at_level(logging.WARNING):
        assert take(second, tmp_path) is None
    assert why in caplog.text
    assert LayerStore(second.services.home).list_layers() == []


def archive_of(*entries: tuple[str, bytes, str]) -> io.BytesIO:
    """`entries`: name, type and link target."""
    found = io.BytesIO()
    with tarfile.open(fileobj=found, mode="w") as archive:
        for name, kind, link in (("./", tarfile.DIRTYPE, ""), *entries):
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = kind, link
            archive.addfile(entry)
    found.seek(0)
    return found


@pytest.mark.parametrize(
    "entries",
    [
        [("../out", tarfile.REGTYPE, "")],
        [("/out", tarfile.REGTYPE, "")],
        [("link", tarfile.SYMTYPE, "/tmp"), ("link/out", tarfile.REGTYPE, "")],
        [("a", tarfile.REGTYPE, ""), ("a", tarfile.REGTYPE, "")],
        [("a", tarfile.SYMTYPE, "/etc/hostname"), ("a", tarfile.REGTYPE, "")],
        [("a", tarfile.LNKTYPE, "/etc/passwd")],
        [("a", tarfile.CHRTYPE, "")],
        [("a", tarfile.FIFOTYPE, "")],
        [("a/b", tarfile.REGTYPE, "")],
    ],
)
def test_s113_a_hostile_archive_writes_nothing_outside(tmp_path: Path, entries: list[tuple[str, bytes, str]]) -> None:
    with refused(ErrorCode.POLICY_VIOLATION):
        unpack_tree(archive_of(*entries), tmp_path / "tree", 1000)
    assert [path.name for path in tmp_path.iterdir()] == ["tree"]


def test_s113_an_archive_larger_than_announced_is_refused(tmp_path: Path) -> None:
    (tmp_path / "from").mkdir()
    (tmp_path / "from/file").write_bytes(bytes(2000))
    packed = io.BytesIO()
    pack_tree(tmp_path / "from", packed)
    packed.seek(0)
    unpack_tree(packed, tmp_path / "whole", 2000)
    packed.seek(0)
    with refused(ErrorCode.POLICY_VIOLATION):
        unpack_tree(packed, tmp_path / "tree", 1999)
