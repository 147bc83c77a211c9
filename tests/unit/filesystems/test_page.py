"""The program of docs/filesystems.md runs, and prints what it should."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox import Workbench
from tests.unit.conftest import Upstream


def test_the_program_of_the_page_runs(upstream: Upstream, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    upstream.write("README", b"read me\n")
    upstream.commit()
    home, out = tmp_path / "home", tmp_path / "out"
    with Workbench(home, environ={}, allow_file=True) as workbench:
        repo_id = workbench.clone(str(upstream.root)).repository.id
    page = (Path(__file__).parents[3] / "docs" / "filesystems.md").read_text()
    program = page.split("```python\n")[1].split("```")[0].replace("Workbench(HOME)", "Workbench(HOME, environ={})")
    exec(compile(program, "filesystems.md", "exec"), {"HOME": home, "REPO": repo_id, "FOLDER": str(out)})  # noqa: S102
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "['code', 'out', 'scratch'] ['notes/today.txt']"
    assert len(shown[1]) == 40
    assert (out / "today.txt").read_bytes() == b"draft\n"
