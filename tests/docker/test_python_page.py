"""The program in docs/python.md runs as it stands, on a project of a GitLab's stand-in."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from trustme import CA

from devtools.forges.fixtures import GitLab, scripted_gitlab

PAGE = Path(__file__).parents[2] / "docs" / "python.md"


def seed(folder: Path, remote: Path) -> None:
    """One commit with a Makefile on the remote's default branch."""
    folder.mkdir()
    (folder / "Makefile").write_text("build:\n\ttrue\ntest:\n\tcat words\n")
    (folder / "words").write_text("hello\n")
    pushed = ["push", "--quiet", "--force", str(remote), "main"]
    for argv in (["init", "--quiet", "--initial-branch=main"], ["add", "--all"], ["commit", "-qm", "first"], pushed):
        subprocess.run(["git", "-c", "user.name=x", "-c", "user.email=x@x", *argv], cwd=folder, check=True)


def home_for(forge: GitLab, folder: Path, ca_file: Path) -> Path:
    """A home that knows the forge and its token."""
    folder.mkdir(mode=0o700)
    lines = ["[remotes]", 'gitlab_hosts = ["127.0.0.1"]', f'api_urls = {{ "127.0.0.1" = "{forge.api_url}" }}']
    (folder / "config.toml").write_text("\n".join(lines) + "\n")
    (folder / "credentials.toml").touch(mode=0o600)
    (folder / "credentials.toml").write_text(
        f'[[credential]]\nhost = "127.0.0.1"\nusername = "oauth2"\nsecret = "{forge.token}"\nca_file = "{ca_file}"\n'
    )
    return folder


def judge(forge: GitLab) -> None:
    """What is open has passed its checks upstream."""
    rules = forge.rules
    for number, request in enumerate(rules.merge_requests, 1):
        head = rules.branches.all()[request.source]
        rules.pipelines = [{"id": number, "sha": head, "status": "success", "ref": request.source}]
        rules.jobs[number] = [{"id": 5, "name": "unit", "status": "success"}]


@pytest.mark.usefixtures("build_image")
def test_the_examples_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    authority, ca_file = CA(), tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(ca_file))
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) >= 6
    with scripted_gitlab(tmp_path, authority) as forge:
        seed(tmp_path / "source", forge.rules.branches.folder)
        home = home_for(forge, tmp_path / "home", ca_file)
        names: dict[str, Any] = {"HOME": home, "URL": f"{forge.url}/demo-owner/demo.git"}
        for block in blocks:
            exec(compile(block, str(PAGE), "exec"), names)  # noqa: S102 - our own page, and the point of the test
            judge(forge)
    said = capsys.readouterr().out
    for words in ("test passed", "hello, world", "True True", "open", "now: pass", "pass []", "killed"):
        assert words in said, said
