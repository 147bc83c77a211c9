"""One remote, one URL, one id; and nothing that git could take for an order."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from devtools.host_speed import slowness
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import Host
from sandbox.remotes import Remote, parse_remote, resolve_relative_url
from tests.unit.conftest import refused, run

SECRET = "hunter2-s3cr3t"

SPELLINGS = {
    "https://github.com/owner/repo.git": (
        "github.com-owner-repo",
        [
            "https://github.com/owner/repo",
            "https://github.com/owner/repo.git",
            "https://github.com/owner/repo/",
            "https://github.com/owner/repo.git/",
            "https://github.com:443/owner/repo",
            "HTTPS://GitHub.com/Owner/Repo",
            "https://github.com//owner/repo",
        ],
    ),
    "ssh://git@github.com/owner/repo.git": (
        "github.com-owner-repo",
        [
            "git@github.com:owner/repo",
            "git@github.com:owner/repo.git",
            "git@github.com:/owner/repo.git",
            "github.com:owner/repo",
            "git@GITHUB.com:OWNER/Repo.git/",
            "ssh://git@github.com/owner/repo",
            "ssh://github.com/owner/repo",
            "ssh://git@github.com:22/owner/repo.git",
            "git+ssh://git@github.com/owner/repo",
            "ssh+git://git@github.com/owner/repo",
        ],
    ),
    "https://gitlab.com/group/sub/deeper/repo.git": (
        "gitlab.com-group-sub-deeper-repo",
        [
            "https://gitlab.com/group/sub/deeper/repo",
            "https://gitlab.com/Group/Sub/Deeper/Repo.git",
        ],
    ),
    "https://git.example.org/Owner/Repo.git": (
        "git.example.org-owner-repo",
        ["https://GIT.example.org/Owner/Repo", "https://git.example.org:443/Owner/Repo.git"],
    ),
    "https://git.example.org:8443/o/r.git": (
        "git.example.org-8443-o-r",
        ["https://git.example.org:8443/o/r"],
    ),
    "https://[2001:db8::1]:8443/o/r.git": (
        "2001-db8-1-8443-o-r",
        ["https://[2001:db8::1]:8443/o/r"],
    ),
    "https://xn--hst-sna.example/o/r.git": (
        "xn--hst-sna.example-o-r",
        ["https://h\u00f6st.example/o/r", "https://H\u00d6ST.example/o/r.git", "https://XN--HST-SNA.example/o/r/"],
    ),
    "https://host/o/~r.git": ("host-o--r", ["https://host/%6F/%7Er"]),
    "https://git.example.org/r.git": ("git.example.org--r", ["https://git.example.org/r"]),
}
PLAIN_SSH = [
    # as written, what git is given, identity
    ("ssh://alice@git.example.org:2222/o/r", "ssh://alice@git.example.org:2222/o/r", "git.example.org-2222-o-r"),
    (
        "ssh://alice@git.example.org:2222/o/r.git/",
        "ssh://alice@git.example.org:2222/o/r.git",
        "git.example.org-2222-o-r",
    ),
    ("ssh://alice@HOST:22/srv/R", "ssh://alice@host/srv/R", "host-srv-r"),
    ("alice@host:/srv/r", "ssh://alice@host/srv/r", "host-srv-r"),
    ("git+ssh://alice@host/srv/%72", "ssh://alice@host/srv/r", "host-srv-r"),
    ("alice@host:r", "alice@host:r", "host--alice-r"),
    ("alice@host:r.git", "alice@host:r.git", "host--alice-r"),
    ("alice@host:~/r", "alice@host:~/r", "host--alice-r"),
    ("alice@host:~alice/r.git", "alice@host:~alice/r.git", "host--alice-r"),
    ("ssh://alice@host/~/r.git", "ssh://alice@host/~/r.git", "host--alice-r"),
    ("ssh://alice@host/~alice/r", "ssh://alice@host/~alice/r", "host--alice-r"),
    ("ssh://bob@host/~alice/r", "ssh://bob@host/~alice/r", "host--alice-r"),
    ("ssh://alice@host:2222/~/p/r", "ssh://alice@host:2222/~/p/r", "host-2222--alice-p-r"),
    ("bob@host:r", "bob@host:r", "host--bob-r"),
    ("git@host:r.git", "git@host:r.git", "host--r"),
    ("host:o/r", "git@host:o/r", "host-o-r"),
    ("ssh://host/o/r.git", "ssh://git@host/o/r.git", "host-o-r"),
    ("git@host:~/o/r", "git@host:~/o/r", "host-o-r"),
    ("git@host:~alice/r", "git@host:~alice/r", "host--alice-r"),
    ("git@[2001:db8::1]:o/r", "git@[2001:db8::1]:o/r", "2001-db8-1-o-r"),
    ("ssh://[2001:DB8::1]:22/o/r.git", "ssh://git@[2001:db8::1]/o/r.git", "2001-db8-1-o-r"),
]


@pytest.mark.parametrize(
    ("spelling", "url", "identity"),
    [pytest.param(s, url, name, id=s) for url, (name, all_) in SPELLINGS.items() for s in all_],
)
def test_every_spelling_of_a_remote_is_one_url_and_one_id(spelling: str, url: str, identity: str) -> None:
    remote = parse_remote(spelling)
    assert (remote.url, remote.id) == (url, identity)


@pytest.mark.parametrize(("spelling", "url", "identity"), PLAIN_SSH, ids=[s for s, _, _ in PLAIN_SSH])
def test_a_plain_ssh_server_gets_the_path_as_written(spelling: str, url: str, identity: str) -> None:
    remote = parse_remote(spelling)
    assert (remote.url, remote.id) == (url, identity)
    assert parse_remote(url) == remote


@pytest.mark.parametrize("spelling", [s for s, _, _ in PLAIN_SSH])
def test_git_asks_the_server_for_the_same_path_as_for_the_spelling_itself(spelling: str, tmp_path: Path) -> None:
    """Real git on both, with an ssh command that writes down what it is told to do."""
    remote = parse_remote(spelling)
    written = spelling if "@" in spelling else spelling.replace("ssh://", "ssh://git@").replace("host:o", "git@host:o")

    assert asked(remote.url, tmp_path) == asked(written, tmp_path)


def asked(url: str, folder: Path) -> list[str]:
    script, said = folder / "ssh", folder / "said"
    script.write_text(f'#!/bin/sh\nfor word do echo "$word"; done >{said}\nexit 1\n')
    script.chmod(0o700)
    run(["git", "ls-remote", "--", url], env={"GIT_SSH": str(script), "GIT_SSH_VARIANT": "ssh"}, code=128)
    words = [w for w in said.read_text().lower().splitlines() if w not in {"-o", "sendenv=git_protocol", "-p", "22"}]
    return [w.replace("/'", "'") for w in words]


def test_different_homes_are_different_repositories() -> None:
    spellings = ["alice@host:r", "bob@host:r", "ssh://alice@host/r"]
    assert len({(r.owner, r.name) for r in map(parse_remote, spellings)}) == 3


def test_a_configured_forge_has_one_url_for_every_spelling() -> None:
    forges = {"git.corp.example": Host.GITLAB}
    spellings = ["git@git.corp.example:o/r", "ssh://git@git.corp.example/o/r", "git.corp.example:/O/r.git"]
    assert {parse_remote(s, forges=forges).url for s in spellings} == {"ssh://git@git.corp.example/o/r.git"}


@pytest.mark.parametrize(
    ("page", "hint"),
    [
        ("github.com/a/b/pull/7", "Leave out `/pull/7` and what follows it, and add `--ref pr/7`."),
        ("github.com/a/b/pull/7/files?w=1#d", "Leave out `/pull/7` and what follows it, and add `--ref pr/7`."),
        ("github.com/a/b/tree/main", "Leave out `/tree` and what follows it; `--ref` takes a branch, tag or commit."),
        ("github.com/a/b/commit/0123", "Leave out `/commit` and what follows it; `--ref` takes"),
        ("github.com/a/b/blob/main/x%2Fy.c#L1", "Leave out `/blob` and what follows it; `--ref` takes"),
        ("github.com/a/b/issues", "Leave out `/issues` and what follows it."),
        ("gitlab.com/g/s/b/-/merge_requests/12/diffs", "Leave out `/-/merge_requests/12` and what follows it, and add"),
        ("gitlab.com/g/b/-/tree/main?ref_type=heads", "Leave out `/-/tree` and what follows it; `--ref` takes"),
        ("git.corp.example/g/b/-/pipelines", "Leave out `/-/pipelines` and what follows it."),
        ("github.com/a/b?tab=readme-ov-file", "Leave out what follows the `?` or `#`."),
        ("host/a/b#readme", "Leave out what follows the `?` or `#`."),
    ],
    ids=lambda value: value.partition(" ")[0],
)
def test_the_address_of_a_page_is_answered_with_what_to_write(page: str, hint: str) -> None:
    with pytest.raises(SandboxError) as caught:
        parse_remote(f"https://{page}")
    assert caught.value.code is ErrorCode.INVALID_INPUT
    assert hint in caught.value.hint


def test_a_name_that_pages_of_a_forge_have_is_a_name_elsewhere() -> None:
    assert parse_remote("https://host/a/b/pull/7").name == "7"
    assert parse_remote("https://gitlab.com/a/b/issues").name == "issues"
    assert parse_remote("https://github.com/tree/pull").name == "pull"


@pytest.mark.parametrize(
    "text", ["alice@host:~", "ssh://alice@host/~/", "git@host:~git", "git@host:a%2fb", "a@host:%7e/r"]
)
def test_a_home_is_no_repository_and_scp_paths_are_not_decoded(text: str) -> None:
    with refused(ErrorCode.INVALID_INPUT):
        parse_remote(text)


def test_no_repository_has_the_id_of_a_task() -> None:
    remote = parse_remote("https://task-12345678/1234-1234-1234/123456789012")

    assert remote.id == "host-task-12345678-1234-1234-1234-123456789012"


def test_http_is_a_remote_where_it_is_allowed() -> None:
    assert parse_remote("http://host:80/o/r", allow_http=True).url == "http://host/o/r.git"


def test_a_configured_host_is_a_forge_and_folds_case() -> None:
    forges = {"git.corp.example": Host.GITLAB}

    remote = parse_remote("https://git.corp.example/Group/Sub/Name", forges=forges)

    assert (remote.host, remote.owner, remote.name) == (Host.GITLAB, "group/sub", "name")
    assert remote.url == "https://git.corp.example/group/sub/name.git"
    assert parse_remote("git@git.corp.example:Group/Sub/Name.git", forges=forges).id == remote.id
    assert parse_remote("https://git.corp.example/Group/Sub/Name").owner == "Group/Sub"


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("https://github.com/o/r", Host.GITHUB),
        ("git@gitlab.com:o/r", Host.GITLAB),
        ("https://github.com.evil.example/o/r", Host.UNKNOWN),
        ("https://notgithub.com/o/r", Host.UNKNOWN),
        ("https://githu\u0432.com/o/r", Host.UNKNOWN),
    ],
)
def test_only_the_forge_itself_is_the_forge(url: str, kind: Host) -> None:
    assert parse_remote(url).host is kind


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("-u./x", id="leading-dash"),
        pytest.param("--upload-pack=touch /tmp/x", id="option"),
        pytest.param("https://-oProxyCommand=x/o/r", id="option-host"),
        pytest.param("ssh://-oProxyCommand=x/o/r", id="ssh-option-host"),
        pytest.param("-oProxyCommand=x:o/r", id="scp-option-host"),
        pytest.param("ssh://-oProxyCommand=x@host/o/r", id="option-user"),
        pytest.param("git@host:-o/r", id="option-segment"),
        pytest.param("https://host/o/r?x=1", id="query"),
        pytest.param("https://host/o/r#x", id="fragment"),
        pytest.param("https://host/o/\nr", id="newline"),
        pytest.param("https://host/o/r\r", id="carriage-return"),
        pytest.param("https://host/o/r\0", id="nul"),
        pytest.param("https://host/o/r\x7f", id="delete"),
        pytest.param("https://host/o/a b", id="space"),
        pytest.param("https://host/o/%0ar", id="encoded-newline"),
        pytest.param("https://host/%2e%2e/r", id="encoded-dots"),
        pytest.param("http://host/o/r", id="http"),
        pytest.param("file:///srv/r", id="file"),
        pytest.param("/srv/r", id="path"),
        pytest.param("./r", id="relative-path"),
        pytest.param("ext::sh -c x", id="ext-with-space"),
        pytest.param("ext::sh", id="ext"),
        pytest.param("fd::7", id="fd"),
        pytest.param("git://host/o/r", id="git"),
        pytest.param("ftp://host/o/r", id="ftp"),
        pytest.param("ext://host/o/r", id="ext-url"),
        pytest.param("https://host/o/../r", id="dot-dot"),
        pytest.param("https://host/./r", id="dot"),
        pytest.param("git@host:../../r", id="scp-dot-dot"),
        pytest.param("https://host/", id="no-path"),
        pytest.param("https://host/.git", id="only-suffix"),
        pytest.param("https:///o/r", id="no-host"),
        pytest.param("https://host:0/o/r", id="port-zero"),
        pytest.param("https://host:99999/o/r", id="port-too-high"),
        pytest.param("https://host:x/o/r", id="port-word"),
        pytest.param("https://h\u00f6st..x/o/r", id="idn-empty-label"),
        pytest.param("https://\u200d\u200d.example/o/r", id="idn-joiners-only"),
        pytest.param("https://host/o%2Fp/r", id="encoded-slash"),
        pytest.param("https://host/o/r%00", id="encoded-nul"),
        pytest.param("https://[::1/o/r", id="broken-ipv6"),
        pytest.param("https://[::1%25eth0]/o/r", id="ipv6-zone"),
        pytest.param("owner/repo", id="no-host-at-all"),
        pytest.param("https://host/" + "a/" * 30 + "r", id="too-many-segments"),
        pytest.param("https://host/o/" + "r" * 3000, id="too-long"),
    ],
)
def test_what_is_no_network_remote_is_invalid_input(text: str) -> None:
    with refused(ErrorCode.INVALID_INPUT) as caught:
        parse_remote(text)
    assert caught.value.hint
    assert "local path" not in caught.value.hint, "it would be refused"


@pytest.mark.parametrize(
    "text",
    [
        "https://github.com/o/n%0a",
        "https://h.example/o%0a/n",
        "ssh://git@h.example/o/n%0a",
        "ssh://h.example/o/n%0A.git",
        "https://h.example/o/n%0a/",
        "ssh://git%0a@h.example/o/n",
        "https://h.example%0a/o/n",
    ],
)
def test_an_encoded_newline_is_refused_wherever_it_is(text: str) -> None:
    """The saved URL would have it, and could not be parsed again. Control: the URL without it."""
    assert parse_remote(text.replace("%0a", "").replace("%0A", "")).name == "n"
    with refused(ErrorCode.INVALID_INPUT):
        parse_remote(text)


def test_a_name_alone_is_told_how_a_path_is_written_where_paths_are_remotes() -> None:
    with refused(ErrorCode.INVALID_INPUT) as caught:
        parse_remote("calc", allow_file=True)
    assert "A local path begins with /, ./" in caught.value.hint


@pytest.mark.parametrize(
    "text",
    [
        f"https://user:{SECRET}@host/o/r",
        f"https://{SECRET}@github.com/o/r",
        f"https://:{SECRET}@host/o/r",
        f"ssh://git:{SECRET}@host/o/r",
        f"http://user:{SECRET}@host/o/r",
        f"git:{SECRET}@host:o/r",
        f"https://host/o/r?token={SECRET}",
        f"https://host/o/r#{SECRET}",
        f"ftp://user:{SECRET}@host/o/r",
        f"https://user:{SECRET}@host:bad/o/r",
        f"https://user:{SECRET}@-host/o/r",
        f"-https://user:{SECRET}@host/o/r",
        f"https://user:{SECRET}@host/o/ r",
    ],
)
@pytest.mark.parametrize("open_minded", [False, True], ids=["strict", "all-allowed"])
def test_a_refusal_never_repeats_a_secret(text: str, open_minded: bool) -> None:
    with refused(ErrorCode.INVALID_INPUT) as caught:
        parse_remote(text, allow_file=open_minded, allow_http=open_minded)
    error = caught.value
    assert SECRET not in f"{error} {error.brief} {error.details} {error.hint} {error.payload()} {error!r}"


def test_a_hostile_host_name_is_refused_quickly() -> None:
    started = time.monotonic()
    with refused(ErrorCode.INVALID_INPUT):
        parse_remote("https://" + "a" * 200 + "_/o/r")
    assert time.monotonic() - started < 0.5 * slowness()


def test_a_local_path_is_one_remote_however_it_is_spelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    spellings = [f"{tmp_path}/r", "./r", "x/../r"[1:].replace("/../", "./"), f"file://{tmp_path}/r", "~/../r"]
    remotes = {parse_remote(s, allow_file=True) for s in spellings}
    assert {r.url for r in remotes} == {f"file://{tmp_path}/r"}
    assert len({r.id for r in remotes}) == 1


@pytest.mark.parametrize("name", ["a?b", "a#b", "a%41b", "a%2e", "a+b", "a  b ", "\u00e9"])
def test_a_local_path_means_itself_to_git(tmp_path: Path, name: str) -> None:
    run(["git", "init", "--quiet", "--bare", str(tmp_path / name)])
    remote = parse_remote(str(tmp_path / name), allow_file=True)
    run(["git", "ls-remote", "--", remote.url])
    assert parse_remote(remote.url, allow_file=True) == remote


def test_two_directories_of_one_name_are_two_remotes() -> None:
    one, two = (parse_remote(f"/{d}/r", allow_file=True) for d in ("a", "b"))
    assert one.id != two.id


@pytest.mark.parametrize(
    "text",
    [
        "file://",
        "file://host/srv/r",
        "file:///srv/r?x",
        "file:///srv/a b",
        "/srv/a\tb",
        "file:///srv/r?",
        "file:///srv%00/r",
        "file:///%ff",
        "/srv/\udcff",
    ],
)
def test_a_file_url_names_exactly_one_local_path(text: str) -> None:
    with refused(ErrorCode.INVALID_INPUT):
        parse_remote(text, allow_file=True)


SCHEMES = ("https://", "ssh://", "git+ssh://", "file://", "http://", "ext::", "git@", "")
HOSTS = ("host", "github.com", "[::1]", "u@h", "u:p@h", "-h", "")
GLUE = (
    "/",
    "//",
    ":",
    "@",
    "?",
    "#",
    "..",
    ".",
    "-",
    "~",
    "%2e",
    ".git",
    ":22",
    ":0",
    "\\",
    "\u202e",
    "o",
    "R",
    "/o/r",
)
PIECES = st.sampled_from(SCHEMES + HOSTS + GLUE)
REMOTE_TEXT = st.one_of(st.text(max_size=40), st.lists(PIECES, max_size=8).map("".join))


@settings(max_examples=250)
@given(REMOTE_TEXT)
def test_any_text_is_a_remote_or_invalid_input_and_a_remote_is_stable(text: str) -> None:
    remote = _parsed(text)
    if remote is None:
        return
    again = parse_remote(remote.url, allow_file=True, allow_http=True)
    assert (again.url, again.id) == (remote.url, remote.id)
    assert not remote.url.startswith("-")
    assert not set(remote.id) - set("abcdefghijklmnopqrstuvwxyz0123456789._-")
    assert not remote.id.startswith((".", "-"))


def _parsed(text: str) -> Remote | None:
    try:
        return parse_remote(text, allow_file=True, allow_http=True)
    except SandboxError as error:
        if error.code is not ErrorCode.INVALID_INPUT:
            raise
        return None


@pytest.mark.parametrize(
    ("parent", "text", "url"),
    [
        ("https://github.com/o/n", "../lib.git", "https://github.com/o/lib.git"),
        ("https://github.com/o/n", "../../p/lib", "https://github.com/p/lib"),
        ("https://example.com:8443/o/n", "./lib", "https://example.com:8443/o/n/lib"),
        ("me@example.com:o/n", "../lib", "me@example.com:o/lib"),
        ("ssh://me@example.com:2222/o/n", "../lib", "ssh://me@example.com:2222/o/lib"),
        ("https://github.com/o/n", "https://gitlab.com/p/lib", "https://gitlab.com/p/lib"),
        ("https://github.com/o/n", "-u./x", "-u./x"),
    ],
)
def test_the_address_of_a_submodule_may_be_relative_to_its_parents(parent: str, text: str, url: str) -> None:
    assert resolve_relative_url(parse_remote(parent), text) == url


@pytest.mark.parametrize("text", ["../../../x", "../../../../evil.example/x"])
def test_a_relative_address_stays_on_its_parents_host(text: str) -> None:
    with refused(ErrorCode.INVALID_INPUT):
        resolve_relative_url(parse_remote("https://github.com/o/n"), text)


def test_a_relative_address_keeps_a_local_parents_scheme() -> None:
    parent = parse_remote("/srv/git/n.git", allow_file=True)
    assert resolve_relative_url(parent, "../lib.git") == "file:///srv/git/lib.git"
