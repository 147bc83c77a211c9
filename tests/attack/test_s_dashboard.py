"""S117, S123-S125: what the dashboard shows of guests, and who may press its buttons."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import httpx2
import pytest

from devtools.host_speed import slowness
from sandbox.daemon import page_templates, syntax_colours
from sandbox.daemon.browser_sessions import make_form_token
from sandbox.daemon.diff_view import DiffLine, FileDiff
from sandbox.daemon.page_templates import HEADERS, render_text
from sandbox.text import neutralise
from tests.unit.conftest import initialised
from tests.unit.daemon.dashboard_site import FilledPages, Site, Structure, open_site
from tests.unit.desk import Desk

PAYLOADS = (
    "<script>alert(1)</script>",
    "</pre><img src=x onerror=alert(1)>",
    '"><svg onload=alert(1)>',
    "' autofocus onfocus=alert(1) x='",
    "</title><body onload=alert(1)>",
    "{{ 7*7 }}{% raw %}<!--",
    "javascript:alert(1)",
    "\u202e<b>\x00\x1b[31m",
)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with open_site(Desk(initialised(tmp_path / "upstream"), tmp_path / "sandbox-home")) as found:
        yield found


def test_s117_guest_text_adds_nothing_to_the_structure_of_a_page(site: Site) -> None:
    """Prompt, file names, contents, labels, questions and events: with payloads in them a page is built as without."""
    with httpx2.Client(timeout=60) as client:
        site.log_in(client)
        plain = find_structures(site, client, "plain words")
        for text in ("".join(PAYLOADS), " ".join(reversed(PAYLOADS))):
            assert find_structures(site, client, text) == plain


def test_s117_the_control_without_escaping(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"error": {"brief": PAYLOADS[0], "code": {"value": "x"}, "details": "", "hint": ""}, "page": "home"}
    safe = Structure(render_text("error", values)).found
    monkeypatch.setattr(page_templates._environment(), "autoescape", False)
    page_templates._environment().cache.clear()  # type: ignore[union-attr]
    unsafe = Structure(render_text("error", values)).found
    page_templates._environment.cache_clear()
    assert [tag for tag, _ in unsafe].count("script") == [tag for tag, _ in safe].count("script") + 1


def find_structures(site: Site, client: httpx2.Client, text: str) -> list[Any]:
    """The structures of all pages with this text wherever a guest, an agent, a remote or a forge can put it."""
    pages = FilledPages(site.desk, text)
    site.kept.storage.forget()  # of the text before
    ids = (pages.run_id, pages.approved.id, pages.task.id, pages.task.id[5:13], pages.question.id, pages.snapshot.id)
    found = []
    for name, path in pages.paths.items():
        answer = client.get(site.url + path)
        assert answer.status_code == (404 if name == "error" else 200), answer.text
        html = answer.text
        for one in ids:
            html = html.replace(one, "ID")
        found.append(Structure(html).found)
    pages.close()
    events = {"li", "a", "span", "details", "summary"}  # of the first page: those of all tasks
    return [[element for element in found[0] if element[0] not in events], *found[1:]]


def test_s117_every_field_is_on_a_page(site: Site) -> None:
    """Or the pages would be built the same whatever is in it."""
    pages = FilledPages(site.desk, "words of FIELD.")
    with httpx2.Client(timeout=60) as client:
        site.log_in(client)
        html = "".join(client.get(site.url + path).text for path in pages.paths.values())
    missing = {field for field in FilledPages.fields if f"words of {field}." not in html}
    assert missing == {"live"}, "that is sent as events"


def test_s117_live_output_is_one_event_whatever_it_says(site: Site) -> None:
    """Lines like those of the protocol of events are within the text, and a browser takes none of it for a page."""
    text = "".join(PAYLOADS) + "\n\nevent: closed\ndata: {}\r\revent: closed"
    pages = FilledPages(site.desk, text)
    lines: list[str] = []
    with httpx2.Client(timeout=60) as client:
        site.log_in(client)
        with client.stream("GET", f"{site.url}{pages.paths['task']}/events") as answer:
            assert {name: answer.headers[name] for name in HEADERS} == HEADERS
            assert answer.headers["content-type"].startswith("text/event-stream")
            for line in answer.iter_lines():
                lines.append(line)
                if not line:
                    break
    kind, data, _ = lines
    assert kind == "event: output"
    assert json.loads(data.removeprefix("data: "))["text"] == neutralise(text.replace("\0", "") + "\n")


def test_s117_a_url_of_others_is_a_link_only_if_it_opens_a_page(site: Site) -> None:
    good = "https://a.example/pull/1"
    urls = (
        "javascript:alert(1)",
        "JaVaScRiPt:alert(1)",
        "data:text/html,x",
        " https://a.example/",
        "//a.example",
        good,
    )
    pages = FilledPages(site.desk, "words")
    status = site.person.pull_request_status(pages.task.id)
    checks = tuple(status.checks[0].model_copy(update={"url": url}) for url in urls)
    changed = status.model_copy(update={"checks": checks})
    with httpx2.Client(timeout=60) as client, pytest.MonkeyPatch.context() as patched:
        patched.setattr(site.person, "pull_request_status", lambda _: changed)
        site.log_in(client)
        html = client.get(site.url + pages.paths["pull_request"]).text
    assert all(url in html for url in urls)
    links = [value for tag, kept in Structure(html).found if tag == "a" for name, *value in kept if name == "href"]
    assert [[good]] == [value for value in links if value[0] in urls], "one, the control"


HIDING = "safe()  # \x1b]0;\x0cevil()\u202e\r\u2028@@ -1 +1 @@"


def test_s124_nothing_that_a_file_contains_is_missing_in_its_diff(site: Site) -> None:
    """Terminal sequences and odd ends of lines hide text elsewhere; lines like those of a diff begin no file."""
    lines = [HIDING, "@@ -1,9 +1,9 @@", "++ b/other", "diff --git a/x b/x", "\\ No newline"]
    site.desk.write("z.py", "".join(f"{line}\n" for line in lines).encode())
    with httpx2.Client(timeout=60) as client:
        site.log_in(client)
        html = client.get(f"{site.url}/tasks/{site.desk.task.id}").text
    assert html.count('<details class="file"') == 1
    rows = re.findall(r'<tr class="(.*?)"><td>(.*?)</td><td>(.*?)</td><td>(.*?)</td><td>(.*?)</td></tr>', html)
    texts = [unescape(re.sub("<.*?>", "", row[4])) for row in rows]
    assert [row[:4] for row in rows] == [
        ("hunk", "", "", ""), *(("added", "", str(number), "+") for number in range(1, 6))
    ]  # fmt: skip
    assert texts[2:] == lines[1:]
    assert texts[1] == "safe()  # \u241b]0;\u240cevil()\\u202e\u240d\\u2028@@ -1 +1 @@"
    assert "evil" not in neutralise(HIDING), "the control: as other text is shown, this call is missing"


def test_s123_a_file_that_keeps_the_colouring_busy_is_shown_without_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(syntax_colours, "WAIT_S", 20.0)  # a busy host gives a child little of a second
    monkeypatch.setattr(syntax_colours, "CPU_S", 2)
    slow = "s{"
    (few,) = syntax_colours.run_worker([("perl", slow * 200)])
    assert few, "the control: the same text is coloured when there is less of it"
    lines = (DiffLine("added", slow * 100_000, None, 1),)
    plain = FileDiff("a.pl", None, (), lines)
    before = (FileDiff("a.py", None, (), (DiffLine("added", "def f(): pass", None, 1),)), plain)
    began = time.monotonic()
    coloured, uncoloured = syntax_colours.colour_files(before)
    assert time.monotonic() - began < 30 * slowness()
    assert coloured.lines[0].pieces
    assert uncoloured == plain


@pytest.mark.parametrize("action", ["restore", "fork", "snapshot", "stop"])
def test_s125_only_a_page_of_the_session_acts_on_a_task(site: Site, action: str) -> None:
    """Restore and fork through the real server: what another page, an agent or a stranger sends does nothing."""
    desk = site.desk
    saved = desk.workbench.snapshot(desk.task.id)
    desk.write("f", b"changed\n")
    url, ours = f"{site.url}/tasks/{desk.task.id}/{action}", {"origin": site.url}
    with httpx2.Client(timeout=60) as client, httpx2.Client(timeout=60) as stranger:
        good = {"state": saved.id, "form_token": make_form_token(site.log_in(client))}
        token = {"authorization": f"Bearer {'t' * 40}"}
        refusals = [
            stranger.post(url, data=good, headers=ours),
            stranger.post(url, data=good, headers={**ours, **token}),
            client.post(url, data=good),
            client.post(url, data=good, headers={"origin": "http://127.0.0.1:1"}),
            client.post(url, data={**good, "form_token": "0" * 64}, headers=ours),
            client.post(url, data={"state": saved.id}, headers=ours),
        ]
        assert [answer.status_code for answer in refusals] == [401, 403, 403, 403, 403, 403]
        assert client.get(url, params=good, headers=ours).status_code == 405
        assert [entry.operation for entry in desk.workbench.log(desk.task.id)] == ["create", "snapshot"]
        assert client.post(url, data=good, headers=ours).status_code == 303, "the control"
        assert desk.workbench.log(desk.task.id)[-1].operation == action


def test_s165_a_large_form_does_not_hold_up_the_other_clients(site: Site) -> None:
    """The thread that serves all clients reads forms. Of an agent with the token none is read, of a person 64 KiB."""
    url, ours = f"{site.url}/approvals/approval-1", {"origin": site.url}
    body = b"".join(b"%x=1&" % number for number in range(300_000))
    control_s = measure_cpu_s(lambda: parse_qs(body.decode()))
    with httpx2.Client(timeout=60) as client:
        token = {"authorization": f"Bearer {'t' * 40}"}
        good = f"&choice=once&form_token={make_form_token(site.log_in(client))}".encode()
        with httpx2.Client(timeout=60) as agent:
            statuses: list[int] = []
            spent_s = measure_cpu_s(
                lambda: statuses.append(agent.post(url, content=body, headers={**ours, **token}).status_code)
            )
            assert (statuses, spent_s < control_s / 4) == ([403], True)
        for parts in ([body, good], [b"a=1&" * 30, good]):  # too long; too many fields
            answer = client.post(url, content=b"".join(parts), headers=ours)
            assert (answer.status_code, "not of a page of this session" in answer.text) == (403, True)
        control = client.post(url, content=b"a=1&" * 5 + good, headers=ours)
        assert control.status_code != 403, "the control: a form of a usual size is read"


def measure_cpu_s(act: Callable[[], object]) -> float:
    """CPU seconds of this process, with all its threads."""
    begun = time.process_time()
    act()
    return time.process_time() - begun
