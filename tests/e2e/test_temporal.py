"""A real Temporal server, workers as processes of their own, and a hub over https: what holds when one is lost."""

from __future__ import annotations

import asyncio
import base64
import ssl
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import trustme

from devtools.gitserver import GitServer
from sandbox.cluster.temporal_client import find_address
from sandbox.cluster.temporal_dispatcher import TemporalDispatcher
from sandbox.config import ClusterSettings
from sandbox.errors import ErrorCode
from sandbox.models.operations import OperationName, TaskOperation
from tests.e2e.clusters import Cluster, cluster_of, connected, until
from tests.unit.conftest import refused

pytestmark = pytest.mark.xdist_group("temporal")


@pytest.fixture(scope="module")
def cluster(temporal: str, git_server: GitServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster_of(temporal, git_server, tmp_path_factory.mktemp("hosts")) as found:
        yield found


class TlsProxy:
    """TLS in front of a server that has none, as a load balancer would be. It asks clients for a certificate."""

    def __init__(self, target: str, folder: Path) -> None:
        self._host, _, port = target.rpartition(":")
        self._port = int(port)
        authority = trustme.CA()
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._context.set_alpn_protocols(["h2"])  # gRPC is spoken over HTTP/2 only
        self._context.verify_mode = ssl.CERT_REQUIRED
        authority.configure_trust(self._context)
        authority.issue_cert("127.0.0.1").configure_cert(self._context)
        ours = authority.issue_cert("worker.example.org")
        self.files = {name: folder / f"{name}.pem" for name in ("ca_file", "certificate_file", "key_file")}
        authority.cert_pem.write_to_path(str(self.files["ca_file"]))
        ours.cert_chain_pems[0].write_to_path(str(self.files["certificate_file"]))
        ours.private_key_pem.write_to_path(str(self.files["key_file"]))
        self.files["key_file"].chmod(0o600)

        self.address = ""
        self._ready, self._stop = threading.Event(), asyncio.Event()
        self._joined: set[asyncio.Task[None]] = set()

    @contextmanager
    def running(self) -> Iterator[None]:
        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(asyncio.run, self._run())
            self._ready.wait(30)
            yield
            self._loop.call_soon_threadsafe(self._stop.set)
            done.result(30)

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        server = await asyncio.start_server(self._join, "127.0.0.1", 0, ssl=self._context)
        self.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._ready.set()
        await self._stop.wait()
        server.close()
        for task in self._joined:
            task.cancel()
        await asyncio.gather(*self._joined, return_exceptions=True)

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._joined.add(task)
        there, back = await asyncio.open_connection(self._host, self._port)
        try:
            await asyncio.gather(_pump(reader, back), _pump(there, writer))
        finally:
            for one in (back, writer):
                one.close()
                with suppress(OSError, ssl.SSLError):
                    await one.wait_closed()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError, ssl.SSLError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


@pytest.fixture
def proxy(temporal: str, tmp_path: Path) -> Iterator[TlsProxy]:
    made = TlsProxy(temporal, tmp_path)
    with made.running():
        yield made


def list_workers(address: str, **settings: Any) -> tuple[object, ...]:
    found = ClusterSettings.model_validate({"address": address, "name": f"tls-{uuid.uuid4().hex[:8]}", **settings})
    dispatcher = TemporalDispatcher(find_address(found))
    try:
        return dispatcher.workers()
    finally:
        dispatcher.close()


def test_a_server_behind_tls_gets_our_certificate_and_has_to_show_its_own(
    temporal: str, proxy: TlsProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control: the same server answers without TLS at its own port."""
    monkeypatch.setattr("sandbox.cluster.temporal_client.CONNECT_S", 3.0)
    with connected(temporal, "plain"):
        pass
    files = proxy.files
    assert list_workers(proxy.address, tls="on", **files) == ()
    ca_alone = {"ca_file": files["ca_file"]}
    for settings in ({"tls": "off"}, {"tls": "on", **ca_alone}, {"tls": "on", **files, "ca_file": None}):
        with refused(ErrorCode.NETWORK_ERROR):
            list_workers(proxy.address, **settings)


def test_a_task_on_a_cluster_from_its_creation_to_its_end(cluster: Cluster) -> None:
    """Also: a repeated id is answered alike, a cancelled check has a verdict and no container, workers are listed."""
    worker = cluster.start_worker("one")
    until(lambda: worker in [one.id for one in cluster.dispatcher.workers()])
    task = cluster.begin()
    edit = {"path": "answer", "old": "wrong", "new": "right", "expected_sha256": cluster.ask(
        task, OperationName.READ_FILE, {"path": "answer"}).value["sha256"]}  # fmt: skip
    once = cluster.ask(task, OperationName.EDIT_FILE, edit, key="edit-1")
    assert once.error is None, once.error
    assert cluster.ask(task, OperationName.EDIT_FILE, edit, key="edit-1") == once
    assert cluster.ask(task, OperationName.COMMIT, {"message": "Answer"}).error is None
    verified = cluster.ask(task, OperationName.VERIFY)
    assert verified.value["verified"] is True
    cluster.write(task, "", "wait")
    slow = TaskOperation(id="slow", task_id=task, name=OperationName.CHECK, arguments={"check_ids": ["build"]})
    cluster.dispatcher.submit(slow)
    until(lambda: cluster.has_begun(task))  # cancelled before, it would have no verdict
    cluster.dispatcher.cancel(slow)
    stopped = cluster.dispatcher.result(slow)
    assert stopped is not None
    assert [run["verdict"] for run in stopped.value] == ["killed"]
    closed = cluster.ask(task, OperationName.CLOSE, {"delete_worktree": True, "discard": True})
    assert closed.error is None, closed.error
    assert not cluster.server.client().run("ls-remote", cluster.hub, f"refs/space-sandbox/tasks/{task}/*")


def test_a_task_of_a_killed_worker_goes_on_elsewhere_and_says_what_is_lost(cluster: Cluster) -> None:
    cluster.kill_all()
    first = cluster.start_worker("two")
    task = cluster.begin()
    cluster.write(
        task, "right\n", sha256=cluster.ask(task, OperationName.READ_FILE, {"path": "answer"}).value["sha256"]
    )
    second = cluster.start_worker("three")
    cluster.write(task, "", "wait")
    check = TaskOperation(id="check", task_id=task, name=OperationName.CHECK, arguments={"check_ids": ["build"]})
    cluster.dispatcher.submit(check)
    assert cluster.dispatcher.result(check, wait_s=2.0) is None
    cluster.kill(first)
    until(lambda: cluster.dispatcher.find_placement(task)["worker"] == second)
    until(lambda: cluster.has_begun(task))  # cancelled before, it would have no verdict
    cluster.dispatcher.cancel(check)
    answer = cluster.dispatcher.result(check)
    assert answer is not None
    assert (answer.worker, answer.epoch) == (second, 2)
    assert answer.lost is not None
    assert first in answer.lost
    assert [run["verdict"] for run in answer.value] == ["killed"]
    read = cluster.ask(task, OperationName.READ_FILE, {"path": "answer"})
    assert read.value["content"] == "right\n", "the last completed edit is there"


def test_s178_no_credential_is_in_the_history_of_a_task(cluster: Cluster) -> None:
    """The worker uses one for the repository and the hub. Control: the prompt and the file are in it."""
    cluster.kill_all()
    cluster.start_worker("six")
    task = cluster.begin()
    cluster.write(
        task, "right\n", sha256=cluster.ask(task, OperationName.READ_FILE, {"path": "answer"}).value["sha256"]
    )
    for name, arguments in (
        (OperationName.CHECK, {"check_ids": ["test"]}),
        (OperationName.COMMIT, {"message": "Answer"}),
        (OperationName.SYNC, {}),
        (OperationName.VERIFY, {}),
        (OperationName.JOURNAL, {"limit": 50, "skip": 0}),
    ):
        assert cluster.ask(task, name, arguments).error is None, name
    assert cluster.ask(task, OperationName.CHECKOUT, {"ref": "missing"}).error is not None
    history = cluster.dispatcher._wait(cluster.dispatcher._handle(task).fetch_history())
    sent = b"".join(event.SerializeToString() for event in history.events)
    assert b"Answer right" in sent
    assert base64.b64encode(b"right\n") in sent
    assert cluster.server.password.encode() not in sent


@pytest.mark.thorough  # of the draining workers, which `make test` has, with a process of its own
def test_a_drained_worker_ends_its_operation_first_and_its_task_goes_on_elsewhere(cluster: Cluster) -> None:
    cluster.kill_all()
    first = cluster.start_worker("four")
    task = cluster.begin()
    second = cluster.start_worker("five")
    check = TaskOperation(id="check", task_id=task, name=OperationName.CHECK, arguments={"check_ids": ["test"]})
    cluster.write(task, "", "pause")
    cluster.dispatcher.submit(check)
    until(lambda: cluster.has_begun(task))  # what has not begun goes elsewhere at once
    cluster.drain(first)
    assert cluster.dispatcher.result(check, wait_s=2.0) is None
    seen = cluster.ask(task, OperationName.STATUS)
    assert (seen.worker, seen.epoch, seen.lost) == (first, 1, None), "its check is looked at until it has ended"
    cluster.let_go(task)
    assert cluster.wait_for_end(first) == 0
    answer = cluster.dispatcher.result(check, wait_s=60)
    assert answer is not None
    assert (answer.worker, answer.lost) == (first, None)
    assert [run["verdict"] for run in answer.value] == ["passed", "failed"]
    status = cluster.ask(task, OperationName.STATUS)
    assert (status.worker, status.epoch) == (second, 2)
