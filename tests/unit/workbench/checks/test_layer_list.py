"""Which repositories and tasks use a layer."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from sandbox.cli.layer_tables import show_layers
from sandbox.models import Layer
from sandbox.store.home import Home
from sandbox.store.layers import LayerStore
from sandbox.workbench import home_operations
from sandbox.workbench.controller import startup
from sandbox.workbench.controller.services import Surface
from tests.unit.conftest import Upstream
from tests.unit.desk import Desk

KEY = "a" * 64


def test_a_build_of_a_repositorys_layers_cleans_up_after_a_killed_controller_first(
    upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be the same build that is asked for again. Control: a task's build did so before."""
    desk, seen = Desk(upstream, tmp_path / "home"), list[str]()
    surface = Surface(on_killed_controller=lambda _: seen.append("cleaned up"))
    services = replace(desk.workbench._services, surface=surface)
    monkeypatch.setattr(startup, "list_dead_controllers", lambda _: (SimpleNamespace(is_marked_failed=False),))
    for owner in (desk.task.id, desk.repo_id):
        services.presence.has_reconciled = False
        with home_operations.record_layers_build(services, owner, {}) as done:
            done(None)
    assert seen == ["cleaned up"] * 2


def test_a_layer_names_the_repositories_and_open_tasks_whose_checks_ran_with_it(
    upstream: Upstream, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    desk = Desk(upstream, tmp_path / "home")
    store = LayerStore(Home(desk.home))
    built = desk.home / "repositories" / "rooms" / "built"
    built.mkdir(parents=True)
    layer = Layer(
        key=KEY, ecosystem="python", packages=(), image_digest="sha256:1", platform="linux", runtime="runc",
        folder="f", bytes=10, files=1, built_at=datetime(2001, 2, 3, 12, tzinfo=UTC), wall_time_s=1.0,
    )  # fmt: skip
    store.publish(layer, built)
    assert [(one.repositories, one.tasks) for one in desk.workbench.layers()] == [((), 0)]

    closed = desk.workbench.create_task(desk.repo_id, "closed")
    for age, owner in enumerate((closed.id, desk.task.id, desk.repo_id, "removed-repository", "task-removed")):
        with store.use(KEY, owner):
            pass
        os.utime(desk.home / "repositories" / "dependencies" / "users" / KEY / owner, (1e9 - age, 1e9 - age))
    desk.workbench.close_task(closed.id)

    users = desk.workbench.layer(KEY).users
    assert [(user.repo_id, user.task_id) for user in users] == [(desk.repo_id, None), (desk.repo_id, desk.task.id)]
    assert users[0].used_at == datetime.fromtimestamp(1e9, UTC), "the closed task's, which is later than its own"
    found = desk.workbench.layers()
    assert [(one.repositories, one.tasks) for one in found] == [((desk.repo_id,), 1)]
    show_layers(found)
    shown = capsys.readouterr().out
    assert f"{desk.repo_id}, 1 task" in shown
    assert "2001-02-03" in shown, "its age"
