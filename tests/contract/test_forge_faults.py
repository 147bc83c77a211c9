"""What the stand-ins for forges can do wrong on purpose, and the answers that were recorded."""

from __future__ import annotations

import pytest
import requests

from devtools.forges import faults, gitlabapi, graphql, openapi, packages
from devtools.forges.cases import asked_and_answered, names, recorded
from devtools.forges.exchange import Request
from devtools.forges.fixtures import GitHub
from devtools.forges.server import StandIn

PULLS = "/repos/[^/]+/[^/]+/pulls"


@pytest.mark.parametrize("name", names("github"))
def test_recorded_answers_of_github_fit_its_description(name: str, forge_packages: None) -> None:
    asked, answer = asked_and_answered("github", name)
    method, path = asked.split()
    request = Request(method, path, "", {}, b'{"query": "query { viewer { login } }"}', "https://api.github.com")
    if path == "/graphql":
        assert graphql.misanswered(graphql.load(packages.GITHUB_GRAPHQL), request, answer) == []
    else:
        assert openapi.load(packages.GITHUB_OPENAPI).misanswered(request, answer) == []


@pytest.mark.parametrize("name", names("gitlab"))
def test_recorded_answers_of_gitlab_fit_its_description(name: str) -> None:
    asked, answer = asked_and_answered("gitlab", name)
    method, path = asked.split()
    request = Request(method, path, "", {}, b"", "https://gitlab.com/api/v4")
    assert openapi.OpenApi(gitlabapi.description()).misanswered(request, answer) == []


def _asked(github: GitHub, method: str = "GET", **words: object) -> requests.Response:
    headers = {"Authorization": f"token {github.token}"}
    url = f"{github.api_url}/repos/demo-owner/demo/pulls"
    return requests.request(method, url, headers=headers, json=words or None, timeout=30)


def test_answers_come_in_turn_and_then_as_usual(github: GitHub) -> None:
    github.on("GET", PULLS, recorded("github", "secondary-rate-limit-429"), faults.server_error(503))
    github.on("POST", PULLS, recorded("github", "archived"), forever=True)
    assert [_asked(github).status_code for _ in range(3)] == [429, 503, 200]
    words = {"title": "x", "head": "topic", "base": "main"}
    assert [_asked(github, "POST", **words).status_code for _ in range(3)] == [403, 403, 403]
    assert (github.count("GET", PULLS), github.count("POST", PULLS)) == (3, 3)


def test_an_answer_is_lost_after_the_work_is_done(github: GitHub) -> None:
    github.push("topic")
    github.on("POST", PULLS, faults.lost)
    with pytest.raises(requests.ConnectionError):
        _asked(github, "POST", title="x", head="topic", base="main")
    assert [pull["number"] for pull in _asked(github).json()] == [1]


@pytest.mark.parametrize(("spoil", "timeout_s"), [(faults.cut, 30), (faults.stalled, 0.2)], ids=["cut", "stalled"])
def test_half_an_answer_is_no_answer(github: GitHub, spoil: faults.Spoil, timeout_s: float) -> None:
    github.push("topic")
    _asked(github, "POST", title="x", head="topic", base="main")
    github.on("GET", PULLS, spoil)
    with pytest.raises(requests.RequestException):
        requests.get(f"{github.api_url}/repos/demo-owner/demo/pulls", timeout=timeout_s,
                     headers={"Authorization": f"token {github.token}"})  # fmt: skip


def test_an_answer_may_be_long_slow_or_nonsense(github: GitHub) -> None:
    github.on("GET", PULLS, faults.padded(10_000_000), faults.dribbling, faults.not_json())
    assert len(_asked(github).content) > 10_000_000
    assert _asked(github).json() == []
    with pytest.raises(ValueError, match="Expecting value"):
        _asked(github).json()


def test_a_token_that_goes_along_to_another_host_is_seen(github: GitHub, elsewhere: StandIn) -> None:
    log = f"{github.api_url}/repos/demo-owner/demo/actions/jobs/5/logs"
    headers = {"Authorization": f"token {github.token}"}
    assert requests.get(log, headers=headers, timeout=30).url == f"{elsewhere.url}/logs/5?sig=signed"
    assert ([r.path for r in elsewhere.requests], elsewhere.saw(github.token)) == (["/logs/5"], False)
    requests.get(f"{elsewhere.url}/logs/5", headers=headers, timeout=30)
    assert elsewhere.saw(github.token)


def test_an_answer_that_is_known_is_not_sent_again(github: GitHub) -> None:
    first = _asked(github)
    headers = {"Authorization": f"token {github.token}", "If-None-Match": first.headers["ETag"]}
    again = requests.get(first.url, headers=headers, timeout=30)
    assert (again.status_code, again.content) == (304, b"")
