"""The known attacks as a suite that ships: `sandbox doctor --attack` runs it against this very host, engine and policy.

Theory. A test that shows an attack to fail proves nothing until the same attack is seen to succeed where the
protection is missing. Each entry therefore plants the attack, runs a careless command over it (plain git, a naive
writer, a container with soft settings), which must be hit or the entry is void, and then lets the product do its work
on the same ground. What counts as an effect is looked for afterwards, whatever the product said: marks left by
payloads, changed files outside of the worktree, a host's secret among git's objects.

Everything happens in a scratch directory with a home, a remote and an operator of its own; the user's repositories and
credentials are never opened. Entry ids are those of docs/threats.md; docs/attack.md says how to read the result.
"""

from __future__ import annotations

from sandbox.attack.runner import attack
from sandbox.attack.selection import select
from sandbox.attack.threats import explain

__all__ = ["attack", "explain", "select"]
