"""Ask the engine for the scripts beside this file: `version`, or which of some `image NAME...` it has.

Exit status 0 with the answer on stdout, or 1 with the reason on stderr.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from sandbox.config import load_settings
from sandbox.engine.connection import DockerEngine, connect
from sandbox.errors import SandboxError
from sandbox.store.home import default_home


def main(arguments: list[str]) -> int:
    """Connect as the product does and answer one question."""
    try:
        settings = load_settings(Path(default_home(os.environ)), os.environ)
        engine = connect(settings.engine.host, os.environ, settings.engine.timeout_s)
    except SandboxError as error:
        sys.stderr.write(f"{error.details or error.brief}\n")
        return 1
    version = f"{engine.version} at {engine.endpoint.url}"
    answer = version if arguments == ["version"] else _present(engine, arguments[1:])
    engine.close()
    sys.stdout.write(answer + "\n" if answer else "")
    return 0


def _present(engine: DockerEngine, names: list[str]) -> str:
    tags = {tag for image in engine.api.images() for tag in image.get("RepoTags") or ()}
    return " ".join(name for name in names if name in tags)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
