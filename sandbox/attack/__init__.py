"""The known attacks as a suite that ships: `sandbox doctor --attack` runs it against this host, engine and policy.

Theory. That an attack fails is no proof of protection until the same attack succeeds where the protection is missing.
Each entry therefore plants the attack and runs a careless command on it (plain git, a naive writer, a container with
soft settings). This control must be hit, or the entry is void. Then the product does its work on the same files. The
runner looks for effects afterwards, independent of the product's answer: marks left by payloads, changed files outside
the worktree, a host's secret among git's objects.

Everything happens in a scratch directory with its own home, remote and operator; the user's repositories and
credentials are never opened. Entry ids are those of docs/threats.md; docs/attack.md explains how to read the result.
"""

from __future__ import annotations

from sandbox.attack.runner import attack
from sandbox.attack.selection import select
from sandbox.attack.threats import explain

__all__ = ["attack", "explain", "select"]
