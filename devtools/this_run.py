"""Tell what this run of pytest has on the machine from what other runs and users of the product have."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path

from devtools.privateengine import PrivateEngine
from devtools.privatepodman import PrivatePodman
from sandbox.attack.harness import scratch

_OUTSIDE = (PrivateEngine.prefix, PrivatePodman.prefix, scratch.PREFIX, "sandbox-test-")
"""What tests have in the machine's temporary directory: sockets need short paths, other users need open folders."""


def is_of_this_run(place: str, base: Path) -> bool:
    """Whether a path is in a directory of this run. `base`: where pytest keeps the directories of its tests.

    Directories that tests have outside it are known by the starts of their names only, so those of a run at the same
    time count too.
    """
    path = Path(place)
    if any(path.is_relative_to(folder) for folder in (base, base.resolve())):
        return True
    outside = Path(tempfile.gettempdir()).resolve()
    return path.is_relative_to(outside) and path != outside and path.relative_to(outside).parts[0].startswith(_OUTSIDE)


def may_be_of_this_run(sources: Iterable[str], base: Path) -> bool:
    """Whether a container may be of this run. `sources`: the host's paths that it mounts.

    One that mounts none, such as one out of which PID 1 is copied, does not show whose it is: it counts.
    """
    named = [source for source in sources if source]
    return not named or any(is_of_this_run(source, base) for source in named)
