"""No text that Python makes of our objects contains a secret: objects end up in logs and in messages of assertions."""

from __future__ import annotations

import dataclasses
import importlib
import os
import pkgutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FunctionType, MethodType

import sandbox
from sandbox.models import WorkspaceKind, WorkspaceRequest
from sandbox.remotes import parse_remote
from sandbox.workbench import Workbench
from tests.unit.conftest import Upstream
from tests.unit.desk import Desk

IN_ENVIRONMENT, IN_STORE = "ghp_InTheEnvironment0123456789", "glpat-InTheStore0123456789"
_SECRET_NAMES = ("environ", "token", "secret", "passwd", "password", "api_key")
_NAMES_WITHOUT_SECRETS = {"passwd", "secret_file", "api_key_file", "token_file"}


def find_objects(start: object) -> Iterator[object]:
    """All objects of our classes that are reached from one."""
    pending, seen = [start], set[int]()
    while pending:
        found = pending.pop()
        if id(found) in seen or isinstance(found, (str, bytes, int, type, FunctionType)):
            continue
        seen.add(id(found))
        if isinstance(found, Mapping):
            pending += [*found.values()]
        elif isinstance(found, (list, tuple, set, frozenset)):
            pending += [*found]
        elif isinstance(found, MethodType):
            pending.append(found.__self__)
        elif type(found).__module__.startswith("sandbox"):
            yield found
            pending += [*getattr(found, "__dict__", {}).values()]


def open_everything(desk: Desk, workbench: Workbench) -> list[object]:
    """The controller, its parts, what they give out, and a workspace of each kind."""
    services = workbench._services
    workbench.set_credential("gitlab.com", username="x", secret=IN_STORE)
    hints = {WorkspaceKind.LOCAL: str(desk.upstream.root), WorkspaceKind.EPHEMERAL: "scratch"}
    workspaces = [
        workbench.acquire_workspace(kind, WorkspaceRequest(hint=hints.get(kind, desk.repo_id)))
        for kind in WorkspaceKind
    ]
    accesses = [services.remotes.get_access(parse_remote(f"https://{host}.com/o/n")) for host in ("github", "gitlab")]
    assert [a.credential.secret.get_secret_value() for a in accesses if a.credential] == [IN_ENVIRONMENT, IN_STORE]
    parts = [services.credentials.keyring, services.policies, services.repositories.open(desk.repo_id)]
    return [workbench, workbench.settings, workspaces, accesses, parts, workbench.acting(workbench.caller)]


def test_s209_the_text_of_no_object_contains_a_secret(upstream: Upstream, tmp_path: Path) -> None:
    desk = Desk(upstream, tmp_path / "home")
    (tmp_path / "home" / "config.toml").write_text('[credentials]\nstore = "file"\n')
    environ = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], "GITHUB_TOKEN": IN_ENVIRONMENT}
    with Workbench(tmp_path / "home", environ=environ, allow_file=True) as workbench:
        found = list(find_objects(open_everything(desk, workbench)))
        names = {type(each).__name__ for each in found}
        assert {"Services", "CredentialStore", "RemoteAccess", "Credential", "FolderWorkspace", "TaskFolder"} <= names
        shown = {type(each).__name__ for each in found for text in (repr(each), str(each)) if _has_secret(text)}
    assert shown == set()


def _has_secret(text: str) -> bool:
    return IN_ENVIRONMENT in text or IN_STORE in text


def test_no_class_shows_a_field_that_is_named_as_a_secret() -> None:
    """Also of objects that the test above does not reach."""
    for module in pkgutil.walk_packages(sandbox.__path__, "sandbox."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    classes = {
        each
        for name, module in list(sys.modules.items())
        if name.partition(".")[0] == "sandbox"
        for each in vars(module).values()
        if isinstance(each, type) and dataclasses.is_dataclass(each)
    }
    shown = [
        f"{each.__module__}.{each.__qualname__}.{field.name}"
        for each in classes
        for field in dataclasses.fields(each)
        if field.repr and field.name not in _NAMES_WITHOUT_SECRETS and any(name in field.name for name in _SECRET_NAMES)
    ]
    assert sorted(shown) == []
