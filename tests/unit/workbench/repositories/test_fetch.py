"""`fetch` asks git for nothing twice: each process is a good part of what an up-to-date fetch costs."""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from sandbox.errors import ErrorCode
from sandbox.workbench import Workbench
from tests.unit.conftest import Upstream, refused


def listening_git(folder: Path) -> tuple[Path, Path]:
    """A git that writes down what it is asked, and where."""
    folder.mkdir(mode=0o755)
    program, asked = folder / "git", folder / "asked"
    program.write_text(f'#!/bin/sh\necho "$*" >>{asked}\nexec {shutil.which("git")} "$@"\n')
    program.chmod(0o755)
    return program, asked


def questions(asked: Path) -> list[str]:
    """The commands since the file was removed, each from its name on."""
    lines = asked.read_text().splitlines() if asked.exists() else []
    return [line.partition("--git-dir=")[2].partition(" ")[2] for line in lines]


def test_an_up_to_date_fetch_of_a_local_remote_runs_no_git(tmp_path: Path, upstream: Upstream) -> None:
    upstream.write("f", b"one\n")
    upstream.commit()
    program, asked = listening_git(tmp_path / "opt")
    settings = {"git": {"executable": str(program)}}
    environ = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]}
    with Workbench(tmp_path / "home", environ=environ, settings=settings, allow_file=True) as workbench:
        first = workbench.fetch(str(upstream.root))
        asked.unlink()
        assert workbench.fetch(str(upstream.root)) == first
        assert questions(asked) == []

        workbench.fetch(str(upstream.root), ref=first.commit_sha)  # control: a named commit is looked up
        assert {question.split()[0] for question in questions(asked)} == {"rev-parse"}

        asked.unlink()
        upstream.write("g", b"two\n")
        upstream.commit()
        assert workbench.fetch(str(upstream.root)).tree == ("f", "g")
        assert "fetch" in {question.split()[0] for question in questions(asked)}

        (upstream.git_dir / "HEAD").unlink()
        os.mkfifo(upstream.git_dir / "HEAD")  # our own reading of refs does not wait for it either
        with refused(ErrorCode.UNSAFE_REPOSITORY):
            workbench.fetch(str(upstream.root))


@pytest.fixture
def forge(upstream: Upstream) -> Iterator[str]:
    """The URL of the repository on a server that speaks git's protocol."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.answer("advertisement", b"001e# service=git-upload-pack\n0000", b"", "--advertise-refs")

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.answer("result", b"", gzip.decompress(body) if "Content-Encoding" in self.headers else body)

        def answer(self, kind: str, start: bytes, body: bytes, *options: str) -> None:
            argv = ["git", "upload-pack", "--stateless-rpc", *options, str(upstream.root)]
            done = subprocess.run(argv, input=body, capture_output=True, check=True)
            self.send_response(200)
            self.send_header("Content-Type", f"application/x-git-upload-pack-{kind}")
            self.end_headers()
            self.wfile.write(start + done.stdout)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/owner/name.git"
        server.shutdown()


def test_an_up_to_date_fetch_from_a_server_asks_it_once_and_git_for_nothing_else(
    tmp_path: Path, upstream: Upstream, forge: str
) -> None:
    upstream.write("f", b"one\n")
    upstream.commit()
    program, asked = listening_git(tmp_path / "opt")
    settings = {"git": {"executable": str(program)}, "remotes": {"allow_http": True}}
    environ = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]}
    with Workbench(tmp_path / "home", environ=environ, settings=settings) as workbench:
        first = workbench.fetch(forge)
        asked.unlink()
        assert workbench.fetch(forge) == first
        assert [question.split()[0] for question in questions(asked)] == ["ls-remote"]

        asked.unlink()
        upstream.write("g", b"two\n")
        upstream.commit()
        assert workbench.fetch(forge).tree == ("f", "g")
        assert "fetch" in {question.split()[0] for question in questions(asked)}


def test_many_fetches_at_once_see_what_was_there_when_they_began(tmp_path: Path, upstream: Upstream) -> None:
    upstream.write("f", b"one\n")
    upstream.commit()
    environ = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]}
    with Workbench(tmp_path / "home", environ=environ, allow_file=True) as workbench, ThreadPoolExecutor(8) as pool:
        workbench.fetch(str(upstream.root))
        for number in range(3):
            upstream.write("f", f"{number}\n".encode())
            commit = upstream.commit()
            found = [pool.submit(workbench.fetch, str(upstream.root)) for _ in range(8)]
            assert {each.result().commit_sha for each in found} == {commit}


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
        assert workbench.fetch(str(upstream.root)).commit_sha == lost, "also on no branch"
        upstream.git("branch", "--quiet", "-D", "main")
        assert workbench.fetch(str(upstream.root)).commit_sha == lost, "also where there is none"
