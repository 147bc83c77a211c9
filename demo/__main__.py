"""`python -m demo`: exit status 0 when every step went as promised."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from demo.command import DemoError
from demo.inputs import load_projects
from demo.narrator import Narrator
from demo.stage import stage
from demo.story import play
from devtools.gitserver.server import GitServerError
from devtools.published import FetchError

FOLDER = Path(".demo")


def main() -> int:
    """Play the whole story."""
    narrator = Narrator()
    started = time.monotonic()
    projects = load_projects()
    narrator.say("Real projects from the public registries, fetched by pinned hash and served by a local git server.")
    try:
        with stage(FOLDER, projects) as set_up:
            narrator.say(f"To repeat a command yourself: export PATH=$PWD/.venv/bin:$PATH SANDBOX_HOME={FOLDER}/home")
            rows = play(set_up, projects, narrator)
    except (DemoError, FetchError, GitServerError) as error:
        sys.stderr.write(f"\nThe demo failed. {error}\n")
        return 1
    except KeyboardInterrupt:
        return 130
    narrator.table(rows)
    narrator.say(f"Everything went as promised in {time.monotonic() - started:.1f} s. The state is in {FOLDER}/home.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
