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
from collections.abc import Iterable, Iterator, Mapping, Set
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sandbox
from sandbox.daemon.command_requests import ModuleOrigin, Program
from sandbox.errors import ErrorCode, SandboxError
from sandbox.extras import find_extra

_NOT_FOR_COMMANDS = frozenset(
    {
        "sandbox.__main__",
        *("sandbox.agent", "sandbox.daemon", "sandbox.filesystems", "sandbox.testing"),
        *("sandbox.attack", "sandbox.cli.attacks", "sandbox.cli.doctor"),  # it always runs in its own process
        "sandbox.dependencies.bill_of_materials",  # one command that few need
        "sandbox.git.gitpython",  # it runs git when it is imported, with the whole environment
    }
)
_FOR_A_CLUSTER = frozenset({"sandbox.cluster", "sandbox.cli.cluster"})
"""18 MB, most of it the client of Temporal. A home without a cluster does without."""

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


def preload(home: Path, environment: Mapping[bytes, bytes]) -> Program:
    """Import everything that commands on this home use. `environment`: of this process when it started.

    Raises: `internal` if an import started a thread, which no fork would have.
    """
    with _record_reads() as read:
        for name in _LIBRARIES:
            importlib.import_module(name)
        _import_modules(sandbox.__path__, "sandbox.", _NOT_FOR_COMMANDS | _FOR_A_CLUSTER)
    names = _FOR_A_CLUSTER if _has_cluster(home) else ()
    with _record_reads() as read_for_cluster:
        for name in names:
            _import_with_all_below(name, _NOT_FOR_COMMANDS)
        _build_models()
    if threading.active_count() != 1:
        raise SandboxError(ErrorCode.INTERNAL, "An import started a thread, so this process cannot be forked")
    gc.collect()
    gc.freeze()  # forks share these pages as long as no collection writes to them
    package = Path(sandbox.__file__).resolve().parent
    files = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    return Program(
        package=str(package),
        environment=dict(environment),
        read=frozenset(map(os.fsencode, (read | read_for_cluster) - {_SET_BY_US})),
        file_encoding=sys.getfilesystemencoding(),
        origin=ModuleOrigin(package, filter(None, files)),
    )


def _has_cluster(home: Path) -> bool:
    """What the settings say now. A command that has others imports what it needs by itself."""
    from sandbox.config import load_settings  # noqa: PLC0415 - `preload` imported it and recorded its reads

    try:
        return bool(load_settings(home, os.environ).cluster.address)
    except SandboxError:  # each command reports it
        return False


def _import_modules(folders: Iterable[str], prefix: str, left_out: Set[str]) -> None:
    """Import the modules of a package; `pkgutil.walk_packages` would also import those left out, to look into them."""
    for found in pkgutil.iter_modules(folders, prefix):
        if found.name not in left_out:
            _import_with_all_below(found.name, left_out)


def _import_with_all_below(name: str, left_out: Set[str]) -> None:
    _import(name)
    _import_modules(getattr(sys.modules[name], "__path__", ()), f"{name}.", left_out)


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
