"""The dashboard in a real Chromium: `make browser`. Not part of `make test`: the browser is 300 MB.

Pictures of all pages are written to `build/dashboard`.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from devtools.accessibility import read_axe
from sandbox.daemon import page_templates
from sandbox.models import ApprovalState
from tests.browser.chromium import FOCUS, Page, open_chromium, press_until
from tests.unit.conftest import initialised
from tests.unit.daemon.dashboard_site import FilledPages, Site, open_site
from tests.unit.desk import Desk

PICTURES = Path(__file__).parents[2] / "build" / "dashboard"
WIDTHS = {"desk": 1280, "phone": 390}
PAYLOAD = "\"'></title></pre><img src=x onerror=ran('FIELD')>"
_RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
_AXE = f"axe.run({{runOnly: {_RULES}}}).then((r) => r.violations.map((v) => v.id + ' ' + v.nodes.map((n) => n.html)))"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("browser")
    with open_site(Desk(initialised(folder / "upstream"), folder / "sandbox-home")) as found:
        yield found
    for task in found.desk.workbench.tasks():
        found.desk.workbench.close_task(task.id, delete_worktree=True, discard=True)


@pytest.fixture(scope="module")
def page(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """A browser with a session."""
    with open_chromium(tmp_path_factory.mktemp("chromium")) as found:
        found.open(f"{site.url}/login?link={site.sessions.make_link()}")
        yield found


@pytest.fixture(scope="module")
def plain(site: Site) -> FilledPages:
    """Pages with ordinary text, and code in several states."""
    desk = site.desk
    pages = FilledPages(desk, "Words of FIELD that are long enough to wrap on a phone, and then some more of them")
    root = desk.worktree(pages.task)
    (root / "z.py").write_text('@cached\ndef f(a: int) -> str:\n    return "x" * 3  # three\n\n\nclass A:\n    pass\n')
    saved = desk.workbench.snapshot(pages.task.id, "with code")
    (root / "f").write_text("changed again\n")
    desk.workbench.restore(pages.task.id, saved.id)
    desk.workbench.fork_task(pages.task.id, saved.id)
    (root / "f").write_text("two\nthree\n")
    desk.workbench.snapshot(pages.task.id, "after the restore")
    return pages


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_every_page_is_accessible_and_fits_in_both_themes(
    site: Site, page: Page, plain: FilledPages, width: str, theme: str
) -> None:
    page.look_like(WIDTHS[width], theme)
    for name, path in plain.paths.items():
        page.open(site.url + path)
        page.save_picture(PICTURES / f"{name}-{theme}-{width}.png")
        expected = ["404"] if name == "error" else []
        assert [word for text in page.complaints for word in text.split() if word == "404"] == expected
        assert len(page.complaints) == len(expected), page.complaints
        page.evaluate(read_axe())
        assert page.evaluate(_AXE) == [], name
        assert page.evaluate("document.documentElement.scrollWidth") <= WIDTHS[width], name


def test_the_checker_finds_what_is_wrong(site: Site, page: Page) -> None:
    page.look_like(1280, "light")
    page.open(f"{site.url}/")
    page.evaluate(read_axe())
    wrong = "<input><span class='t-k' id='pale'>pale</span>"
    page.evaluate(f"document.getElementById('content').insertAdjacentHTML('beforeend', \"{wrong}\")")
    page.evaluate("document.getElementById('pale').style.color = '#ddd'")
    assert [found.split()[0] for found in page.evaluate(_AXE)] == ["color-contrast", "label"]


@pytest.fixture(scope="module")
def hostile(site: Site) -> Iterator[FilledPages]:
    pages = FilledPages(site.desk, PAYLOAD)
    site.kept.probes.forget()  # other pages had their words
    site.kept.storage.forget()
    yield pages
    pages.close()


_LIVE = """new Promise((done) => {
  const live = document.getElementById("live");
  setInterval(() => (live && !live.childNodes.length) || setTimeout(() => done(true), 50), 50);
})"""
"""Until a page that shows live output has some, and what is in it had its time."""


def visit_all(site: Site, page: Page, pages: FilledPages) -> set[str]:
    """What scripts of guests did."""
    page.look_like(1280, "light")
    ran: set[str] = set()
    for path in pages.paths.values():
        page.open(site.url + path)
        page.evaluate(_LIVE)
        ran |= set(page.ran)
    return ran


@pytest.fixture
def unescaped() -> Iterator[None]:
    page_templates._environment.cache_clear()
    page_templates._environment().autoescape = False
    yield
    page_templates._environment.cache_clear()


def make_unsafe_script(folder: Path) -> Path:
    """The pages with a script that sets live output as markup."""
    pages = shutil.copytree(page_templates.PAGES, folder / "pages")
    script = (pages / "live.js").read_text()
    assert "live.textContent = (live.textContent + text)" in script
    (pages / "live.js").write_text(script.replace("live.textContent", "live.innerHTML"))
    return Path(pages)


def test_s117_no_script_of_a_guest_runs(site: Site, page: Page, hostile: FilledPages) -> None:
    assert visit_all(site, page, hostile) == set()
    assert page.evaluate("document.images.length") == 0


@pytest.mark.usefixtures("unescaped")
def test_s117_the_control_without_escaping_every_field_runs(
    site: Site, page: Page, hostile: FilledPages, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(page_templates.HEADERS, "content-security-policy", "default-src * 'unsafe-inline'")
    monkeypatch.setattr(page_templates, "PAGES", make_unsafe_script(tmp_path))
    assert visit_all(site, page, hostile) == FilledPages.fields


@pytest.mark.usefixtures("unescaped")
def test_s117_the_policy_alone_stops_every_script(site: Site, page: Page, hostile: FilledPages) -> None:
    assert visit_all(site, page, hostile) == set()
    page.open(site.url + hostile.paths["task"])
    assert page.evaluate("document.images.length") > 0
    assert any("Content Security Policy" in text for text in page.complaints)


def test_a_question_is_answered_and_a_task_forked_with_keys_alone(site: Site, page: Page, plain: FilledPages) -> None:
    page.look_like(1280, "light")
    page.open(site.url + plain.paths["approvals"])
    page.press("Tab")
    assert page.evaluate(FOCUS) == "Skip to the content"
    call = site.person.approval_call("space_repo_snapshot", {"task_id": site.desk.task.id, "label": "by keys"})
    question = site.person.request_approval(call)
    for other in site.person.approvals():
        if other.id != question.id:
            site.person.revoke_approval(other.id, by="test")
    page.open(site.url + plain.paths["approvals"])
    press_until(page, "Deny")
    page.press("Enter", loads=True)
    assert site.person.approval(question.id).state is ApprovalState.DENIED
    page.open(site.url + plain.paths["task"])
    press_until(page, f"Fork {plain.snapshot.id}")
    before = {task.id for task in site.person.tasks()}
    page.press("Enter", loads=True)
    (forked,) = [task for task in site.person.tasks() if task.id not in before]
    assert page.evaluate("location.pathname") == f"/tasks/{forked.id}"
    assert forked.forked_from == plain.task.id


def test_what_happens_is_shown_while_the_page_is_open(site: Site, page: Page, plain: FilledPages) -> None:
    page.open(site.url + plain.paths["task"])
    assert page.evaluate("document.getElementById('stale').hidden")
    site.person.snapshot(plain.task.id, "seen by the page")
    shown = "new Promise((done) => setInterval(() => document.getElementById('stale').hidden || done(true), 50))"
    assert page.evaluate(shown)
    assert "--- snapshot" in page.evaluate("document.getElementById('live').textContent")
