"""What the check of a Python project says about a build that failed, with a stand-in for uv."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[3] / "images" / "python"
UV = """#!/bin/sh
case "$*" in
*layer/bin/python*) echo "x.c:1:10: fatal error: ffi.h: No such file or directory"; exit 1 ;;
*) echo "no module named Cython" >&2; exit 1 ;;
esac
"""


@pytest.mark.parametrize(
    ("lacks", "status", "said", "unsaid"),
    [("", 1, "fatal error: ffi.h", "Cython"), ("Cython", 72, "Cython>=3 is not in the wheel-house", "ffi.h")],
)
def test_a_build_that_failed_with_all_its_requirements_says_what_it_printed(
    lacks: str, status: int, said: str, unsaid: str, tmp_path: Path
) -> None:
    """The layer's interpreter is tried first, then the image's, which lacks what only the layer has."""
    project, bin_folder, layer = tmp_path / "project", tmp_path / "bin", tmp_path / "layer"
    for folder in (project, bin_folder, layer / "bin"):
        folder.mkdir(parents=True)
    (project / "pyproject.toml").write_text("[build-system]\nrequires = ['Cython>=3']\n")
    declared = f"#!/bin/sh\n[ $2 = builds ] || exit 0\n[ -z '{lacks}' ] || echo '{lacks}>=3'\n"
    for path, text in ((bin_folder / "uv", UV), (layer / "bin/python", declared)):
        path.write_text(text)
        path.chmod(0o755)
    (bin_folder / "image-python").write_text("#!/bin/sh\n[ $2 != builds ] || echo 'Cython>=3'\n")
    (bin_folder / "image-python").chmod(0o755)
    text = (FOLDER / "sandbox-python-check").read_text().replace("/tmp/sandbox-python", f"{tmp_path}/work")
    text = text.replace("interpreter=${1:-/usr/bin/python3}", f"interpreter={bin_folder}/image-python")
    script = tmp_path / "check"
    script.write_text(text.replace("/usr/bin/python3", sys.executable))
    environ = os.environ | {"VIRTUAL_ENV": str(layer), "PATH": f"{bin_folder}:{os.environ['PATH']}"}
    argv = ["sh", str(script), "build"]
    done = subprocess.run(argv, cwd=project, env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, said in done.stderr, unsaid in done.stderr) == (status, True, False), done.stderr
