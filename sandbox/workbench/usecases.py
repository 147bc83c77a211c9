"""The use-cases by name, each module loaded at its first use: a command pays for what it needs (docs/adr/0003)."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a new use-case is one more name
    from sandbox.workbench import approving as approving
    from sandbox.workbench import auditing as auditing
    from sandbox.workbench import background as background
    from sandbox.workbench import checking as checking
    from sandbox.workbench import checklist as checklist
    from sandbox.workbench import cleaning as cleaning
    from sandbox.workbench import delivery as delivery
    from sandbox.workbench import diagnosing as diagnosing
    from sandbox.workbench import edits as edits
    from sandbox.workbench import following as following
    from sandbox.workbench import history as history
    from sandbox.workbench import keys as keys
    from sandbox.workbench import log_lines as log_lines
    from sandbox.workbench import mapping as mapping
    from sandbox.workbench import outside as outside
    from sandbox.workbench import policies as policies
    from sandbox.workbench import pulls as pulls
    from sandbox.workbench import reading as reading
    from sandbox.workbench import reconciling as reconciling
    from sandbox.workbench import recording as recording
    from sandbox.workbench import removal as removal
    from sandbox.workbench import repositories as repositories
    from sandbox.workbench import searching as searching
    from sandbox.workbench import snapshots as snapshots
    from sandbox.workbench import states as states
    from sandbox.workbench import stopping as stopping
    from sandbox.workbench import tasks as tasks
    from sandbox.workbench import trusting as trusting
    from sandbox.workbench import verifying as verifying
else:

    def __getattr__(name: str) -> ModuleType:
        if name.startswith("_"):
            raise AttributeError(name)
        return importlib.import_module(f"sandbox.workbench.{name}")
