"""THREATS S73 to S76, S163: a repository of Git LFS, or its server, that wants more than to give out files.

The control of each: what a careless client does with the same answers.
"""

from __future__ import annotations

import gc
import gzip
import json
import os
import re
import ssl
import tracemalloc
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from hashlib import sha256
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import requests
import trustme

from devtools.forges.exchange import Answer
from devtools.forges.lfs import TOKEN, LfsHost, LfsRules, pointer_of, serving_lfs, store_credential
from devtools.forges.server import Elsewhere, StandIn, serving
from sandbox.credentials import make_credential
from sandbox.errors import ErrorCode, SandboxError
from sandbox.forges import lfs_client
from sandbox.forges.lfs_client import HostRules, LfsServer, download
from sandbox.git.entries import REGULAR, TreeEntry
from sandbox.git.lfs_pointers import PointedFile, Pointer, parse_pointer
from sandbox.workbench import Workbench
from sandbox.workspaces.lfs_objects import LfsObjects
from tests.unit.conftest import Upstream, initialised, refused

pytestmark = [pytest.mark.must]
CONTENT = b"the large file\n" * 100
AUTHORITY = trustme.CA()
_UNPACKED = 32 * 1024**2
ENVIRON = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}


@pytest.fixture
def host(tmp_path: Path) -> Iterator[LfsHost]:
    with serving_lfs(initialised(tmp_path / "upstream").git_dir, AUTHORITY) as found:
        found.rules.add(CONTENT)
        yield found


@pytest.fixture
def other() -> Iterator[StandIn]:
    """Another host, that has the object too and wants our secret."""
    found = StandIn(Elsewhere(lambda _: CONTENT))
    with serving(found, AUTHORITY):
        yield found


class Fetcher:
    """A client of one server, and the store that it fills."""

    def __init__(self, host: LfsHost, folder: Path, *named: str) -> None:
        folder.mkdir(exist_ok=True)
        ca_file = folder / "ca.pem"
        AUTHORITY.cert_pem.write_to_path(str(ca_file))
        credential = make_credential(host="127.0.0.1", username="demo", secret=TOKEN)
        endpoint = f"{host.url}/info/lfs"
        self.server = LfsServer(endpoint, credential, frozenset(named), lambda *_: HostRules(ca_file), 5.0)
        self.objects = LfsObjects(folder / "objects")

    def fetch(self, content: bytes = CONTENT) -> bytes:
        pointer = parse_pointer(pointer_of(content))
        assert pointer is not None
        file = PointedFile(TreeEntry(b"large.bin", REGULAR, "0" * 40, 130), pointer)
        download(self.server, [file], lambda file, receive: self.objects.add(file.pointer, receive))
        return b"".join(self.objects.read(pointer))

    def files(self) -> list[Path]:
        return [path for path in self.objects.folder.rglob("*") if path.is_file()]


def careless_get(url: str) -> bytes:
    """A client that follows what it is told, with its secret."""
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {TOKEN}"})  # noqa: S310 - of a stand-in
    context = ssl.create_default_context()
    AUTHORITY.configure_trust(context)
    with urllib.request.urlopen(request, context=context) as answer:  # noqa: S310 - of a stand-in
        return bytes(answer.read())


def test_s73_lfsconfig_and_attributes_name_no_server(host: LfsHost, other: StandIn, tmp_path: Path) -> None:
    upstream = Upstream(tmp_path / "upstream")
    upstream.write(".gitattributes", b"*.bin filter=lfs -text\n")
    upstream.write(".lfsconfig", f"[lfs]\n\turl = {other.url}/lfs\n[remote]\n\tlfsdefault = evil\n".encode())
    upstream.write("large.bin", pointer_of(CONTENT))
    upstream.commit()
    said = upstream.git("config", "--blob", "HEAD:.lfsconfig", "lfs.url").decode()
    assert said.startswith(other.url), "void: git-lfs would ask there"
    store_credential(tmp_path / "home", host, AUTHORITY)
    with Workbench(tmp_path / "home", environ=ENVIRON, settings={"workspaces": {"disk": "watch"}}) as workbench:
        repo_id = workbench.clone(host.url).repository.id
        workbench.set_repository(repo_id, {"lfs": True})
        task = workbench.create_task(repo_id, "work")
        assert task.worktree_path is not None
        assert (task.worktree_path / "large.bin").read_bytes() == CONTENT
    assert other.requests == []
    assert host.stand_in.stray_tokens() == []


@pytest.mark.parametrize("how", ["address", "redirect", "unencrypted"])
def test_s73_s74_objects_come_from_no_host_that_the_operator_did_not_name(
    how: str, host: LfsHost, other: StandIn, tmp_path: Path
) -> None:
    place = f"{other.url}/objects/"
    with ExitStack() as stack:
        if how == "unencrypted":
            plain = StandIn(Elsewhere(lambda _: CONTENT))
            stack.enter_context(serving(plain))
            place = f"{plain.url}/objects/"
            assert careless_get(f"{place}x") == CONTENT, "void: a careless client asks there"
            host.rules.place = place
            other = plain
        elif how == "address":
            host.rules.place = place
            assert careless_get(f"{place}x") == CONTENT, "void: a careless client asks there"
        else:
            host.stand_in.on("GET", "/objects/.*", Answer(302, None, {"Location": f"{place}x"}), forever=True)
            assert careless_get(f"{host.stand_in.url}/objects/x") == CONTENT, "void: a careless client follows"
        assert other.saw(TOKEN), "void: with its secret"
        other.requests.clear()
        fetcher = Fetcher(host, tmp_path, *([other.url.partition("//")[2]] if how == "unencrypted" else []))
        with refused(ErrorCode.POLICY_VIOLATION):
            fetcher.fetch()
        assert other.requests == []
        assert fetcher.files() == []


@pytest.mark.parametrize("how", ["address", "redirect"])
def test_s74_a_named_host_gets_neither_our_credential_nor_headers_for_another(
    how: str, host: LfsHost, other: StandIn, tmp_path: Path
) -> None:
    if how == "address":
        host.rules.place = f"{other.url}/objects/"
    else:
        host.rules.header = {"Authorization": f"Basic {TOKEN}"}
        moved = Answer(302, None, {"Location": f"{other.url}/objects/x"})
        host.stand_in.on("GET", "/objects/.*", moved, forever=True)
    assert Fetcher(host, tmp_path, other.url.partition("//")[2]).fetch() == CONTENT
    assert other.requests
    assert not any("authorization" in request.headers for request in other.requests)
    assert not other.saw(TOKEN)
    assert any("authorization" in request.headers for request in host.stand_in.requests), "void: there is a credential"


def test_s73_a_public_remote_names_no_private_address(
    host: LfsHost, other: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operator named the host, and its name leads inside. To be public, the remote gets such an address for all
    look-ups but that of the first connection to it.
    """
    port = other.url.rpartition(":")[2]
    host.rules.place = f"https://localhost:{port}/objects/"
    assert Fetcher(host, tmp_path / "control", f"localhost:{port}").fetch() == CONTENT, "void: a private one may"
    other.requests.clear()
    real, asked = lfs_client._look_up, list[str]()

    def look_up(name: str, port: int) -> list[str]:
        asked.append(name)
        return ["140.82.121.4"] if asked.count("127.0.0.1") > 1 and name == "127.0.0.1" else real(name, port)

    monkeypatch.setattr(lfs_client, "_look_up", look_up)
    with refused(ErrorCode.POLICY_VIOLATION):
        Fetcher(host, tmp_path, f"localhost:{port}").fetch()
    assert asked == ["127.0.0.1", "localhost", "127.0.0.1"]
    assert other.requests == []


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (CONTENT.replace(b"large", b"other"), ErrorCode.REMOTE_BROKEN),
        (CONTENT[:-1], ErrorCode.REMOTE_BROKEN),
        (CONTENT + b"more", ErrorCode.REMOTE_BROKEN),
        (b"", ErrorCode.REMOTE_BROKEN),
    ],
    ids=["other bytes", "too few", "too many", "none"],
)
def test_s75_bytes_that_are_not_the_pointers_are_not_stored(
    sent: bytes, code: ErrorCode, host: LfsHost, tmp_path: Path
) -> None:
    fetcher = Fetcher(host, tmp_path)
    host.stand_in.on("GET", "/objects/.*", Answer(200, sent), forever=True)
    with refused(code):
        fetcher.fetch()
    assert fetcher.files() == []
    assert Fetcher(host, tmp_path).objects.folder.is_dir()


def test_s75_an_answer_that_never_ends_is_cut_at_the_pointers_size(host: LfsHost, tmp_path: Path) -> None:
    fetcher = Fetcher(host, tmp_path)
    host.stand_in.on("GET", "/objects/.*", Answer(200, CONTENT, filler_bytes=64 * 1024**2), forever=True)
    with refused(ErrorCode.REMOTE_BROKEN):
        fetcher.fetch()
    assert fetcher.files() == []


@pytest.mark.parametrize(
    "answer",
    [
        {"objects": []},
        {"transfer": "evil", "objects": []},
        {"hash_algo": "md5", "objects": []},
        {"objects": [{"oid": "{oid}", "size": 7, "actions": {"download": {"href": "{url}"}}}]},
        {"objects": [{"oid": "{oid}", "size": 1500, "actions": {"download": {"href": "file:///etc/passwd"}}}]},
        {"objects": [{"oid": "{oid}", "size": 1500, "actions": {"download": {"href": "https://x@127.0.0.1/\\"}}}]},
        {
            "objects": [
                {"oid": "{oid}", "size": 1500, "actions": {"download": {"href": "{url}", "header": {"Host": "evil"}}}}
            ]
        },
        {
            "objects": [
                {"oid": "{oid}", "size": 1500, "actions": {"download": {"href": "{url}", "header": {"A": "b\r\nC: d"}}}}
            ]
        },
    ],
    ids=["nothing", "transfer", "hash", "size", "scheme", "user", "host header", "header lines"],
)
def test_s75_a_server_that_lies_in_its_answer_is_refused(
    answer: dict[str, object], host: LfsHost, tmp_path: Path
) -> None:
    oid = sha256(CONTENT).hexdigest()
    text = json.dumps(answer).replace("{oid}", oid).replace("{url}", f"{host.stand_in.url}/objects/{oid}")
    filled = json.loads(text)
    fetcher = Fetcher(host, tmp_path)
    host.stand_in.on("POST", ".*/objects/batch", Answer(200, filled), forever=True)
    with refused(ErrorCode.REMOTE_BROKEN):
        fetcher.fetch()
    assert not host.stand_in.count("GET", "/objects/.*")


@pytest.mark.parametrize(
    "line",
    [
        b"oid sha256:../../../../etc/passwd",
        b"oid sha256:" + b"A" * 64,
        b"oid sha256:" + b"0" * 63,
        b"oid sha256:" + b"0" * 65,
        b"oid md5:" + b"0" * 64,
        b"oid sha256:" + b"0" * 64 + b"\nsize 1\noid sha256:" + b"1" * 64,
    ],
    ids=["path", "upper case", "short", "long", "other hash", "twice"],
)
def test_s76_a_pointer_names_no_path(line: bytes) -> None:
    text = b"version https://git-lfs.github.com/spec/v1\n" + line + b"\nsize 12\n"
    named = line.partition(b":")[2].decode()
    assert not re.fullmatch("[0-9a-f]{64}", named) or b"md5" in line, "void: a careless client builds a path of it"
    assert parse_pointer(text.ljust(120, b" ")) is None
    assert parse_pointer(text) is None


def test_s76_sizes_that_pointers_claim_are_counted_before_anything_is_asked(host: LfsHost, tmp_path: Path) -> None:
    upstream = Upstream(tmp_path / "upstream")
    upstream.write(".gitattributes", b"*.bin filter=lfs -text\n")
    bomb = pointer_of(CONTENT).replace(b"size 1500", b"size 999999999999999999")
    assert bomb != pointer_of(CONTENT), "void: the pointer claims what it likes"
    upstream.write("bomb.bin", bomb)
    upstream.commit()
    store_credential(tmp_path / "home", host, AUTHORITY)
    with Workbench(tmp_path / "home", environ=ENVIRON) as workbench:
        repo_id = workbench.clone(host.url).repository.id
        with refused(ErrorCode.QUOTA_EXCEEDED):
            workbench.set_repository(repo_id, {"lfs": True})
    assert not host.stand_in.count("POST", ".*/objects/batch")


def test_s76_one_repository_does_not_get_the_objects_of_another(host: LfsHost, tmp_path: Path) -> None:
    """Its pointer names the object of a private repository, which is on this host; its own server has none."""
    pointer = parse_pointer(pointer_of(CONTENT))
    assert isinstance(pointer, Pointer)
    private = LfsObjects(tmp_path / "lfs" / "private")
    private.add(pointer, lambda take: take(CONTENT))
    assert private.has(pointer), "void: the object is here"
    host.rules.objects.clear()
    with refused(ErrorCode.NOT_FOUND):
        Fetcher(host, tmp_path).fetch()


def test_s74_an_unencrypted_remote_gets_no_secret(tmp_path: Path) -> None:
    rules = LfsRules("/demo/project.git", token="")
    rules.add(CONTENT)
    host = LfsHost(rules, StandIn(rules))
    with serving(host.stand_in):
        careless_get(f"{host.stand_in.url}/objects/{sha256(CONTENT).hexdigest()}")
        assert host.stand_in.saw(TOKEN), "void: a careless client sends it"
        host.stand_in.requests.clear()
        assert Fetcher(host, tmp_path).fetch() == CONTENT
        assert not any("authorization" in request.headers for request in host.stand_in.requests)


def test_s74_the_secret_is_in_no_error(host: LfsHost, tmp_path: Path) -> None:
    rules: LfsRules = host.rules
    said = {"message": f"no access for {TOKEN}"}
    assert TOKEN in str(said), "void: the server repeats it"
    host.stand_in.on("POST", ".*/objects/batch", Answer(403, said), forever=True)
    assert rules.token == TOKEN
    with refused(ErrorCode.AUTH_FAILED) as caught:
        Fetcher(host, tmp_path).fetch()
    assert TOKEN not in str(caught.value.payload())


@pytest.mark.parametrize(
    "answer",
    [
        {"error": {"code": 422, "message": f"{'x' * 250} for {TOKEN}"}},
        {"actions": {"download": {"href": f"https://elsewhere.example/{TOKEN}"}}},
        {"actions": {"download": {"href": f"file:///{TOKEN}"}}},
    ],
    ids=["words", "host", "address"],
)
def test_s214_what_a_server_says_of_an_object_brings_the_secret_into_no_error(
    answer: dict[str, object], host: LfsHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = {"oid": sha256(CONTENT).hexdigest(), "size": len(CONTENT), **answer}
    host.stand_in.on("POST", ".*/objects/batch", Answer(200, {"objects": [row]}), forever=True)
    with pytest.raises(SandboxError) as caught:
        Fetcher(host, tmp_path).fetch()
    assert TOKEN not in str(caught.value.payload())
    monkeypatch.setattr(lfs_client, "redact_secret", lambda _: nullcontext())
    with pytest.raises(SandboxError) as caught:
        Fetcher(host, tmp_path).fetch()
    assert TOKEN in str(caught.value.payload())  # the control


@pytest.mark.parametrize("method", ["POST", "GET"])
def test_s163_the_body_of_a_redirect_is_not_read(method: str, host: LfsHost, tmp_path: Path) -> None:
    """`requests` unpacks it into memory, even of a redirect that it was asked not to follow."""
    bomb = gzip.compress(bytes(_UNPACKED), 9)
    path = ".*/objects/batch" if method == "POST" else "/objects/.*"
    headers = {"Location": f"{host.stand_in.url}/objects/again", "Content-Encoding": "gzip"}
    host.stand_in.on(method, path, Answer(302, bomb, headers, checked=False), forever=True)
    place = f"{host.url}/info/lfs/objects/batch" if method == "POST" else f"{host.stand_in.url}/objects/x"
    with peak_memory() as peak, requests.Session() as session:
        session.request(method, place, allow_redirects=False, stream=True, verify=str(_trusted(tmp_path))).close()
    assert peak() > _UNPACKED, "void: a careless client unpacks it"
    fetcher = Fetcher(host, tmp_path)
    with peak_memory() as peak, refused(ErrorCode.REMOTE_BROKEN):
        fetcher.fetch()
    assert peak() < _UNPACKED / 8
    assert fetcher.files() == []


def test_s163_a_redirect_to_no_address_is_the_servers_fault(host: LfsHost, tmp_path: Path) -> None:
    location = "https://[/"
    with pytest.raises(ValueError, match="IPv6"):
        urlsplit(location)  # the control: an error of neither library
    host.stand_in.on("GET", "/objects/.*", Answer(302, None, {"Location": location}), forever=True)
    with refused(ErrorCode.REMOTE_BROKEN):
        Fetcher(host, tmp_path).fetch()


@contextmanager
def peak_memory() -> Iterator[Callable[[], int]]:
    """Bytes of Python objects at their most, beyond those before."""
    gc.collect()
    tracemalloc.start()
    peaks: list[int] = []
    try:
        yield lambda: peaks[0]
    finally:
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()


def _trusted(folder: Path) -> Path:
    path = folder / "trusted.pem"
    AUTHORITY.cert_pem.write_to_path(str(path))
    return path
