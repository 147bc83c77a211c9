"""Artifacts of a check that ran in a clean room. Real engine, real command."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from devtools.command import Command
from sandbox.files.mount_points import unmount_below
from tests.docker.test_verify import Bench

SCRIPT = (
    "mkdir -p out && printf app >out/app && chmod +x out/app && ln -s /etc/passwd out/link && "
    "printf 'LF:4\\\\nLH:3\\\\n' >out/lcov.info"
)
RULES = '\n[[check.artifact]]\npath = "out/*"\n[[check.artifact]]\npath = "out/lcov.info"\ncoverage = "lcov"\n'


@pytest.fixture
def bench(tmp_path: Path, base_image: str) -> Iterator[Bench]:
    found = Bench(tmp_path, {"build": (SCRIPT, [])})
    profile = found.home / "profiles" / "bench.toml"
    rules = RULES.replace('path = "out/*"', 'path = "out/[al][pi]*"')  # lcov.info is of the second rule
    profile.write_text(profile.read_text() + rules)
    found.close()
    found.workbench = found.open()
    yield found
    found.workbench.close_task(found.task_id)
    found.close()
    unmount_below(found.home)


def test_what_a_check_leaves_is_kept_listed_given_out_and_removed(bench: Bench, tmp_path: Path) -> None:
    (run,) = bench.verify().runs
    command = Command(bench.home)
    listed = command("artifacts", "list", run.run_id)
    found = json.loads(command("--json", "artifacts", "list", run.run_id).stdout)

    assert "coverage: 75.00 % (3 of 4 lines)" in listed.stdout
    assert "not kept: out/link (special)" in listed.stderr
    assert {each["path"]: (each["size"], each["executable"]) for each in found["artifacts"]} == {
        "out/app": (3, True),
        "out/lcov.info": (10, False),
    }
    target = tmp_path / "app"
    assert command("artifacts", "get", run.run_id, "out/app", "-o", str(target)).code == 0
    assert target.read_bytes() == b"app"
    receipt = tmp_path / "provenance.json"
    assert command("receipt", "export", run.run_id, "--provenance", "-o", str(receipt)).code == 0
    assert command("receipt", "verify", str(receipt), "--artifact", str(target)).code == 0
    assert command("receipt", "verify", str(receipt), "--artifact", str(receipt)).code == 3
    assert command("artifacts", "get", run.run_id, "out/app", "-o", str(target)).code == 2, "it is there"

    old = time.time() - 40 * 86400
    for path in [*bench.home.rglob("*.artifacts"), *(bench.home / "repositories" / "artifacts").iterdir()]:
        os.utime(path, (old, old))
    for _ in range(2):
        bench.workbench.collect()
    assert list((bench.home / "repositories" / "artifacts").iterdir()) == []
    assert bench.workbench.artifacts(run.run_id).artifacts == ()
    assert hashlib.sha256(b"app").hexdigest() == found["artifacts"][0]["sha256"].removeprefix("sha256:")
