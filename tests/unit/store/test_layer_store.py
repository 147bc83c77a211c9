from __future__ import annotations

import json
import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sandbox.config import LayerSettings
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models.layers import Layer, Resolution, Shortage
from sandbox.store.home import Home
from sandbox.store.layers import LayerStore, is_due
from sandbox.workbench.reconciling.unused_layers import choose_unused, remove_if_unused, remove_layer

KEY = "a" * 64


@pytest.fixture
def store(tmp_path: Path) -> LayerStore:
    home = Home(tmp_path / "home")
    home.prepare()
    return LayerStore(home)


def publish(store: LayerStore, key: str = KEY, folder: str = "one") -> Layer:
    built = store.home.repositories / f"rooms/{folder}"
    built.mkdir()
    (built / "file").write_text("x")
    layer = Layer(
        key=key, ecosystem="python", packages=(), image_digest="sha256:1", platform="linux", runtime="runc",
        folder=folder, bytes=10, files=1, built_at=datetime.now(UTC), wall_time_s=1.0,
    )  # fmt: skip
    store.publish(layer, built)
    return layer


def resolve(store: LayerStore) -> None:
    store.save_resolution(
        Resolution(request="r", layer=KEY, selection="all", refused=(), accesses=(), resolved_at=datetime.now(UTC))
    )


def test_a_layer_is_found_by_its_key_and_by_its_request(store: LayerStore) -> None:
    layer = publish(store)
    resolve(store)
    assert store.find(KEY) == layer
    assert (store.tree(layer) / "file").read_text() == "x"
    assert store.find_resolved("r") == layer


def test_an_older_controller_reads_the_record_of_a_complete_layer(store: LayerStore) -> None:
    """It refuses unknown fields, and takes a tree without a record for a leftover. Control: a short one says so."""
    layer = publish(store)
    path = store.home.repositories / f"dependencies/layers/{KEY}.json"
    stored = json.loads(path.read_text())
    assert set(stored) == {"schema_version", *Layer.model_fields} - {"shortage"}
    short = layer.model_copy(update={"shortage": Shortage(of=("memory",), tried_at=layer.built_at)})
    store._write("layers", KEY, short)
    assert store.find(KEY) == short


def test_a_layer_whose_build_ran_short_is_built_again_later_and_later(store: LayerStore) -> None:
    """Control: a complete layer is never due."""
    layer = publish(store)
    resolve(store)
    assert not is_due(layer, layer.built_at + timedelta(days=365))
    waits = []
    for tries in (1, 2, 3, 30):
        shortage = Shortage(of=("memory",), tries=tries, tried_at=layer.built_at)
        again = layer.model_copy(update={"shortage": shortage})
        waits.append(next(s for s in range(0, 200_000, 600) if is_due(again, layer.built_at + timedelta(seconds=s))))
    assert waits == [600, 1200, 2400, 86_400]


def test_a_layer_that_is_due_is_not_taken_for_complete(store: LayerStore) -> None:
    """Control: it is before its time has come, and again after a further build that ran short."""
    layer = publish(store)
    resolve(store)
    old = Shortage(of=("disk",), tried_at=datetime.now(UTC) - timedelta(hours=1))
    store._write("layers", KEY, layer.model_copy(update={"shortage": old}))
    assert store.find_complete("r") is None
    known = store.find_resolved("r")
    assert known is not None
    again = store.publish_unless_known(known, store.home.repositories / "rooms/not-used")
    assert again.shortage is not None
    assert again.shortage.tries == 2
    assert store.find_complete("r") is not None


def test_a_request_of_a_removed_layer_is_unknown(store: LayerStore) -> None:
    layer = publish(store)
    resolve(store)
    remove_layer(store, layer)
    assert store.find(KEY) is None
    assert store.find_resolved("r") is None
    assert [path for path in (store.home.repositories / "dependencies/trees").iterdir()] == []


@pytest.mark.parametrize("is_asked_for", [True, False], ids=["asked for", "control"])
def test_a_layer_that_was_asked_for_after_gc_chose_it_is_kept(store: LayerStore, *, is_asked_for: bool) -> None:
    """The check that asked has not begun yet, so it holds no lock."""
    layer = publish(store)
    resolve(store)
    last_use = store.find_last_use(layer)
    if is_asked_for:
        store.find_resolved("r")
    assert remove_if_unused(store, layer, last_use) == (None if is_asked_for else "")
    assert (store.find(KEY) is not None) == is_asked_for


def test_a_layer_that_is_used_is_not_removed(store: LayerStore) -> None:
    layer = publish(store)
    with store.use(layer.key, "r"), pytest.raises(SandboxError) as raised:
        remove_layer(store, layer)
    assert raised.value.code is ErrorCode.CONFLICT
    remove_layer(store, layer)
    with pytest.raises(SandboxError), store.use(layer.key, "r"):
        pass


def test_a_layer_that_another_process_removed_meanwhile_is_removed(store: LayerStore) -> None:
    """One that was built anew under the same key stays."""
    layer = publish(store)
    remove_layer(store, layer)
    remove_layer(store, layer)
    again = publish(store, folder="again")
    remove_layer(store, layer)
    lock = store.tree(again).with_name(f"{layer.folder}.lock")
    lock.touch()  # it was opened before the other process removed it
    remove_layer(store, layer)
    assert store.find(KEY) == again


def test_who_used_a_layer_is_kept_until_it_is_removed(store: LayerStore) -> None:
    layer = publish(store)
    assert store.list_users(KEY) == {}
    for owner in ("r", "task-1", "r"):
        with store.use(KEY, owner):
            pass
    assert set(store.list_users(KEY)) == {"r", "task-1"}
    remove_layer(store, layer)
    assert store.list_users(KEY) == {}
    publish(store, folder="again")
    (store.home.repositories / "dependencies/users" / KEY).write_text("in the way")
    with store.use(KEY, "r") as tree:
        assert tree.is_dir(), "what cannot be noted keeps nobody from using it"


def test_a_tree_without_a_record_is_a_leftover_and_no_layer(store: LayerStore) -> None:
    layer = publish(store)
    (store.home.repositories / f"dependencies/layers/{KEY}.json").unlink()
    assert store.find(KEY) is None
    assert store.list_leftovers() == []  # a build may be about to write its record
    aside = store.tree(layer).with_name("one.removed-1")
    store.tree(layer).rename(aside)
    assert store.list_leftovers() == [aside]


def test_a_damaged_record_is_no_layer(store: LayerStore) -> None:
    publish(store)
    (store.home.repositories / f"dependencies/layers/{KEY}.json").write_text("{")
    assert store.find(KEY) is None


def test_the_layers_that_were_used_least_recently_are_removed_first(store: LayerStore) -> None:
    for age, name in enumerate("abc"):
        layer = publish(store, name * 64, name)
        at = time.time() - age * 86_400
        os.utime(store.tree(layer).with_name(f"{name}.lock"), (at, at))
    assert [layer.folder for layer, _ in choose_unused(store, LayerSettings(max_bytes=20))] == ["c"]
    assert [layer.folder for layer, _ in choose_unused(store, LayerSettings(keep_days=0.5))] == ["b", "c"]
    assert list(choose_unused(store, LayerSettings())) == []
