"""Which modules a `sandbox` command loads, and how many it may load (docs/architecture.md, "What a command loads")."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from dataclasses import dataclass

from devtools.command import SANDBOX

_LINE = re.compile(r"^import time:\s+\d+ \|\s+\d+ \|\s*(\S+)$", re.MULTILINE)
_BY_SITE = frozenset({"sitecustomize", "usercustomize"})
CLICK = frozenset({"click"})
MODELS = frozenset({"annotated_types", "pydantic", "pydantic_core", "typing_extensions", "typing_inspection"})
LOCKS = frozenset({"filelock"})


@dataclass(frozen=True)
class Budget:
    """`libraries`: the packages of others that a command may load. `ours`: how many modules of ours.

    Others' packages count as one, and Python's own not at all: their versions differ from machine to machine.
    """

    libraries: frozenset[str]
    ours: int


@dataclass(frozen=True)
class Loaded:
    """`libraries`: as in `Budget`. `ours`: names of our modules. `total`: modules of any origin."""

    code: int
    libraries: frozenset[str]
    ours: frozenset[str]
    total: int
    stdout: str


def find_loaded(*arguments: str) -> Loaded:
    """Run one command as a process of its own, and list what it loaded."""
    command = [*SANDBOX[:-2], "-X", "importtime", *SANDBOX[-2:], *arguments]
    done = subprocess.run(  # noqa: S603 - ours
        command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    names = set(_LINE.findall(done.stderr)) - _BY_SITE
    tops = {name.partition(".")[0] for name in names}
    return Loaded(
        done.returncode,
        frozenset(name for name in tops - sys.stdlib_module_names - {"sandbox"} if _is_library(name)),
        frozenset(name for name in names if name.partition(".")[0] == "sandbox"),
        len(names),
        done.stdout,
    )


def check_budget(loaded: Loaded, budget: Budget) -> str:
    """What is wrong; '' for nothing."""
    wrong = [f"loads {', '.join(found)}" if (found := sorted(loaded.libraries - budget.libraries)) else ""]
    if len(loaded.ours) > budget.ours:
        wrong.append(f"loads {len(loaded.ours)} modules of ours, its budget is {budget.ours}")
    return "; ".join(filter(None, wrong))


def _is_library(name: str) -> bool:
    """Not what Python only looked for, nor parts of Python and hooks of an environment, which begin with `_`."""
    return not name.startswith("_") and importlib.util.find_spec(name) is not None
