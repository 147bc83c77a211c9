"""The dashboard over a real home: its pages, its sessions, its forms."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.exceptions import HTTPException
from starlette.requests import Request

from sandbox.byte_sizes import format_bytes
from sandbox.daemon import dashboard as dashboard_module
from sandbox.daemon.browser_sessions import COOKIE, LINK_S, LoopbackPort, Sessions, make_form_token
from sandbox.daemon.dashboard import Dashboard
from sandbox.daemon.page_templates import HEADERS
from sandbox.daemon.routes import show_http_error
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import ApprovalScope, ApprovalState, PlaceState, TaskPlace
from tests.unit.conftest import Upstream
from tests.unit.daemon.dashboard_site import FilledPages, Site, open_site
from tests.unit.desk import Desk


@pytest.fixture
def site(upstream: Upstream, tmp_path: Path) -> Iterator[Site]:
    with open_site(Desk(upstream, tmp_path / "sandbox-home")) as found:
        yield found


def read_texts(html: str) -> str:
    """The text of a page on one line, with a bar between cells."""
    text = re.sub(r"<[^>]*>", "", re.sub(r"</t[dh]>", " | ", html))
    return re.sub(r"( \|)+", " |", re.sub(r"\s+", " ", unescape(text)))


def ask_question(desk: Desk, label: str) -> str:
    call = desk.workbench.approval_call("space_repo_snapshot", {"task_id": desk.task.id, "label": label})
    return desk.workbench.request_approval(call).id


def test_each_page_is_shown_to_a_person_and_to_nobody_else(site: Site) -> None:
    paths = (
        "/",
        f"/tasks/{site.desk.task.id}",
        "/approvals",
        "/storage",
        "/host",
        f"/tasks/{site.desk.task.id}/events",
    )
    with httpx2.Client(timeout=60) as client:
        for path in paths:
            assert client.get(site.url + path).status_code == 401
            as_agent = client.get(site.url + path, headers={"authorization": f"Bearer {'t' * 40}"})
            assert as_agent.status_code == 403, "the token of agents is no person"
        assert (
            client.post(f"{site.url}/dashboard/link", headers={"authorization": f"Bearer {'t' * 40}"}).status_code
            == 403
        )
        site.log_in(client)
        for path in paths[:4]:  # the host page asks the engine, and the events do not end
            answer = client.get(site.url + path)
            assert answer.status_code == 200, answer.text
            assert {name: answer.headers[name] for name in HEADERS} == HEADERS
        assert client.get(f"{site.url}/tasks/task-00000000-0000-4000-8000-000000000000").status_code == 404
        assert client.get(f"{site.url}/runs/..%2f..%2fregistry").status_code == 404
        assert client.get(f"{site.url}/static/..%2fhome.html").status_code == 404
        absent = client.get(f"{site.url}/nothing")
        assert (absent.status_code, "There is no /nothing here" in absent.text) == (404, True)
        assert '<nav aria-label="Pages">' in absent.text
        assert client.post(f"{site.url}/approvals").status_code == 405


def test_a_link_opens_one_session_within_a_minute() -> None:
    now = [0.0]
    sessions = Sessions(lambda: now[0])
    link, late = sessions.make_link(), sessions.make_link()
    session = sessions.open_session(link)
    assert session is not None
    assert sessions.find(f"{COOKIE}={session}") == session
    assert sessions.open_session(link) is None, "used"
    assert sessions.find(f"{COOKIE}={link}") is None
    now[0] = LINK_S + 1
    assert sessions.open_session(late) is None, "too old"
    now[0] = 1e6
    assert sessions.find(f"{COOKIE}={session}") is None


def test_an_answer_needs_the_form_of_the_session_and_our_origin(site: Site) -> None:
    question = ask_question(site.desk, "one")
    with httpx2.Client(timeout=60) as client:
        session = site.log_in(client)
        assert "label" in client.get(f"{site.url}/approvals").text
        good = {"choice": "once", "form_token": make_form_token(session)}
        url, ours = f"{site.url}/approvals/{question}", {"origin": site.url}
        refusals = [
            client.post(url, data=good),
            client.post(url, data=good, headers={"origin": "http://127.0.0.1:1"}),
            client.post(url, data={**good, "form_token": "0" * 64}, headers=ours),
            client.post(url, data={"choice": "once"}, headers=ours),
            client.post(url, data={**good, "choice": "always"}, headers=ours),
            client.post(url, data=good, headers={**ours, "cookie": "x=y"}),
        ]
        assert {answer.status_code for answer in refusals} <= {401, 403}
        assert site.person.approval(question).state is ApprovalState.PENDING
        assert client.post(url, data=good, headers=ours).status_code == 303, "the control"
        found = site.person.approval(question)
        assert (found.state, found.decided_by.endswith("in the dashboard")) == (ApprovalState.APPROVED, True)
        assert client.post(url, data=good, headers=ours).status_code == 409


@pytest.mark.parametrize(
    ("choice", "state", "scope"),
    [
        ("once", ApprovalState.APPROVED, ApprovalScope.ONCE),
        ("task", ApprovalState.APPROVED, ApprovalScope.TASK),
        ("repository", ApprovalState.APPROVED, ApprovalScope.REPOSITORY),
        ("deny", ApprovalState.DENIED, ApprovalScope.ONCE),
        ("revoke", ApprovalState.REVOKED, ApprovalScope.ONCE),
    ],
)
def test_a_question_has_the_answers_of_the_command_line(
    site: Site, choice: str, state: ApprovalState, scope: ApprovalScope
) -> None:
    question = ask_question(site.desk, "one")
    with httpx2.Client(timeout=60) as client:
        form = {"choice": choice, "form_token": make_form_token(site.log_in(client))}
        answer = client.post(f"{site.url}/approvals/{question}", data=form, headers={"origin": site.url})
        assert answer.status_code == 303, answer.text
        found = site.person.approval(question)
        assert (found.state, found.scope) == (state, scope)


def test_a_call_that_is_always_asked_about_is_approved_once_only(site: Site) -> None:
    """Control: another question has all answers, in the test below."""
    wanted = {"repo_id": site.desk.repo_id, "prompt": "p", "profile": "generic"}
    site.desk.workbench.request_approval(site.desk.workbench.approval_call("space_repo_create_task", wanted))
    with httpx2.Client(timeout=60) as client:
        site.log_in(client)
        html = client.get(f"{site.url}/approvals").text
    article = next(part for part in html.split("<article ") if "space_repo_create_task" in part).partition(
        "</article>"
    )[0]
    assert [f'value="{choice}"' in article for choice in ("once", "repository", "deny")] == [True, False, True]


def test_the_question_is_shown_whole_with_who_asked(site: Site) -> None:
    question = site.person.approval(ask_question(site.desk, "a label"))
    with httpx2.Client(timeout=60) as client:
        site.log_in(client)
        html = unescape(client.get(f"{site.url}/approvals").text)
    assert "\n".join(question.question) in html
    assert question.arguments in html
    assert question.asked_by is not None
    assert f"{question.asked_by.user} (uid {question.asked_by.uid})" in html
    assert [f'value="{choice}"' in html for choice in ("once", "task", "repository", "deny")] == [True] * 4


def test_a_task_is_restored_and_forked_from_its_page(site: Site) -> None:
    desk, task = site.desk, site.desk.task
    desk.write("f", b"first\n")
    with httpx2.Client(timeout=60, headers={"origin": site.url}) as client:
        form = {"form_token": make_form_token(site.log_in(client))}
        path = f"{site.url}/tasks/{task.id}"

        def press(action: str, **fields: str) -> str:
            answer = client.post(f"{path}/{action}", data={**form, **fields})
            assert answer.status_code == 303, answer.text
            return str(answer.headers["location"])

        assert press("snapshot", label="before") == f"/tasks/{task.id}"
        (saved,) = desk.workbench.snapshots(task.id)
        assert saved.label == "before"
        desk.write("f", b"second\n")
        assert press("restore", state=saved.id) == f"/tasks/{task.id}"
        assert (desk.root / "f").read_bytes() == b"first\n"
        _, before_restore = desk.workbench.snapshots(task.id)
        forked = desk.workbench.task(press("fork", state=before_restore.id).removeprefix("/tasks/"))
        assert (forked.forked_from, (desk.worktree(forked) / "f").read_bytes()) == (task.id, b"second\n")
        assert press("fork", prompt="another").startswith("/tasks/task-")
        assert press("stop") == f"/tasks/{task.id}"
        html = client.get(path).text
        assert client.post(f"{path}/restore", data={**form, "state": "snap-none"}).status_code == 404
        assert client.post(f"{path}/push", data=form).status_code == 404, "there is no such button"
    states = re.findall(r'<tr id="state-(.*?)">.*?<td><code>(.*?)</code></td><td class="actions">', html, re.DOTALL)
    assert states[:4] == [
        ("base", ""), (saved.id, "base"), (before_restore.id, saved.id), (forked.id, before_restore.id)
    ]  # fmt: skip
    operations = re.findall(r"<strong>(.*?)</strong> ", html[html.index('id="timeline"') :])
    assert operations == ["stop", "fork", "fork", "restore", "snapshot", "create"]


def test_the_task_page_says_what_was_edited_with_hashes(site: Site) -> None:
    desk = site.desk
    before = desk.workbench.base_hash(desk.task.id, "f")
    assert before is not None
    edited = desk.workbench.write_file(desk.task.id, "f", b"new\n", before)
    desk.workbench.write_file(desk.task.id, "d/new.py", b"def f():\n", None)
    with httpx2.Client(timeout=60) as client:
        site.log_in(client)
        html = client.get(f"{site.url}/tasks/{desk.task.id}").text
    assert f"{before} to {edited.files[0].sha256_after}" in html
    assert html.count('<span class="kind">edit</span>') == 2
    assert f"<small>{edited.files[0].sha256_after}</small>" in html
    assert '<span class="t-k">def</span> <span class="t-f">f</span>():' in html
    assert "style=" not in html


def test_each_number_has_its_unit_and_its_limit(site: Site) -> None:
    pages = FilledPages(site.desk, "words")
    with httpx2.Client(timeout=60) as client:
        site.log_in(client)
        found = {name: client.get(site.url + path).text for name, path in pages.paths.items()}
    run, host, task = found["run"], found["host"], found["task"]
    texts = {name: read_texts(html) for name, html in found.items()}
    assert "took 1.5 s of 90 s" in texts["run"]
    assert "| 1.5 s of 90 s | unknown on at most 2 CPUs | unknown of 4 GiB | 3 of 512 processes |" in texts["task"]
    assert "Processes3 of 512 processes" in texts["run"]
    assert "| 0.25 of 2 CPUs | 1 MiB of no limit | 3 of 64 processes | 5 s |" in texts["host"]
    assert f"place 1 of 1 | task {pages.task.id[5:13]} | 512 MiB of 1 GiB |" in texts["host"]
    for name, html in found.items():
        cells = re.findall(
            r"<(?:td|dd)[^>]*>([^<]*)</", re.sub(r'<table class="diff">.*?</table>', "", html, flags=re.S)
        )
        assert [cell for cell in cells if re.fullmatch(r"[\d.,]+( of .*\d)?", cell.strip())] == [], name
    assert "CPU: at most 0.8 of 2 CPUs (40 %)" in run
    assert "Memory: at most 2.4 GiB of 3 GiB (81 %)" in run
    assert "Processes: at most 39 of 512 processes (8 %)" in run
    assert "Disk: at most 9.8 MiB of 10 GiB (under 1 %)" in run
    assert "Written to disk: at most 39 MiB, no limit" in run
    assert "unknown of 4 GiB" in run, "what was not measured"
    assert run.count('class="limit"') == task.count('class="limit"') == 2
    assert f"1 of {2 * (os.cpu_count() or 1)} checks run, 1 wait" in host
    assert "1 MiB of 1 GiB" in host
    assert "16 MiB of 20 GiB" in host
    assert "and below 2 GiB and 10,000 files nothing is started" in host


def test_storage_is_a_page_with_its_owners_limits_and_what_gc_would_free(site: Site) -> None:
    pages = FilledPages(site.desk, "words of FIELD")
    with httpx2.Client(timeout=60) as client:
        site.log_in(client)
        html = client.get(f"{site.url}/storage").text
        assert 'href="/storage"' in client.get(f"{site.url}/host").text
    texts = read_texts(html)
    assert "32 MiB of 1 GiB (storage.max_bytes), 2,345 files" in texts
    assert "layers | 16 MiB | 20 GiB (layers.max_bytes) | 1,234 files | beyond a limit" in texts.replace(
        f"{site.desk.repo_id} | ", ""
    )
    assert f"{site.desk.repo_id} | 16 MiB of 64 MiB | 3 files" in texts
    assert f"{pages.task.id[5:13]} | {pages.task.status.value} | {site.desk.repo_id} | 5 MiB of 1 GiB | 3 MiB" in texts
    assert "ref | words of left | 2 MiB | removed | words of why" in texts
    assert "2 MiB of 32 MiB" in texts, "all that gc would free"
    assert "8 GiB and 3,456 files on its file system; below 2 GiB and 456 files nothing is started" in texts


def test_the_storage_page_measures_and_other_pages_show_what_was_measured(site: Site) -> None:
    desk = site.desk
    FilledPages(desk, "words")  # answers for the engine
    del desk.workbench.storage  # that of the class answers again
    pages = ("/", "/host")
    with httpx2.Client(timeout=60) as client:
        session = site.log_in(client)
        before = [read_texts(client.get(site.url + path).text) for path in pages]
        assert "never measured" in before[0]
        assert "It holdsunknown (storage.max_bytes)" in before[1]
        page = client.get(f"{site.url}/storage").text
        storage = read_texts(page)
        measured = desk.workbench.last_storage()
        assert measured is not None
        after = [read_texts(client.get(site.url + path).text) for path in pages]
        assert client.get(f"{site.url}/storage").text == page
        assert desk.workbench.last_storage() == measured, "it was not measured again"
        assert client.post(f"{site.url}/storage/again", headers={"origin": site.url}).status_code == 403
        form = {"form_token": make_form_token(session)}
        again = client.post(f"{site.url}/storage/again", data=form, headers={"origin": site.url})
        assert (again.status_code, again.headers["location"]) == (303, "/storage")
        client.get(f"{site.url}/storage")
        assert desk.workbench.last_storage() != measured, "control: a person asked for it"
    held = format_bytes(measured.repositories[desk.repo_id])
    assert f"{desk.repo_id} | {held} of no limit |" in storage
    assert f"{held} of no limit" in after[0]
    assert f"{format_bytes(measured.bytes)} of no limit (storage.max_bytes), measured at" in after[1]


def test_the_page_of_a_closed_task_has_no_files_and_forks_its_snapshots(site: Site) -> None:
    desk = site.desk
    desk.write("f", b"first\n")
    saved = desk.workbench.snapshot(desk.task.id)
    desk.workbench.close_task(desk.task.id, delete_worktree=True, discard=True)
    with httpx2.Client(timeout=60) as client:
        site.log_in(client)
        html = client.get(f"{site.url}/tasks/{desk.task.id}").text
    assert f'aria-label="Fork {saved.id}"' in html
    assert [word in html for word in ("Restore", "data-events", "Changes <a")] == [False] * 3


def test_the_host_page_is_there_without_an_engine(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise SandboxError(ErrorCode.ENGINE_UNAVAILABLE, "no engine")

    FilledPages(site.desk, "words")
    monkeypatch.setattr(site.person, "guests", fail)
    with httpx2.Client(timeout=60) as client:
        site.log_in(client)
        answer = client.get(f"{site.url}/host")
    assert answer.status_code == 200
    assert "The engine does not answer." in answer.text


def test_a_task_without_a_pull_request_says_so(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise SandboxError(ErrorCode.NOT_FOUND, "no pull request", hint="sandbox pr open")

    monkeypatch.setattr(site.person, "pull_request_status", fail)
    with httpx2.Client(timeout=60) as client:
        site.log_in(client)
        answer = client.get(f"{site.url}/tasks/{site.desk.task.id}/pull-request")
    assert answer.status_code == 404
    assert "sandbox pr open" in answer.text


@pytest.mark.parametrize("reason", ["server_lost", "no_worker", "other"])
def test_a_task_that_no_worker_answers_about_is_shown_as_it_is_known(site: Site, reason: str) -> None:
    """Without a question if the cluster does not say where it is. Control: any other error is that of the page."""
    asked, place = list[str](), TaskPlace(state=PlaceState.UNKNOWN)

    def fail(task_id: str, **_bounds: object) -> None:
        asked.append(task_id)
        raise SandboxError(ErrorCode.NETWORK_ERROR, "no answer", reason=reason)

    bench: Any = site.desk.workbench
    bench.log = fail
    bench.places = lambda task_ids: dict.fromkeys(task_ids, place)
    path = f"{site.url}/tasks/{site.desk.task.id}"
    with httpx2.Client(timeout=60) as client:
        site.log_in(client)
        found = client.get(path)
        assert (found.status_code, "No worker of the cluster answers" in found.text) == (200, True)
        assert "the cluster does not say where it is" in found.text
        assert asked == []
        place = TaskPlace(state=PlaceState.ON_WORKER)
        found = client.get(path)
        is_shown = reason != "other"
        assert (found.status_code == 200, "No worker of the cluster answers" in found.text) == (is_shown, is_shown)
        assert asked == [site.desk.task.id]


@pytest.mark.parametrize("is_other", [True, False])
def test_a_browser_of_another_user_learns_the_way_out_and_the_link_stays_valid(
    site: Site, monkeypatch: pytest.MonkeyPatch, is_other: bool
) -> None:
    monkeypatch.setattr(dashboard_module, "is_other_user", lambda *_: is_other)
    port = LoopbackPort("127.0.0.1", int(site.url.rpartition(":")[2]))
    link = site.sessions.make_link()
    request = Request(
        {
            "type": "http", "method": "GET", "path": "/login", "headers": [], "query_string": f"link={link}".encode(),
            "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2),
        }
    )  # fmt: skip
    answer = Dashboard(site.person, site.sessions, site.url, port).log_in(request)
    assert (answer.status_code, b"sandbox serve --http" in answer.body) == ((403, True) if is_other else (303, False))
    assert (site.sessions.open_session(link) is not None) == is_other


@pytest.mark.parametrize(
    ("status", "detail", "said"),
    [
        (405, "Method Not Allowed", "/x cannot be asked by POST."),
        (404, "Not Found", "There is no /x here."),
        (400, "Too many fields.", "Too many fields."),
        (403, "", "Forbidden."),
    ],
)
def test_an_http_error_says_what_is_wrong(status: int, detail: str, said: str) -> None:
    request = Request({"type": "http", "method": "POST", "path": "/x", "headers": []})
    error = HTTPException(status)
    error.detail = detail
    answer = show_http_error(request, error)
    assert (answer.status_code, bytes(answer.body).decode().splitlines()[0]) == (status, said)
