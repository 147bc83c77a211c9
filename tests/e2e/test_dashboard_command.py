"""`sandbox dashboard` as a person runs it: the link that it prints and opens, and what it says without a daemon."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from devtools.command import DEADLINE_S, SANDBOX
from devtools.daemon import serving


def run_dashboard(home: Path, browser: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`browser`: the program that gets the link."""
    environ = {**os.environ, "BROWSER": f"{browser} %s"}
    command = [*SANDBOX, "--home", str(home), "dashboard", *arguments]
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=DEADLINE_S, check=False)


def open_link(link: str) -> tuple[int, str]:
    """As a browser does, which finds names below `localhost` without a resolver: the status, and where it leads."""
    url = urlsplit(link)
    assert url.hostname is not None
    assert url.hostname.endswith(".localhost")
    connection = http.client.HTTPConnection("127.0.0.1", url.port, timeout=60)
    try:
        connection.request("GET", f"{url.path}?{url.query}", headers={"host": url.netloc})
        answer = connection.getresponse()
        return answer.status, answer.getheader("location", "")
    finally:
        connection.close()


@pytest.fixture
def browser(tmp_path: Path) -> Path:
    """A program that writes down what it is asked to open, in `opened` beside it."""
    program = tmp_path / "browser"
    program.write_text(f'#!/bin/sh\nprintf %s "$1" > "{tmp_path}/opened"\n')
    program.chmod(0o755)
    return program


def test_the_link_opens_one_session_and_a_browser_gets_it(tmp_path: Path, browser: Path) -> None:
    home = tmp_path / "home"
    with serving(home, "--http", "127.0.0.1:0"):
        printed = run_dashboard(home, browser, "--no-browser")
        assert (printed.returncode, printed.stderr) == (0, "")
        assert not (tmp_path / "opened").exists()
        link = printed.stdout.strip()
        assert open_link(link) == (303, "/")
        assert open_link(link)[0] == 403, "it was used"
        as_json = run_dashboard(home, browser, "--json")
        assert open_link(json.loads(as_json.stdout)["url"]) == (303, "/")
        assert not (tmp_path / "opened").exists(), "a program asked, not a person"
        opened = run_dashboard(home, browser)
        assert opened.returncode == 0, opened.stderr
        assert (tmp_path / "opened").read_text() == opened.stdout.strip()
        assert open_link(opened.stdout.strip()) == (303, "/")


def test_without_pages_it_says_how_to_serve_them(tmp_path: Path, browser: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    absent = run_dashboard(home, browser)
    with serving(home):
        without_pages = run_dashboard(home, browser)
    assert [absent.returncode, without_pages.returncode] == [2, 2]
    assert "No daemon of yours serves the home" in absent.stderr
    assert "does not serve HTTP" in without_pages.stderr
    assert "serve --http 127.0.0.1:8765" in absent.stderr
    assert "serve --http 127.0.0.1:8765" in without_pages.stderr
    assert (absent.stdout, without_pages.stdout) == ("", "")
    assert not (tmp_path / "opened").exists()
