from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import get_args

import pytest

from devtools.coderegistries import make_tar
from devtools.requirement import unavailable
from devtools.waiting import wait_until
from sandbox.dependencies import perl_steps
from sandbox.dependencies.ecosystems import find_steps
from sandbox.models.layers import LayerEcosystem

GOOD = "open my $f, '>', 'Build'; print $f qq{#!/bin/sh\\nexit 0\\n}; chmod 0755, 'Build';"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    if not shutil.which("perl"):
        unavailable("no perl")
    (tmp_path / "archives").mkdir()
    shutil.copy(Path(perl_steps.__file__).with_name("perl_install.pl"), tmp_path)
    return tmp_path


def install(place: Path, *, seconds_each: int, **builds: str) -> tuple[list[str], list[str]]:
    """Install distributions by the text of their Build.PL. Returns the lines of left-out.txt and short-of.txt."""
    for name, text in builds.items():
        (place / f"archives/E%2F{name}-1.tar.gz").write_bytes(make_tar({f"{name}-1/Build.PL": text}))
    env = {"PATH": os.environ["PATH"], "SPACE_SECONDS": "100", "SPACE_SECONDS_EACH": str(seconds_each)}
    subprocess.run(["perl", "perl_install.pl"], cwd=place, env=env, check=True, capture_output=True, timeout=100)
    short = place / "short-of.txt"
    return (place / "left-out.txt").read_text().split(), short.read_text().splitlines() if short.exists() else []


def runs(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def test_what_a_distribution_ran_short_of_is_written_with_its_name(place: Path) -> None:
    """Control: one that fails for another reason is left out, too, and ran short of no resource."""
    found = install(
        place,
        seconds_each=60,
        Good=GOOD,
        Full="die 'x.o: No space left on device';",
        Forks="die q{sh: Cannot fork}; ",
        Memory="print 'virtual memory exhausted: Cannot allocate memory'; exit 1;",
        Other="die 'no compiler';",
    )
    left_out, short_of = found
    assert left_out == [f"E%2F{name}-1.tar.gz" for name in ("Forks", "Full", "Memory", "Other")]
    assert set(short_of) == {
        "disk E%2FFull-1.tar.gz",
        "memory E%2FMemory-1.tar.gz",
        "processes E%2FForks-1.tar.gz",
    }


def test_a_distribution_that_does_not_end_is_left_out_once_and_the_others_are_built(place: Path) -> None:
    hangs = "open my $f, '>>', '../../tries'; print $f qq{$$\\n}; close $f; $SIG{TERM} = 'IGNORE'; sleep 9 while 1;"
    left_out, _ = install(place, seconds_each=4, Good=GOOD, Hangs=hangs)
    assert left_out == ["E%2FHangs-1.tar.gz"]
    (tried,) = (place / "work/tries").read_text().split()
    wait_until(lambda: not runs(int(tried)))  # else it would work on beside the others


@pytest.mark.parametrize("ecosystem", get_args(LayerEcosystem))
def test_an_install_that_leaves_archives_out_says_what_they_ran_short_of(ecosystem: LayerEcosystem) -> None:
    """Else a layer that a starved host made incomplete would be shared for ever (S161)."""
    script = find_steps(ecosystem).install.script
    for name in re.findall(r"\w+\.(?:pl|js|py)\b", script):
        path = Path(perl_steps.__file__).with_name(name)
        script += path.read_text() if path.exists() else ""
    assert ("left-out.txt" in script) == ("short-of.txt" in script)
