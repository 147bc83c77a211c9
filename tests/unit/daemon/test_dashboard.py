"""The dashboard over a real home: its pages, its sessions, its forms."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from sandbox.daemon.browser_sessions import COOKIE, LINK_S, Sessions, make_form_token
from sandbox.daemon.page_templates import HEADERS
from sandbox.models import ApprovalState
from tests.unit.conftest import Upstream
from tests.unit.daemon.dashboard_site import Site, open_site
from tests.unit.desk import Desk


@pytest.fixture
def site(upstream: Upstream, tmp_path: Path) -> Iterator[Site]:
    with open_site(Desk(upstream, tmp_path / "sandbox-home")) as found:
        yield found


def ask_question(desk: Desk, label: str) -> str:
    call = desk.workbench.approval_call("space_repo_snapshot", {"task_id": desk.task.id, "label": label})
    return desk.workbench.request_approval(call).id


def test_each_page_is_shown_to_a_person_and_to_nobody_else(site: Site) -> None:
    paths = ("/", f"/tasks/{site.desk.task.id}", "/approvals", "/host", f"/tasks/{site.desk.task.id}/events")
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
        for path in paths[:3]:  # the host page asks the engine, and the events do not end
            answer = client.get(site.url + path)
            assert answer.status_code == 200, answer.text
            assert {name: answer.headers[name] for name in HEADERS} == HEADERS
        assert client.get(f"{site.url}/tasks/task-00000000-0000-4000-8000-000000000000").status_code == 404
        assert client.get(f"{site.url}/runs/..%2f..%2fregistry").status_code == 404
        assert client.get(f"{site.url}/static/..%2fhome.html").status_code == 404


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
