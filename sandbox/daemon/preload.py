"""Import, once, what commands import, so that forks of this process have it.

Some modules read the environment while they are imported. Which variables they read is recorded, so that no command
runs in a fork that would read other values by itself.
"""

from __future__ import annotations

import gc
import importlib
import os
import pkgutil
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sandbox
from sandbox.daemon.command_requests import Program, stamp_file
from sandbox.errors import ErrorCode, SandboxError
from sandbox.extras import find_extra

_NOT_FOR_COMMANDS = ("agent", "attack", "daemon", "filesystems", "testing", "__main__")
_LIBRARIES = (
    "docker",
    "filelock",
    "getpass",
    "http.client",
    "idna",
    "ipaddress",
    "packaging.requirements",
    "platformdirs",
    "regex",
    "requests",
    "rich.table",
    "rich.console",
    "secrets",
    "shlex",
    "structlog",
    "tenacity",
    "tomllib",
    "yaml",
)
"""Those that commands load late."""

_SET_BY_US = "PYDANTIC_DISABLE_PLUGINS"  # by each command

_RUNS_GIT = "sandbox.git.gitpython"
"""GitPython runs git when it is imported, with the whole environment."""


def preload(environment: Mapping[bytes, bytes]) -> Program:
    """Import everything that commands use. `environment`: of this process when it started.

    Raises: `internal` if an import started a thread, which no fork would have.
    """
    with _record_reads() as read:
        for name in _list_modules():
            _import(name)
        _build_models()
    if threading.active_count() != 1:
        raise SandboxError(ErrorCode.INTERNAL, "An import started a thread, so this process cannot be forked")
    gc.collect()
    gc.freeze()  # forks share these pages as long as no collection writes to them
    files = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    return Program(
        package=str(Path(sandbox.__file__).resolve().parent),
        environment=dict(environment),
        read=frozenset(map(os.fsencode, read - {_SET_BY_US})),
        file_encoding=sys.getfilesystemencoding(),
        files={name: stamp_file(name) for name in files if name and os.path.exists(name)},  # noqa: PTH110 - many
    )


def _list_modules() -> Iterator[str]:
    yield from _LIBRARIES
    for found in pkgutil.walk_packages(sandbox.__path__, "sandbox."):
        if found.name.split(".")[1] not in _NOT_FOR_COMMANDS and found.name != _RUNS_GIT:
            yield found.name


def _import(name: str) -> None:
    """Import a module, unless it needs an extra that is not installed: the command that needs it says so."""
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if find_extra(error) is None:
            raise


def _build_models() -> None:
    """Build the validators of our models, which otherwise each command builds at their first use."""
    from pydantic import BaseModel  # noqa: PLC0415 - while reads are recorded

    todo = list(BaseModel.__subclasses__())
    while todo:
        model = todo.pop()
        todo += model.__subclasses__()
        if model.__module__.startswith("sandbox."):
            model.model_rebuild(raise_errors=False)


@contextmanager
def _record_reads() -> Iterator[set[str]]:
    """Record the names that are read from `os.environ`: all its methods read through this one."""
    kind: Any = type(os.environ)
    original = kind.__getitem__
    names: set[str] = set()

    def read(environ: Any, name: str) -> str:
        if isinstance(name, str):
            names.add(name)
        return str(original(environ, name))

    kind.__getitem__ = read
    try:
        yield names
    finally:
        kind.__getitem__ = original
