"""The dashboard of a real daemon, at the host name of its own, in a real Chromium."""

from __future__ import annotations

from pathlib import Path

from devtools.daemon import serving
from sandbox.daemon.api_client import post
from tests.browser.chromium import open_chromium, press_until
from tests.unit.conftest import initialised
from tests.unit.desk import Desk


def test_a_link_opens_a_session_once_and_restores_and_forks(tmp_path: Path) -> None:
    desk = Desk(initialised(tmp_path / "upstream"), tmp_path / "home")
    desk.write("f", b"first\n")
    saved = desk.workbench.snapshot(desk.task.id)
    desk.write("f", b"second\n")
    with serving(desk.home, "--http", "127.0.0.1:0"), open_chromium(tmp_path / "chromium") as page:
        link = str(post(desk.home, "/dashboard/link")["url"])
        site, _, path = link.partition("/login")
        assert site.partition(":")[2].partition(":")[0].endswith(".localhost"), link
        page.open(link)
        assert page.evaluate("[location.pathname, document.title]") == ["/", "Tasks - Space Sandbox"]
        assert page.evaluate("document.cookie") == "", "no script sees the session"
        page.open(f"{site}/tasks/{desk.task.id}")
        press_until(page, f"Restore {saved.id}")
        page.press("Enter", loads=True)
        assert (desk.root / "f").read_bytes() == b"first\n"
        press_until(page, f"Fork {saved.id}")
        page.press("Enter", loads=True)
        (forked,) = [task for task in desk.workbench.tasks() if task.forked_from == desk.task.id]
        assert page.evaluate("location.pathname") == f"/tasks/{forked.id}"
        assert page.complaints == []
        page.open(f"{site}/login{path}")
        assert "This link was used" in page.evaluate("document.body.textContent")
    for task in desk.workbench.tasks():
        desk.workbench.close_task(task.id, delete_worktree=True, discard=True)
