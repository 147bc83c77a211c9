"""What the check of a Python project says about a build that failed, and which variables tests get; with a stand-in for
uv.
"""

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


NAMES = ("SETUPTOOLS_SCM_PRETEND_VERSION", "PBR_VERSION", "PDM_BUILD_SCM_VERSION", "UV_DYNAMIC_VERSIONING_BYPASS")
FACTS = dict.fromkeys(NAMES, "2.5") | {"SANDBOX_VERSION_VARIABLES": ",".join(NAMES)}
OTHERS = {"SANDBOX_VERSION_VARIABLES": ",".join(NAMES[1:])}


@pytest.mark.parametrize(
    ("given", "build", "test"),
    [
        ({}, "0.0.0 0.0.0 0.0.0 unset", "unset unset unset unset"),
        (FACTS, "2.5 2.5 2.5 2.5", "unset unset unset unset"),
        (FACTS | OTHERS | {NAMES[0]: ""}, " 2.5 2.5 2.5", " unset unset unset"),
        (FACTS | OTHERS, "2.5 2.5 2.5 2.5", "2.5 unset unset unset"),
        ({NAMES[0]: "7", NAMES[3]: "7"}, "7 0.0.0 0.0.0 7", "7 unset unset 7"),
    ],
    ids=["none", "facts", "an empty one", "the same one", "two of the operator"],
)
def test_the_version_that_a_build_gets_is_not_for_tests_unless_the_operator_set_it(
    given: dict[str, str], build: str, test: str, tmp_path: Path
) -> None:
    """Tests may be of the tools that read it, such as those of hatch-vcs."""
    project, bin_folder, layer = tmp_path / "project", tmp_path / "bin", tmp_path / "layer"
    for folder in (project, bin_folder, layer / "bin", layer / "lib/python3.11/site-packages"):
        folder.mkdir(parents=True)
    (project / "setup.py").write_text("")
    note = f'echo "{" ".join(f"${{{name}-unset}}" for name in NAMES)}" >{tmp_path}'
    uv = f"""#!/bin/sh
case "$*" in
venv*)
    for last; do :; done
    mkdir -p $last/bin $last/lib/python3.11/site-packages
    cp {bin_folder}/venv-python $last/bin/python ;;
build*) {note}/build ;;
esac
"""
    for name, text in (("uv", uv), ("venv-python", f"#!/bin/sh\n{note}/test\n")):
        (bin_folder / name).write_text(text)
        (bin_folder / name).chmod(0o755)
    text = (FOLDER / "sandbox-python-check").read_text().replace("/tmp/sandbox-python", f"{tmp_path}/work")
    (tmp_path / "check").write_text(text.replace("/usr/bin/python3 /usr/local", f"{sys.executable} /usr/local"))
    kept = {name: value for name, value in os.environ.items() if name not in FACTS}
    environ = kept | given | {"VIRTUAL_ENV": str(layer), "PATH": f"{bin_folder}:{os.environ['PATH']}"}
    argv = ["sh", str(tmp_path / "check"), "test"]
    done = subprocess.run(argv, cwd=project, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said = [(tmp_path / name).read_text().removesuffix("\n") for name in ("build", "test")]
    assert said == [build, test]
