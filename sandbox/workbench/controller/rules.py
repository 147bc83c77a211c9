"""Use-case: list every rule in force, with the file or variable that it comes from."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel

from sandbox.config import resources, settings_in_force
from sandbox.models import PolicyRule
from sandbox.policy import commit, container
from sandbox.policy.writes import PathPolicy
from sandbox.store.journal_chain import sha256
from sandbox.store.records import near
from sandbox.workbench.controller.services import Parts

Name: TypeAlias = Literal["container", "commit", "paths", "approvals", "settings"]
Value: TypeAlias = bool | int | float | str | tuple[str, ...]

_ALWAYS = {
    "capabilities": "none",
    "devices": "none",
    "network": "none",
    "no_new_privileges": True,
    "read_only_root": True,
}
"""Rules that no file can change (docs/hardening.md)."""
_USER_IN_URL = re.compile(r"(?<=://)\S*@|^[^\s/@:]*:(?!//)\S*@")  # greedy: a password may hold / and @


def rules(services: Parts, name: str | None) -> tuple[PolicyRule, ...]:
    """Rules of all policies, or of one. Raises: `not_found`; the policy's error when an operator's file is invalid."""
    if name is not None and name not in _TABLE:
        raise near("policy", name, _TABLE, "`sandbox policy show` shows all of them.")
    return tuple(rule for known, find in _TABLE.items() if name in {None, known} for rule in find(services))


@dataclass(frozen=True)
class _Files:
    """The shipped file and the operator's file of one policy."""

    policy: Name
    shipped: Path
    own: Path

    def rule(self, key: str, value: Value, *, is_own: bool) -> PolicyRule:
        source = self.own if is_own else self.shipped
        origin: Literal["operator", "built-in"] = "operator" if is_own else "built-in"
        return PolicyRule(policy=self.policy, key=key, value=value, origin=origin, source=str(source))


def _files(services: Parts, policy: Name) -> _Files:
    name = f"{policy}.toml"
    return _Files(policy, resources("policies") / name, services.home.root / "policies" / name)


def _flat(model: BaseModel | Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Value]]:
    """Key and value pairs; keys of nested tables are joined with dots."""
    document = model.model_dump(mode="json") if isinstance(model, BaseModel) else model
    for key, value in document.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", tuple(map(str, value)) if isinstance(value, (list, tuple)) else value


def _container(services: Parts) -> Iterator[PolicyRule]:
    files = _files(services, "container")
    own = dict(_flat(container.read_own(files.own))) if files.own.exists() else {}
    for key, value in _ALWAYS.items():
        yield PolicyRule(policy="container", key=key, value=value, origin="built-in")
    for key, value in _flat(services.policy.container):
        yield files.rule(key, value, is_own=key in own)
    digest = sha256(services.policy.seccomp_json.encode())
    yield files.rule("seccomp (in force)", digest, is_own="seccomp_deny" in own)


def _commit(services: Parts) -> Iterator[PolicyRule]:
    files, policy = _files(services, "commit"), services.commit_policy
    shipped = commit.load_commit_policy(files.shipped.parent)
    for field in ("names", "suffixes", "folders"):
        for value in sorted(getattr(policy, field)):
            yield files.rule(field, value, is_own=value not in getattr(shipped, field))
    for what, start in sorted(policy.magic.items()):
        yield files.rule(f"magic.{what}", start, is_own=shipped.magic.get(what) != start)
    yield from (rule for rule in _settings(services, "commit") if rule.key == "max_file_bytes")


def _paths(services: Parts) -> Iterator[PolicyRule]:
    files, policy = _files(services, "paths"), services.paths
    own = PathPolicy.model_validate(_toml(files.own)) if files.own.exists() else PathPolicy()
    names = {rule.name for rule in own.rules}
    for key, value in _flat(policy.limits):
        yield files.rule(f"limits.{key}", value, is_own=key in own.limits.model_fields_set)
    for rule in policy.rules:
        yield files.rule(f"rule.{rule.name}.{rule.action}", tuple(rule.paths), is_own=rule.name in names)
    for exception in policy.repositories:
        about = f"repository.{','.join(exception.match)}"
        for action, globs in (("allow", exception.allow), ("deny", exception.deny)):
            if globs:
                yield files.rule(f"{about}.{action}", tuple(globs), is_own=exception in own.repositories)


def _approvals(services: Parts) -> Iterator[PolicyRule]:
    files = _files(services, "approvals")
    own = dict(_flat(_toml(files.own))) if files.own.exists() else {}
    for key, value in _flat(services.approval_policy):
        yield files.rule(key, value, is_own=key in own)


def _toml(path: Path) -> dict[str, Any]:
    """Read a file that has been loaded before, so it is valid."""
    return tomllib.loads(path.read_text(encoding="utf-8"))


def _settings(services: Parts, section: str = "") -> Iterator[PolicyRule]:
    found = settings_in_force(services.home.root, services.environ, services.flags)
    for key, (value, source) in found.items():
        if section and not key.startswith(f"{section}."):
            continue
        policy: Name = "commit" if section else "settings"
        shown = key.removeprefix(f"{section}.") if section else key
        yield PolicyRule(policy=policy, key=shown, value=_shown(value), origin=_origin(source), source=source)


def _shown(value: object) -> Value:
    """Replace the user part of URLs: it may hold a password."""
    if isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, (list, tuple)):
        return tuple(str(_shown(each)) for each in value)
    return _USER_IN_URL.sub("***@", str(value or ""))


def _origin(source: str) -> Literal["built-in", "config", "environment", "program"]:
    if source in {"", "flags"}:
        return "program" if source else "built-in"
    return "environment" if source.startswith("SANDBOX_") else "config"


_TABLE: dict[str, Callable[[Parts], Iterator[PolicyRule]]] = {
    "container": _container,
    "commit": _commit,
    "paths": _paths,
    "approvals": _approvals,
    "settings": _settings,
}
