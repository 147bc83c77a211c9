"""A layer whose build ran short of something serves until a further build brings what is missing."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from sandbox.config import LayerSettings
from sandbox.dependencies.layer_plan import LayerPlan
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models.dependencies import RefusalReason, RefusedEntry
from sandbox.models.layers import Layer, Resolution, Shortage
from sandbox.store.layers import LayerSource, LayerStore
from sandbox.workbench import Watch, Workbench
from sandbox.workbench.checks import layer_builds, layers
from sandbox.workbench.checks.guest_setup import GuestSetup
from sandbox.workbench.checks.layer_attempts import OTHER_HASH
from sandbox.workbench.checks.layers import add_layers
from sandbox.workbench.controller.services import Services
from sandbox.workbench.reconciling.unused_layers import choose_unused
from sandbox.workbench.repositories.commit_facts import TreeSource
from tests.unit.conftest import refused

SETUP = GuestSetup("sha256:" + "0" * 64, "runc")
TREE: Any = TreeSource("local-1", None, "0" * 40, "0" * 40)  # type: ignore[arg-type]  # nothing of it is read
KEY = "a" * 64


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    with Workbench(tmp_path / "home", environ={"HOME": str(tmp_path)}) as workbench:
        yield workbench._services


def publish(store: LayerStore, key: str = KEY, **changed: Any) -> Layer:
    """A layer that the request `r` led to. It ran short of memory an hour ago."""
    built = store.home.repositories / f"rooms/{key[:4]}"
    built.mkdir(parents=True)
    an_hour_ago = datetime.now(UTC) - timedelta(hours=1)
    fields: dict[str, Any] = {
        "key": key,
        "ecosystem": "python",
        "packages": (),
        "image_digest": "sha256:1",
        "platform": "linux",
        "runtime": "runc",
        "folder": key[:32],
        "bytes": 1,
        "files": 1,
        "built_at": an_hour_ago,
        "wall_time_s": 1.0,
        "shortage": Shortage(of=("memory",), tried_at=an_hour_ago),
    }
    layer = Layer(**fields | changed)
    store.publish(layer, built)
    resolve(store, key)
    return layer


def resolve(store: LayerStore, key: str) -> None:
    now = datetime.now(UTC)
    store.save_resolution(Resolution(request="r", layer=key, selection="", refused=(), accesses=(), resolved_at=now))


def add(services: Services, monkeypatch: pytest.MonkeyPatch, error: SandboxError, *, refresh: bool = False) -> Any:
    """Add the layer of the request `r`, whose build ends with `error`."""

    def fail(*_: object) -> NoReturn:
        raise error

    monkeypatch.setattr(layer_builds, "build_layer", fail)
    monkeypatch.setattr(layers, "_date_of", lambda _: datetime.now(UTC))
    monkeypatch.setattr(layers, "_find_request", lambda *_: (LayerSource(request="r"), LayerPlan({})))
    profile = services.policies.profiles["python"]
    return add_layers(services, SETUP, profile, TREE, Watch(), refresh=refresh)


@pytest.mark.parametrize("code", [ErrorCode.QUOTA_EXCEEDED, ErrorCode.POLICY_VIOLATION, ErrorCode.INTERNAL])
def test_a_further_build_that_fails_leaves_the_layer_in_use_and_counts(
    services: Services, monkeypatch: pytest.MonkeyPatch, code: ErrorCode
) -> None:
    """No check needed that build. Control: a person's `--refresh` ends with the error."""
    store = LayerStore(services.home)
    publish(store)
    assert [layer.key for layer in add(services, monkeypatch, SandboxError(code, "no")).layers] == [KEY]
    known = store.find(KEY)
    assert known is not None
    assert known.shortage is not None
    assert known.shortage.tries == 2
    assert store.find_complete("r") is not None
    with refused(code):
        add(services, monkeypatch, SandboxError(code, "no"), refresh=True)


def test_what_a_registry_lacks_is_named_by_each_run(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: an entry that is refused for another reason is not."""
    store = LayerStore(services.home)
    publish(store, shortage=None)
    entries = [RefusedEntry(text="tape@^9", reason=RefusalReason.ABSENT, origin="the registry")]
    entries.append(RefusedEntry(text="-x", reason=RefusalReason.OPTION, origin="package.json"))
    found = Resolution(
        request="r", layer=KEY, selection="", refused=tuple(entries), accesses=(), resolved_at=datetime.now(UTC)
    )
    store.save_resolution(found)
    monkeypatch.setattr(layers, "_find_request", lambda *_: (LayerSource(request="r"), LayerPlan({})))
    remarks: list[str] = []
    add_layers(services, SETUP, services.policies.profiles["node"], TREE, Watch(warn=remarks.append))
    assert ["tape@^9" in remark for remark in remarks] == [True]
    assert "-x" not in remarks[0]


def test_a_package_of_another_index_is_named_by_each_run(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: an option of a requirements file is no package."""
    store = LayerStore(services.home)
    publish(store, shortage=None)
    texts = (
        "mine = {'source': 'acme'}",
        "-e https://elsewhere.example/x",
        "--index-url x",
        "-i x",
        "--extra-index-url x",
    )
    entries = tuple(RefusedEntry(text=text, reason=RefusalReason.OPTION, origin="x") for text in texts)
    resolved = datetime.now(UTC)
    found = Resolution(request="r", layer=KEY, selection="", refused=entries, accesses=(), resolved_at=resolved)
    store.save_resolution(found)
    monkeypatch.setattr(layers, "_find_request", lambda *_: (LayerSource(request="r"), LayerPlan({})))
    remarks: list[str] = []
    setup = add_layers(services, SETUP, services.policies.profiles["python"], TREE, Watch(warn=remarks.append))
    assert setup.from_elsewhere == tuple(f"{text} (option)" for text in texts[:2])
    assert [all(one in remark for one in setup.from_elsewhere) for remark in remarks] == [True]
    assert setup.missing_packages


def test_what_is_larger_than_is_read_is_named_by_each_run(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LayerStore(services.home)
    publish(store, shortage=None)
    texts = {"more than 10000 entries": "yarn.lock", "m/package.json": "m/package.json"}
    entries = tuple(RefusedEntry(text=t, reason=RefusalReason.LIMIT, origin=origin) for t, origin in texts.items())
    resolved = datetime.now(UTC)
    found = Resolution(request="r", layer=KEY, selection="", refused=entries, accesses=(), resolved_at=resolved)
    store.save_resolution(found)
    monkeypatch.setattr(layers, "_find_request", lambda *_: (LayerSource(request="r"), LayerPlan({})))
    remarks: list[str] = []
    setup = add_layers(services, SETUP, services.policies.profiles["node"], TREE, Watch(warn=remarks.append))
    named = "yarn.lock (more than 10000 entries), m/package.json"
    assert setup.missing_packages == (f"not read, for it is larger or more than is read: {named}",)
    assert [named in remark for remark in remarks] == [True]


def test_a_further_build_of_other_archives_than_the_locked_ones_ends_the_run(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(LayerStore(services.home))
    with refused(ErrorCode.POLICY_VIOLATION):
        add(services, monkeypatch, SandboxError(ErrorCode.POLICY_VIOLATION, "no", reason=OTHER_HASH))


def test_a_complete_layer_is_not_in_the_way_of_an_error(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a build that was asked for."""
    publish(LayerStore(services.home), shortage=None)
    with refused(ErrorCode.QUOTA_EXCEEDED):
        add(services, monkeypatch, SandboxError(ErrorCode.QUOTA_EXCEEDED, "no"), refresh=True)


def test_each_run_names_what_its_layer_was_chosen_without(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    store, said = LayerStore(services.home), list[str]()
    publish(store, shortage=None)
    reasons = (RefusalReason.ABSENT, RefusalReason.UNFIT, RefusalReason.ANOTHER_VERSION)
    refused = tuple(RefusedEntry(text=f"{reason}@1", reason=reason, origin="x") for reason in reasons)
    resolved = datetime.now(UTC)
    store.save_resolution(
        Resolution(request="r", layer=KEY, selection="", refused=refused, accesses=(), resolved_at=resolved)
    )
    monkeypatch.setattr(layers, "_find_request", lambda *_: (LayerSource(request="r"), LayerPlan({})))
    for _ in range(2):
        add_layers(services, SETUP, services.policies.profiles["python"], TREE, Watch(warn=said.append))
    assert len(said) == 6
    assert [line.partition(": ")[2].split(".")[0] for line in said[:3]] == ["absent@1", "unfit@1", "another_version@1"]
    assert "no versions of the development packages fit together" in said[1]


def test_a_build_that_loses_another_package_waits_as_long_as_one_that_loses_the_same(services: Services) -> None:
    """So a busy host does not fetch and install for hours. Control: after a complete layer the first try is counted."""
    store, order = LayerStore(services.home), ("a", "b", "a")
    before = publish(store, shortage=None)
    tries: list[int] = []
    for name in order:
        complete = before.model_copy(update={"left_out": (f"{name}-1.tar.gz",), "built_at": datetime.now(UTC)})
        built = store.home.repositories / f"rooms/{len(tries)}"
        built.mkdir()
        known = store.find_resolved("r")
        layer = store.publish_unless_known(layer_builds._with_shortage(complete, ("memory",), known), built)
        resolve(store, layer.key)
        assert layer.shortage is not None
        tries.append(layer.shortage.tries)
    assert tries == [1, 2, 3]


@pytest.mark.parametrize("hours", [2, 0], ids=["idle", "in use"])
def test_gc_takes_a_short_layer_that_a_later_build_replaced(services: Services, hours: int) -> None:
    """Control: not the one that replaced it, nor one that a check was given a moment ago."""
    store = LayerStore(services.home)
    old, new = publish(store), publish(store, "b" * 64)
    for layer in (old, new):
        then = time.time() - 3600 * hours
        os.utime(store.tree(layer).with_name(f"{layer.folder}.lock"), (then, then))
    assert [layer.key for layer, _ in choose_unused(store, LayerSettings())] == ([old.key] if hours else [])


@pytest.mark.parametrize(
    ("missing", "refused_forks", "short_of"),
    [
        (("full-1.tar.gz",), 0, ("memory", "disk")),
        (("broken-1.tar.gz",), 0, ()),
        (("broken-1.tar.gz",), 1, ("processes",)),
        ((), 1, ()),
    ],
    ids=["short", "another one is", "by the kernel", "nothing is missing"],
)
def test_a_layer_is_short_of_what_its_missing_archives_ran_short_of(
    tmp_path: Path, missing: tuple[str, ...], refused_forks: int, short_of: tuple[str, ...]
) -> None:
    """Not of what one ran short of that a later round built."""
    lines = ["disk full-1.tar.gz", "memory full-1.tar.gz", "disk built-1.tar.gz", "processes", "x full-1.tar.gz"]
    (tmp_path / "short-of.txt").write_text("\n".join(lines))
    run: Any = SimpleNamespace(usage=SimpleNamespace(forks_refused=refused_forks))
    assert layer_builds.find_shortage(run, tmp_path, missing) == short_of
