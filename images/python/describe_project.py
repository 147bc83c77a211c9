"""Ask the build back-end of the project in the current directory for its metadata: `describe_project.py FILE`.

It runs code of the project, so it runs in a guest without a network; what is written to FILE is data for the host.
"""

import importlib
import shutil
import sys
import tempfile
import tomllib
from functools import reduce
from pathlib import Path


def main(target: str) -> None:
    """Write the METADATA of the wheel that would be built."""
    pyproject = Path("pyproject.toml")
    tables = tomllib.loads(pyproject.read_text(encoding="utf-8")) if pyproject.is_file() else {}
    build = tables.get("build-system", {})
    sys.path[:1] = build.get("backend-path", [])  # instead of the folder of this program
    module, _, names = build.get("build-backend", "setuptools.build_meta:__legacy__").partition(":")
    back_end = reduce(getattr, filter(None, names.split(".")), importlib.import_module(module))
    with tempfile.TemporaryDirectory() as folder:
        info = back_end.prepare_metadata_for_build_wheel(folder)
        shutil.copyfile(Path(folder, info, "METADATA"), target)


if __name__ == "__main__":
    main(sys.argv[1])
