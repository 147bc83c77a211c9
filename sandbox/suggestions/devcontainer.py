"""`devcontainer.json` (containers.dev): packages of its features, variables, and commands."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from sandbox.suggestions import json_comments
from sandbox.suggestions.draft import JobStep, SuggestionDraft

_COMMANDS = ("onCreateCommand", "updateContentCommand", "postCreateCommand")
_PACKAGES_FEATURE = "/apt-packages"
_OF_THE_HOST = [
    "appPort",
    "capAdd",
    "containerUser",
    "dockerComposeFile",
    "forwardPorts",
    "gpu",
    "hostRequirements",
    "initializeCommand",
    "mounts",
    "overrideCommand",
    "postAttachCommand",
    "postStartCommand",
    "privileged",
    "remoteUser",
    "runArgs",
    "runServices",
    "secrets",
    "securityOpt",
    "service",
    "userEnvProbe",
    "workspaceFolder",
    "workspaceMount",
]


def read_devcontainer(draft: SuggestionDraft, text: str) -> None:
    """Add what the file suggests. Raises: ValueError for no valid JSON."""
    document = json_comments.loads(text)
    if not isinstance(document, dict):
        raise ValueError("no JSON object")
    _note_container(draft, document)
    for name, options in _items(document.get("features")):
        _read_feature(draft, name, options)
    for field in ("containerEnv", "remoteEnv"):
        for name, value in _items(document.get(field)):
            draft.add_variable(name, value)
    for field in _COMMANDS:
        for script in _scripts(document.get(field)):
            draft.add_script(script, JobStep(field.removesuffix("Command")))


def _note_container(draft: SuggestionDraft, document: Mapping[str, object]) -> None:
    for name in ("image", "build", "dockerFile"):
        if name in document:
            value = document[name]
            draft.note(f"{name} {value if isinstance(value, str) else ''}".strip(), "the image is yours to choose")
    for name in _OF_THE_HOST:
        if name in document:
            draft.note(name, "options of the container are not taken from a repository")


def _items(value: object) -> list[tuple[str, object]]:
    return list(value.items()) if isinstance(value, dict) else []


def _read_feature(draft: SuggestionDraft, name: str, options: object) -> None:
    packages = options.get("packages") if isinstance(options, dict) else None
    if name.partition(":")[0].rpartition("@")[0] or not name.split(":")[0].endswith(_PACKAGES_FEATURE):
        return draft.note(f"feature {name}", "a feature is a program of others that runs as root with a network")
    for package in packages.replace(",", " ").split() if isinstance(packages, str) else ():
        draft.add_package(package)
    return None


def _scripts(value: object) -> list[object]:
    """A command is a line for a shell, a list of words, or a map of several."""
    if value is None:
        return []
    if isinstance(value, dict):
        return [script for each in value.values() if not isinstance(each, dict) for script in _scripts(each)]
    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        return [shlex.join(value)]
    return [value]
