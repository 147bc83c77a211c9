"""What a person sees while checks and image builds run. Real engine, real terminal."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from devtools.command import Command
from devtools.terminal import Terminal
from sandbox.engine.connection import DockerEngine
from sandbox.files.mount_points import unmount_below
from sandbox.store.home import Home
from tests.docker.conftest import remove_tags
from tests.docker.test_verify import Bench, Scripts

SLOW: Scripts = {"slow": ("echo first; echo the last words; sleep 4", [])}


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path, SLOW)
    made.close()
    yield made
    unmount_below(tmp_path)


@pytest.fixture
def scratch(engine: DockerEngine, tmp_path: Path) -> Iterator[str]:
    """The name of an image a test may build; gone afterwards."""
    name = f"test-scratch-{uuid.uuid4().hex[:8]}"
    home = Home(tmp_path / "home")
    home.prepare()
    (home.root / "images" / name).mkdir(parents=True)
    yield name
    remove_tags(engine, name)


def write_dockerfile(root: Path, name: str, text: str) -> None:
    (root / "home" / "images" / name / "Dockerfile").write_text(f"ARG BASE\nFROM ${{BASE}}\n{text}\n")


def test_a_running_check_shows_its_time_deadline_and_last_line(bench: Bench) -> None:
    seen = Terminal(bench.home)("run", str(bench.upstream.root))

    assert seen.code == 0
    assert re.search(r"\r\x1b\[Kslow: [1-3] s of 300 s  the last words", seen.raw)
    assert not any(" of 300 s" in line for line in seen.screen)
    assert seen.screen[0] == "Cloning and verifying HEAD"
    assert re.match(r"slow: passed in \d+\.\d s$", seen.screen[1])


def test_with_follow_the_output_is_what_is_shown(bench: Bench) -> None:
    seen = Terminal(bench.home)("run", str(bench.upstream.root), "--follow")
    assert "the last words" in seen.screen
    assert " of 300 s" not in seen.raw


def test_elsewhere_a_short_check_is_one_line_at_either_end(bench: Bench) -> None:
    ended = Command(bench.home)("run", str(bench.upstream.root))
    assert re.fullmatch(r"Cloning and verifying HEAD\nslow: slow \.\.\.\nslow: passed in \d+\.\d s\n", ended.stderr), (
        ended.stderr
    )


def test_an_image_build_is_a_line_for_each_step(tmp_path: Path, scratch: str) -> None:
    write_dockerfile(tmp_path, scratch, "RUN seq 1000 1100\nRUN echo two")

    ended = Command(tmp_path / "home")("images", "build", scratch)
    verbose = Command(tmp_path / "home")("images", "build", scratch, "--no-cache", "--verbose")

    assert ended.code == 0, ended.stderr
    assert f"{scratch}: step 3/" in ended.stderr
    assert "RUN seq 1000 1100\n" in ended.stderr
    assert "1050" not in ended.stderr
    assert f"\n{scratch} | 1050\n" in verbose.stderr


def test_on_a_terminal_it_is_one_line_that_is_rewritten(tmp_path: Path, scratch: str) -> None:
    write_dockerfile(tmp_path, scratch, "RUN seq 1000 1100; sleep 2.5")  # the line is written once a second

    seen = Terminal(tmp_path / "home")("images", "build", scratch)

    assert seen.code == 0
    assert f"\r\x1b[K{scratch}: step 3/" in seen.raw
    assert not any("step 3/" in line or line.endswith("1050") for line in seen.screen)


@pytest.mark.parametrize("on_a_terminal", [True, False])
def test_a_failed_build_shows_all_of_its_output(tmp_path: Path, scratch: str, on_a_terminal: bool) -> None:
    """The details of the error are its last 30 lines."""
    write_dockerfile(tmp_path, scratch, "RUN echo the reason; seq 1000 1100; exit 7")

    home = tmp_path / "home"
    if on_a_terminal:
        lines = Terminal(home)("images", "build", scratch).screen
    else:
        lines = Command(home)("images", "build", scratch).stderr.splitlines()

    assert "the reason" in lines
    assert "1050" in lines
    assert any(line.startswith("error [invalid_input]") for line in lines)
