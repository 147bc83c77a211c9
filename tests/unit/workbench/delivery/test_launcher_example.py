"""The launcher of docs/applications.md, run as written."""

from __future__ import annotations

import os
import re
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sandbox.models import ReleaseManifest
from sandbox.store.home import Home
from sandbox.store.release_folder import open_releases, staged_release, write_release_file

OLD, NEW = "1" * 40, "2" * 40
REPO = "github.com-acme-lantern"
APPLICATION = """#!/bin/sh
while ! test -e "$1.switched"; do :; done
cat "$LANTERN_ASSETS/name" > "$1.part" && mv "$1.part" "$1.served"
while ! test -e "$1.over"; do :; done
"""
SLEEP = """#!/bin/sh
ln -s {new} "{releases}/.next" && mv -T "{releases}/.next" "{releases}/current"
touch "$XDG_RUNTIME_DIR/lantern.switched"
while ! test -e "$XDG_RUNTIME_DIR/lantern.served"; do :; done
"""
"""Instead of a wait for 10 s: until the application, which was started before a switch, has served its file."""


def publish(home: Home, tree: str) -> None:
    manifest = ReleaseManifest(
        repo_id=REPO, tree=tree, commit=tree, key="k", image_digest="", run_id="run-1", created_at=datetime.now(UTC)
    )
    with staged_release(home, REPO) as staged, open_releases(home, REPO) as releases:
        write_release_file(staged, "build/lantern", [APPLICATION.encode()], executable=True)
        write_release_file(staged, "assets/name", [tree.encode()], executable=False)
        releases.publish(staged, manifest)
        releases.promote(tree, datetime.now(UTC) + timedelta(hours=1))
        releases.confirm()


def read_example() -> str:
    page = (Path(__file__).parents[4] / "docs" / "applications.md").read_text()
    [found] = [block for block in re.findall(r"```sh\n(.*?)```", page, re.DOTALL) if "readlink" in block]
    return str(found)


@pytest.mark.parametrize("is_through_the_link", [False, True], ids=["as written", "the control: through current"])
def test_the_launcher_runs_and_confirms_one_release(tmp_path: Path, is_through_the_link: bool) -> None:
    """Also when `current` is switched while it looks: no file of the other one is served, and it is not confirmed."""
    home = Home(tmp_path / ".local" / "share" / "space")
    home.prepare()
    publish(home, NEW)
    publish(home, OLD)
    releases, run, programs = home.releases(REPO), tmp_path / "run", tmp_path / "bin"
    for folder in (run, programs):
        folder.mkdir()
    (programs / "sleep").write_text(SLEEP.format(new=NEW, releases=releases))
    (programs / "sleep").chmod(0o755)
    example = read_example()
    if is_through_the_link:
        example = example.replace("$home/$release/", "$home/current/")
    environ = {"HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(run), "PATH": f"{programs}:{os.environ['PATH']}"}
    try:
        subprocess.run(["sh", "-ec", example], env=environ, check=True, timeout=60)
    finally:
        (run / "lantern.over").touch()
    assert [path.name for path in (releases / "confirm").iterdir()] == [OLD]
    assert (run / "lantern.served").read_text() == (NEW if is_through_the_link else OLD)
