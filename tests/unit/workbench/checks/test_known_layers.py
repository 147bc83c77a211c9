from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sandbox.dependencies.layer_plan import ProjectDescription
from sandbox.errors import ErrorCode
from sandbox.git.process import Git
from sandbox.models import Actor
from sandbox.workbench import Watch, Workbench
from sandbox.workbench.checks.guest_setup import GuestSetup
from sandbox.workbench.checks.layers import _find_request, add_layers
from sandbox.workbench.repositories.commit_facts import TreeSource
from sandbox.workbench.repositories.repository_settings import AddedFiles
from tests.unit.conftest import Upstream, refused

SETUP = GuestSetup("sha256:" + "0" * 64, "runc")
TREE: Any = TreeSource("local-1", None, "0" * 40, "0" * 40)  # type: ignore[arg-type]  # nothing of it is read
LOGIN = {"PIP_INDEX_URL": "https://me:hunter2@registry.test/simple"}


def add(home: Path, fetch: str, actor: Actor = Actor.CLI) -> GuestSetup:
    environ, settings = {"HOME": str(home), **LOGIN}, {"layers": {"fetch": fetch}}
    with Workbench(home / "home", environ=environ, settings=settings, actor=actor) as workbench:
        services = workbench._services
        return add_layers(services, SETUP, services.policies.profiles["python"], TREE, Watch())


def test_a_registry_that_needs_a_password_is_refused_with_a_remedy(tmp_path: Path) -> None:
    with refused(ErrorCode.INVALID_INPUT) as raised:
        add(tmp_path, "auto")
    error = raised.value
    assert "hunter2" not in error.brief + error.details + error.hint
    assert "a mirror of yours" in error.hint


@pytest.mark.parametrize(("fetch", "actor"), [("never", Actor.CLI), ("auto", Actor.AGENT)], ids=["never", "agent"])
def test_it_does_no_harm_where_nothing_is_fetched(tmp_path: Path, fetch: str, actor: Actor) -> None:
    assert add(tmp_path, fetch, actor) == SETUP


def test_s206_what_a_project_says_in_a_room_is_kept_for_rooms_with_the_same_files(
    upstream: Upstream, tmp_path: Path
) -> None:
    """Its `setup.py` may read a requirement out of a submodule. Control: the same files are asked once."""
    upstream.write(
        "setup.py", b"from setuptools import setup\nsetup(install_requires=open('lib/needs').read().split())\n"
    )
    commit = upstream.commit()
    tree = TreeSource("local-1", Git(upstream.git_dir), upstream.oid(f"{commit}^{{tree}}"), commit)
    urls = ("https://h/a/b", "https://h/a/c")
    choices = (AddedFiles(), AddedFiles(urls), AddedFiles(urls, submodules_with_lfs=urls[:1]), AddedFiles(lfs=True))
    asked = list[AddedFiles]()
    with Workbench(tmp_path / "home", environ={"HOME": str(tmp_path)}) as workbench:
        services = workbench._services
        (rule,) = services.policies.profiles["python"].layers
        for added in (*choices, *choices):

            def describe(_: ProjectDescription, added: AddedFiles = added) -> str:
                asked.append(added)
                return f"Name: x\nRequires-Dist: package{len(asked)}\n"

            found, _ = _find_request(services, replace(SETUP, added=added), rule, tree, describe)
            assert f"package{choices.index(added) + 1}" in found.described
    assert asked == list(choices)
