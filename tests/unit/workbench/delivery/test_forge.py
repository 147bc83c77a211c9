"""Which forge a remote is on, where its API is, and what goes there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from sandbox.errors import ErrorCode, SandboxError
from sandbox.forges.table import compare_url
from sandbox.models import Host
from sandbox.workbench.controller.services import Services, build_services
from sandbox.workbench.delivery.forge import connect_forge, find_project, has_forge, require_forge

HOSTS = '[remotes]\ngithub_hosts = ["ghe.example"]\ngitlab_hosts = ["lab.example"]\nallow_http = false\n'


def parts_of(home: Path, config: str = HOSTS, **environ: str) -> Services:
    home.mkdir(exist_ok=True)
    (home / "config.toml").write_text(config)
    (home / "credentials.toml").touch(mode=0o600)
    entries = [f'[[credential]]\nhost = "{host}"\nsecret = "token-of-{host}"\n' for host in ("*.example", "github.com")]
    (home / "credentials.toml").write_text("".join(entries))
    return build_services(home, {"HOME": str(home), **environ}, allow_file=True)


@pytest.mark.parametrize(
    ("url", "api_url", "path"),
    [
        ("https://github.com/Owner/Name", "https://api.github.com", "owner/name"),
        ("git@github.com:owner/name.git", "https://api.github.com", "owner/name"),
        ("https://ghe.example/o/n", "https://ghe.example/api/v3", "o/n"),
        ("https://ghe.example:8443/o/n", "https://ghe.example:8443/api/v3", "o/n"),
        ("ssh://git@ghe.example:2222/o/n", "https://ghe.example/api/v3", "o/n"),
        ("https://lab.example/g/sub/n", "https://lab.example/api/v4", "g/sub/n"),
    ],
)
def test_the_api_is_where_the_forge_has_it(tmp_path: Path, url: str, api_url: str, path: str) -> None:
    services = parts_of(tmp_path / "home")
    project = find_project(services.remotes, services.remotes.parse(url))
    assert (project.api_url, project.path) == (api_url, path)
    assert project.credential.secret.get_secret_value().startswith("token-of-")


@pytest.mark.parametrize("name", ["ghe.example", "GHE.Example"])
def test_a_configured_api_goes_before(tmp_path: Path, name: str) -> None:
    services = parts_of(tmp_path / "home", HOSTS + f'api_urls = {{ "{name}" = "https://api.ghe.example/" }}\n')
    assert (
        find_project(services.remotes, services.remotes.parse("https://ghe.example/o/n")).api_url
        == "https://api.ghe.example"
    )


@pytest.mark.parametrize(
    "url",
    [
        "http://api.example", "ftp://api.example", "https://u@api.example", "api", "https://a/?x", "https://[a",
        "https://a:b/", "https://a:0/",
    ],
)  # fmt: skip
def test_the_token_goes_nowhere_unencrypted_or_unclear(tmp_path: Path, url: str) -> None:
    services = parts_of(tmp_path / "home", HOSTS + f'api_urls = {{ "ghe.example" = "{url}" }}\n')
    with pytest.raises(SandboxError) as caught:
        find_project(services.remotes, services.remotes.parse("https://ghe.example/o/n"))
    assert caught.value.code is ErrorCode.INVALID_INPUT


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/api", "http://[::1]:1/api", "http://localhost:1"])
def test_this_machine_may_be_asked_unencrypted(tmp_path: Path, url: str) -> None:
    services = parts_of(tmp_path / "home", HOSTS + f'api_urls = {{ "ghe.example" = "{url}" }}\n')
    assert find_project(services.remotes, services.remotes.parse("https://ghe.example/o/n")).api_url == url


def test_without_a_token_the_error_says_how_to_store_one(tmp_path: Path) -> None:
    services = parts_of(tmp_path / "home")
    with pytest.raises(SandboxError) as caught:
        find_project(services.remotes, services.remotes.parse("https://gitlab.com/o/n"))
    assert caught.value.code is ErrorCode.AUTH_FAILED
    assert "credentials set gitlab.com" in caught.value.hint


def test_a_token_of_the_environment_serves_a_repository_cloned_over_ssh(tmp_path: Path) -> None:
    services = parts_of(tmp_path / "home", GITLAB_TOKEN="glpat-x")
    assert (
        find_project(
            services.remotes, services.remotes.parse("git@gitlab.com:o/n.git")
        ).credential.secret.get_secret_value()
        == "glpat-x"
    )


@pytest.mark.parametrize(
    ("url", "page"),
    [
        ("https://codeberg.org/o/n", "https://codeberg.org/o/n/compare/main...space-agent%2Fx"),
        ("https://bitbucket.org/o/n", "https://bitbucket.org/o/n/pull-requests/new?source=space-agent%2Fx&dest=main"),
        ("https://git.elsewhere.example/o/n", None),
    ],
)
def test_no_forge_is_an_error_that_names_the_page_where_one_is_known(
    tmp_path: Path, url: str, page: str | None
) -> None:
    remote = parts_of(tmp_path / "home").remotes.parse(url)
    assert remote.host is Host.UNKNOWN
    assert compare_url(remote, "space-agent/x", "main") == page
    with pytest.raises(SandboxError) as caught:
        require_forge(remote, "space-agent/x", "main")
    assert caught.value.code is ErrorCode.FORGE_UNSUPPORTED
    assert (page or "remotes.github_hosts") in caught.value.hint


def test_a_local_path_gets_no_advice_about_servers(tmp_path: Path) -> None:
    remote = replace(parts_of(tmp_path / "home").remotes.parse("https://git.elsewhere.example/o/n"), protocol="file")
    with pytest.raises(SandboxError) as caught:
        require_forge(remote, "space-agent/x", "main")
    assert "URL of its forge" in caught.value.hint
    assert "remotes.github_hosts" not in caught.value.hint


def test_a_kind_of_host_without_a_row_is_unsupported_and_no_gitlab(tmp_path: Path) -> None:
    services = parts_of(tmp_path / "home")
    known = services.remotes.parse("https://lab.example/o/n")
    remote, project = replace(known, host=cast("Host", "imaginary")), find_project(services.remotes, known)
    assert has_forge(known)
    assert not has_forge(remote)

    def connect() -> None:
        with connect_forge(remote, project):
            pytest.fail("connected")

    for attempt in (
        lambda: require_forge(remote, "topic", "main"),
        lambda: find_project(services.remotes, remote),
        connect,
    ):
        with pytest.raises(SandboxError) as caught:
            attempt()
        assert caught.value.code is ErrorCode.FORGE_UNSUPPORTED
