"""How a check uses the cache of compiled files: what its guest gets, and what its run records. Pure (docs/adr/0109)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Literal

from sandbox.engine.create_options import PATH, LayerMount
from sandbox.lazy_dataclass import dataclass

CACHE_TARGET = PurePosixPath("/sandbox-ccache")
"""Where a guest finds the cache, read-only."""

FILL_FOLDER = ".ccache"
"""In the report directory of a check: what its compilers add."""

_COMPILERS = f"/usr/lib/ccache:{PATH}"  # Debian's ccache has its names for compilers there; without it, no change
_REPORT = PurePosixPath("/report")  # `mounts.report` of the policy, which is fixed
_TEMPORARY = "/tmp/.ccache"  # noqa: S108  # the guest's own tmpfs


@dataclass(frozen=True)
class CompilerCacheUse:
    """`reads`: a filled cache that is mounted read-only; `repo_id`: the repository whose default branch filled it.
    `fills`: what the check compiles is kept for others. Never both: what is filled was compiled from scratch.
    """

    reads: Path | None = None
    repo_id: str = ""
    fills: bool = False

    @property
    def word(self) -> Literal["read", "filled"] | None:
        """As the run records it."""
        return "read" if self.reads is not None else "filled" if self.fills else None

    @property
    def mounts(self) -> tuple[LayerMount, ...]:
        """What its guest gets in addition, read-only."""
        return () if self.reads is None else (LayerMount(self.reads, CACHE_TARGET),)

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables of its checks, unless a check sets them itself."""
        if self.reads is not None:
            where = {"CCACHE_DIR": str(CACHE_TARGET), "CCACHE_READONLY": "1", "CCACHE_NOSTATS": "1"}
        elif self.fills:
            where = {"CCACHE_DIR": str(_REPORT / FILL_FOLDER), "CCACHE_MAXSIZE": "2G"}
        else:
            return {}
        return {"PATH": _COMPILERS, "CCACHE_TEMPDIR": _TEMPORARY, **where}


NO_COMPILER_CACHE = CompilerCacheUse()
