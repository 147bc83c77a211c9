"""Images on a second engine, from an archive: the same ids, so that a verdict of the first host answers there."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from devtools.privateengine import PrivateEngine
from devtools.requirement import unavailable
from sandbox import Workbench
from sandbox.models import CheckRun

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("image-transfer"), pytest.mark.usefixtures("engine")]
PROFILE = 'label = "T"\nimage = "init"\n[[check]]\nid = "go"\nlabel = "x"\nargv = ["/init", "--hand-out"]\n'


def open_home(home: Path, url: str = "") -> Workbench:
    (home / "profiles").mkdir(parents=True)
    (home / "profiles" / "generic.toml").write_text(PROFILE)
    settings = {"engine": {"host": url}} if url else {}
    return Workbench(home, environ={"PATH": os.environ["PATH"]}, settings=settings, allow_file=True)


def make_remote(folder: Path) -> str:
    folder.mkdir()
    (folder / "README").write_text("text\n")
    identity = ["-c", "user.name=t", "-c", "user.email=t@localhost"]
    for argv in (["init", "-q", "-b", "main"], ["add", "-A"], [*identity, "commit", "-q", "-m", "x"]):
        subprocess.run(["git", *argv], cwd=folder, check=True, timeout=60)
    return str(folder)


def test_a_second_host_answers_with_the_verdicts_of_the_first_one(tmp_path: Path) -> None:
    """The key of a verdict is the same there. Control: without the record it is not answered."""
    if reason := PrivateEngine.why_not():
        unavailable(reason)
    remote, path = make_remote(tmp_path / "remote"), tmp_path / "images.tar"

    def answer(workbench: Workbench) -> CheckRun:
        (run,) = workbench.run(remote).runs
        return run

    with open_home(tmp_path / "one") as one:
        first = answer(one)
        exported = one.export_images(path, ["init"], print)
        records = one.home / "repositories" / "verdicts"
        assert (first.verdict, first.cached) == ("passed", False)
        with PrivateEngine() as engine, open_home(tmp_path / "two", engine.url) as two:
            imported = two.import_images(path, print, expected=exported.digest)
            assert [(i.tag, i.digest, i.usable) for i in imported.images] == [
                (i.tag, i.digest, True) for i in exported.images
            ]
            assert not answer(two).cached
            kept = two.home / "repositories" / "verdicts"
            assert sorted(p.name for p in kept.iterdir()) == sorted(p.name for p in records.iterdir())
            shutil.rmtree(kept)
            shutil.copytree(records, kept)
            assert answer(two) == first.model_copy(update={"cached": True})
