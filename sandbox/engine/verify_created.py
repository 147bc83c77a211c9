"""Compare a created container with the request, before it is started.

An engine, a proxy before it, its plugins or its defaults may change or drop an option (a kernel without swap accounting
turns MemorySwap into -1 with a warning), and an image adds its own configuration. A container that differs is not
started.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from sandbox.engine.create_options import INHERITED_PREFIXES
from sandbox.errors import ErrorCode, SandboxError

_CAN_BE_EMPTY = (str, int, bool, list, dict)
_Same = Callable[[Any, Any], bool]


def find_differences(requested: Mapping[str, Any], inspected: Mapping[str, Any]) -> tuple[str, ...]:
    """List the fields of `GET /containers/{id}/json` that are not as requested or not safe; empty: all match."""
    config, host = inspected.get("Config") or {}, inspected.get("HostConfig") or {}
    wanted_host = requested["HostConfig"]
    wanted_config = {name: value for name, value in requested.items() if name != "HostConfig"}
    wrong = [f"Config.{name}" for name in _differing_fields(wanted_config, config, _CONFIG_RULES)]
    wrong += [f"HostConfig.{name}" for name in _differing_fields(wanted_host, host, _HOST_RULES)]
    if inspected.get("Image") != requested["Image"]:
        wrong.append("Image")
    if not _same_mounts(wanted_host["Mounts"], inspected.get("Mounts")):
        wrong.append("Mounts")
    if inspected.get("AppArmorProfile") == "unconfined":
        wrong.append("AppArmorProfile")
    return tuple(wrong)


def require_same_options(requested: Mapping[str, Any], inspected: Mapping[str, Any]) -> None:
    """Raises: `policy_violation`, with every field that is not as requested."""
    wrong = find_differences(requested, inspected)
    if wrong:
        raise difference_error(wrong, "\n".join(_evidence(name, inspected) for name in wrong))


def difference_error(wrong: Iterable[str], details: str) -> SandboxError:
    """A container that is not as requested. `wrong`: the fields."""
    return SandboxError(
        ErrorCode.POLICY_VIOLATION,
        f"The engine did not create the container as requested: {', '.join(wrong)}",
        details=details,
        hint="Config.*: the image sets an option that no guest may have. HostConfig.*: the engine or its "
        "host lacks a feature; `sandbox doctor` names it.",
    )


def _differing_fields(wanted: Mapping[str, Any], found: Mapping[str, Any], rules: Mapping[str, _Same]) -> list[str]:
    return [name for name, value in wanted.items() if not rules.get(name, _same)(value, found.get(name))]


def _same(wanted: Any, found: Any) -> bool:
    """Equal, or both empty: the engine may answer null for an empty list, and an empty list for null."""
    if _is_empty(wanted):
        return _is_empty(found)
    return type(wanted) is type(found) and bool(wanted == found)


def _is_empty(value: Any) -> bool:
    return value is None or (not value and type(value) in _CAN_BE_EMPTY)


def _same_env(wanted: list[str], found: Any) -> bool:
    """Our variables first and in order. An image may add others, except names that make programs start other code."""
    if not isinstance(found, list) or found[: len(wanted)] != wanted:
        return False
    ours = {entry.partition("=")[0] for entry in wanted}
    added = [str(entry).partition("=")[0] for entry in found[len(wanted) :]]
    return not any(name in ours or name.startswith(INHERITED_PREFIXES) for name in added)


def _same_labels(wanted: Mapping[str, str], found: Any) -> bool:
    """An image's labels are added; ours override them."""
    return isinstance(found, Mapping) and wanted.items() <= found.items()


def _same_health(wanted: Mapping[str, Any], found: Any) -> bool:
    """An image's intervals are added, and have no effect with NONE."""
    return isinstance(found, Mapping) and bool(found.get("Test") == wanted["Test"])


def _same_ulimits(wanted: list[dict[str, Any]], found: Any) -> bool:
    """The engine's default limits may be added, but must not replace ours."""
    if not isinstance(found, list):
        return False
    by_name = {limit.get("Name"): limit for limit in found}
    return len(by_name) == len(found) and all(by_name.get(limit["Name"]) == limit for limit in wanted)


def _same_requested_mounts(wanted: list[dict[str, Any]], found: Any) -> bool:
    """`ReadOnly: false` comes back as an absent key."""
    if not isinstance(found, list) or len(found) != len(wanted):
        return False
    return [_without_empty(mount) for mount in wanted] == [_without_empty(mount) for mount in found]


def _without_empty(mount: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in mount.items() if not _is_empty(value)}


def _same_mounts(wanted: list[dict[str, Any]], found: Any) -> bool:
    """The effective mounts are exactly the requested ones. An image's VOLUME appears only here."""
    if not isinstance(found, list):
        return False
    asked = [(m["Type"], m["Source"], m["Target"], not m["ReadOnly"], m["BindOptions"]["Propagation"]) for m in wanted]
    real = [(m.get("Type"), m.get("Source"), m.get("Destination"), m.get("RW"), m.get("Propagation")) for m in found]
    return len(asked) == len(real) and set(asked) == set(real)


def _evidence(name: str, inspected: Mapping[str, Any]) -> str:
    section, _, field = name.partition(".")
    value = inspected.get(section)
    return f"{name} = {str(value.get(field) if field and isinstance(value, Mapping) else value)[:400]}"


_CONFIG_RULES: dict[str, _Same] = {"Env": _same_env, "Labels": _same_labels, "Healthcheck": _same_health}
_HOST_RULES: dict[str, _Same] = {"Ulimits": _same_ulimits, "Mounts": _same_requested_mounts}
