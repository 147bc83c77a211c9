"""`fetch` asks git for nothing twice: each process is a good part of what an up-to-date fetch costs."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from sandbox.errors import ErrorCode
from sandbox.workbench import Workbench
from tests.unit.conftest import Upstream, refused

QUESTIONS = ("show-ref", "rev-parse", "ls-tree")


def listening_git(folder: Path) -> tuple[Path, Path]:
    """A git that writes down what it is asked, and where."""
    folder.mkdir(mode=0o755)
    program, asked = folder / "git", folder / "asked"
    program.write_text(f'#!/bin/sh\necho "$*" >>{asked}\nexec {shutil.which("git")} "$@"\n')
    program.chmod(0o755)
    return program, asked


def questions(asked: Path) -> list[str]:
    lines = [line.split() for line in asked.read_text().splitlines()]
    return [" ".join(words[i:]) for words in lines for i, word in enumerate(words) if word in QUESTIONS]


def test_an_up_to_date_fetch_asks_git_for_nothing_twice(tmp_path: Path, upstream: Upstream) -> None:
    upstream.write("f", b"one\n")
    upstream.commit()
    program, asked = listening_git(tmp_path / "opt")
    settings = {"git": {"executable": str(program)}}
    environ = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]}
    with Workbench(tmp_path / "home", environ=environ, settings=settings, allow_file=True) as workbench:
        workbench.fetch(str(upstream.root))
        asked.unlink()
        fetched = workbench.fetch(str(upstream.root))
        found = questions(asked)
        assert {question.split()[0] for question in found} == set(QUESTIONS) - {"ls-tree"}  # nothing is listed again
        assert len(found) == len(set(found))

        asked.unlink()
        workbench.fetch(str(upstream.root), ref=fetched.commit_sha)  # control: a named commit is looked up again
        assert len(questions(asked)) > len(found)


def test_another_ref_than_the_head_gives_its_own_files(tmp_path: Path, upstream: Upstream) -> None:
    upstream.write("f", b"one\n")
    first = upstream.commit()
    upstream.write("g", b"two\n")
    upstream.commit()
    environ = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]}
    with Workbench(tmp_path / "home", environ=environ, allow_file=True) as workbench:
        head, named = (workbench.fetch(str(upstream.root), ref) for ref in ("HEAD", first))

    assert sorted(path.name for path in head.local_path.iterdir()) == ["f", "g"]
    assert (named.commit_sha, named.tree) == (first, ("f",))
    assert sorted(path.name for path in named.local_path.iterdir()) == ["f"]


def test_a_detached_head_gives_the_commit_that_is_checked_out_and_never_another(
    tmp_path: Path, upstream: Upstream
) -> None:
    upstream.write("f", b"one\n")
    first = upstream.commit()
    upstream.write("g", b"two\n")
    upstream.commit()
    environ = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]}
    with Workbench(tmp_path / "home", environ=environ, allow_file=True) as workbench:
        upstream.git("checkout", "--quiet", "--detach", first)
        head = workbench.fetch(str(upstream.root))
        assert (head.commit_sha, head.tree) == (first, ("f",))
        assert workbench.fetch(str(upstream.root), "main").tree == ("f", "g")

        upstream.write("h", b"three\n")
        lost = upstream.commit()
        with refused(ErrorCode.NOT_FOUND) as caught:
            workbench.fetch(str(upstream.root))
        assert lost[:12] in caught.value.brief
