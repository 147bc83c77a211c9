"""The dashboard in a real Chromium: `make browser`. Not part of `make test`: the browser takes minutes to install.

Markup that got through would run in a browser, so hostile text is in every field that the first page shows; a page that
ran any of it would have another title.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.conftest import initialised
from tests.unit.daemon.dashboard_site import Site, open_site
from tests.unit.desk import Desk

_PAYLOAD = "<img src=x onerror=\"document.title='ran'\"></td></title><script>document.title='ran'</script>"
_OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--virtual-time-budget=3000",
    "--window-size=1200,1600",
)  # fmt: skip
_DARK = "--force-dark-mode"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("browser")
    desk = Desk(initialised(folder / "upstream"), folder / "sandbox-home")
    desk.workbench.create_task(desk.repo_id, _PAYLOAD)
    call = desk.workbench.approval_call("space_repo_snapshot", {"task_id": desk.task.id, "label": _PAYLOAD})
    desk.workbench.request_approval(call)
    with open_site(desk) as found:
        yield found
    for task in desk.workbench.tasks():
        desk.workbench.close_task(task.id, delete_worktree=True, discard=True)


def visit(site: Site, folder: Path, *options: str) -> str:
    """What Chromium prints about the first page, reached by a one-time link."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.fail("no chromium: apt-get install chromium")
    url = f"{site.url}/login?link={site.sessions.make_link()}"
    command = [chromium, *_OPTIONS, f"--user-data-dir={folder / 'profile'}", *options, url]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


def test_a_link_opens_the_first_page_and_hostile_text_stays_text(site: Site, tmp_path: Path) -> None:
    html = visit(site, tmp_path, "--dump-dom")
    assert "<title>Tasks - Space Sandbox</title>" in html
    assert "&lt;img src=x" in html
    assert "<img" not in html


@pytest.mark.parametrize("theme", [(), (_DARK,)], ids=["light", "dark"])
def test_the_page_is_drawn_in_both_themes(site: Site, tmp_path: Path, theme: tuple[str, ...]) -> None:
    picture = tmp_path / "page.png"
    visit(site, tmp_path, f"--screenshot={picture}", *theme)
    assert picture.stat().st_size > 10_000
