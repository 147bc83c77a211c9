"""Two remotes whose ids read the same: each keeps a clone and a name of its own."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sandbox.git.cache_clones import refresh
from sandbox.models import Repository
from sandbox.remotes import Remote
from sandbox.store.records import save_repository
from sandbox.workbench.controller.services import Services, build_services
from sandbox.workbench.repositories.clone import choose_repo_id
from tests.unit.conftest import Upstream, access_to


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    made = build_services(tmp_path / "home", {}, allow_file=True)
    yield made
    made.close()


def cloned(services: Services, upstream: Upstream, remote: Remote) -> None:
    """Its clone, from a directory, and no entry in the registry: as of a command that was killed in between."""
    access = access_to(str(upstream.root), services.home.known_hosts)
    whose = replace(access.remote, hostname=remote.hostname, owner=remote.owner, name=remote.name)
    refresh(services.home.clone(remote.id), replace(access, remote=whose))


def registered(services: Services, remote: Remote, repo_id: str) -> None:
    entry = Repository(
        id=repo_id, remote_url=remote.url, host=remote.host, hostname=remote.hostname, owner=remote.owner,
        name=remote.name, default_branch="main", profile="generic", created_at=datetime.now(UTC),
    )  # fmt: skip
    save_repository(services.home, entry)


def test_whoever_comes_second_gets_another_name_and_keeps_it(services: Services, upstream: Upstream) -> None:
    upstream.write("f", b"one\n")
    upstream.commit()
    first, second = (services.remotes.parse(f"https://github.com/{path}") for path in ("a/b-c", "a-b/c"))
    assert first.id == second.id == choose_repo_id(services.home, second), "void: they do not read the same"

    cloned(services, upstream, first)
    other = choose_repo_id(services.home, second)
    assert choose_repo_id(services.home, first) == first.id
    assert re.fullmatch(rf"{re.escape(first.id)}-[0-9a-f]{{8}}", other)

    registered(services, second, other)
    registered(services, first, first.id)
    assert (choose_repo_id(services.home, first), choose_repo_id(services.home, second)) == (first.id, other)
    shutil.rmtree(services.home.clone(first.id))
    (services.home.repositories / "registry.json").unlink()
    registered(services, second, other)
    assert choose_repo_id(services.home, second) == other, "it is registered once"
