"""Use-case: list every rule in force, with the file or variable that it comes from."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel

from sandbox.config import find_resources, load_settings_with_sources
from sandbox.document_errors import parse_toml
from sandbox.models import PolicyRule
from sandbox.policy import commit, container
from sandbox.policy.writes import PathPolicy
from sandbox.store.home import Home
from sandbox.store.journal_chain import sha256
from sandbox.store.records import not_found_error
from sandbox.workbench.controller.services import Services

PolicyName: TypeAlias = Literal["container", "commit", "paths", "approvals", "settings"]
RuleValue: TypeAlias = bool | int | float | str | tuple[str, ...]

_FIXED_RULES = {
    "capabilities": "none",
    "devices": "none",
    "network": "none",
    "no_new_privileges": True,
    "read_only_root": True,
}
"""Rules that no file can change (docs/hardening.md)."""
_USER_IN_URL = re.compile(r"(?<=://)\S*@|^[^\s/@:]*:(?!//)\S*@")  # greedy: a password may hold / and @


def list_rules(services: Services, name: str | None) -> tuple[PolicyRule, ...]:
    """Rules of all policies, or of one. Raises: `not_found`; the policy's error when an operator's file is invalid."""
    if name is not None and name not in _RULES_BY_POLICY:
        raise not_found_error("policy", name, _RULES_BY_POLICY, "`sandbox policy show` shows all of them.")
    return tuple(rule for known, find in _RULES_BY_POLICY.items() if name in {None, known} for rule in find(services))


@dataclass(frozen=True)
class _PolicyFiles:
    """The shipped file and the operator's file of one policy."""

    policy: PolicyName
    shipped: Path
    operator: Path

    def build_rule(self, key: str, value: RuleValue, *, is_operator: bool) -> PolicyRule:
        source = self.operator if is_operator else self.shipped
        origin: Literal["operator", "built-in"] = "operator" if is_operator else "built-in"
        return PolicyRule(policy=self.policy, key=key, value=value, origin=origin, source=str(source))


def _find_policy_files(home: Home, policy: PolicyName) -> _PolicyFiles:
    name = f"{policy}.toml"
    return _PolicyFiles(policy, find_resources("policies") / name, home.root / "policies" / name)


def _flatten(model: BaseModel | Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, RuleValue]]:
    """Key and value pairs; keys of nested tables are joined with dots."""
    document = model.model_dump(mode="json") if isinstance(model, BaseModel) else model
    for key, value in document.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", tuple(map(str, value)) if isinstance(value, (list, tuple)) else value


def _container_rules(services: Services) -> Iterator[PolicyRule]:
    files = _find_policy_files(services.home, "container")
    own = dict(_flatten(container.read_operator_container_policy(files.operator))) if files.operator.exists() else {}
    for key, value in _FIXED_RULES.items():
        yield PolicyRule(policy="container", key=key, value=value, origin="built-in")
    for key, value in _flatten(services.policies.container.container):
        yield files.build_rule(key, value, is_operator=key in own)
    digest = sha256(services.policies.container.seccomp_json.encode())
    yield files.build_rule("seccomp (in force)", digest, is_operator="seccomp_deny" in own)


def _commit_rules(services: Services) -> Iterator[PolicyRule]:
    files, policy = _find_policy_files(services.home, "commit"), services.policies.commits
    shipped = commit.load_commit_policy(files.shipped.parent)
    for field in ("names", "suffixes", "folders"):
        for value in sorted(getattr(policy, field)):
            yield files.build_rule(field, value, is_operator=value not in getattr(shipped, field))
    for what, start in sorted(policy.magic.items()):
        yield files.build_rule(f"magic.{what}", start, is_operator=shipped.magic.get(what) != start)
    yield from (rule for rule in _settings_rules(services, "commit") if rule.key == "max_file_bytes")


def _path_rules(services: Services) -> Iterator[PolicyRule]:
    files, policy = _find_policy_files(services.home, "paths"), services.policies.paths
    own = PathPolicy.model_validate(_read_toml(files.operator)) if files.operator.exists() else PathPolicy()
    names = {rule.name for rule in own.rules}
    for key, value in _flatten(policy.limits):
        yield files.build_rule(f"limits.{key}", value, is_operator=key in own.limits.model_fields_set)
    for rule in policy.rules:
        yield files.build_rule(f"rule.{rule.name}.{rule.action}", tuple(rule.paths), is_operator=rule.name in names)
    for exception in policy.repositories:
        about = f"repository.{','.join(exception.match)}"
        for action, globs in (("allow", exception.allow), ("deny", exception.deny)):
            if globs:
                yield files.build_rule(f"{about}.{action}", tuple(globs), is_operator=exception in own.repositories)


def _approval_rules(services: Services) -> Iterator[PolicyRule]:
    files, policy = _find_policy_files(services.home, "approvals"), services.policies.approvals
    own = dict(_flatten(_read_toml(files.operator))) if files.operator.exists() else {}
    for key, value in _flatten(policy.model_dump(mode="json", exclude_none=True)):
        yield files.build_rule(key, value, is_operator=key in own)


def _read_toml(path: Path) -> dict[str, Any]:
    """Read a file that has been loaded before, so it is valid."""
    return parse_toml(path.read_text(encoding="utf-8"))


def _settings_rules(services: Services, section: str = "") -> Iterator[PolicyRule]:
    found = load_settings_with_sources(services.home.root, services.environ, services.flags)
    for key, (value, source) in found.items():
        if section and not key.startswith(f"{section}."):
            continue
        policy: PolicyName = "commit" if section else "settings"
        shown = key.removeprefix(f"{section}.") if section else key
        yield PolicyRule(
            policy=policy, key=shown, value=_mask_url_user(value), origin=_classify_source(source), source=source
        )


def _mask_url_user(value: object) -> RuleValue:
    """Replace the user part of URLs: it may hold a password."""
    if isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, (list, tuple)):
        return tuple(str(_mask_url_user(each)) for each in value)
    return _USER_IN_URL.sub("***@", str(value or ""))


def _classify_source(source: str) -> Literal["built-in", "config", "environment", "program"]:
    if source in {"", "flags"}:
        return "program" if source else "built-in"
    return "environment" if source.startswith("SANDBOX_") else "config"


_RULES_BY_POLICY: dict[str, Callable[[Services], Iterator[PolicyRule]]] = {
    "container": _container_rules,
    "commit": _commit_rules,
    "paths": _path_rules,
    "approvals": _approval_rules,
    "settings": _settings_rules,
}
