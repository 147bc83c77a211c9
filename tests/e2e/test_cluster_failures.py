"""Failures of what is between the parts of a cluster, and of a worker that is not killed: the server that goes away,
networks that are cut, hosts that hang, have a full disk or a wrong clock. Each part is real.
"""

from __future__ import annotations

import base64
import contextlib
import json
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FuturesTimeoutError
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import docker
import pytest

from devtools.command import Command, Ended
from devtools.gitserver import GitServer, Tunnel, introduce
from devtools.gitserver.tunnel import How
from devtools.mounts import small_file_system
from devtools.temporalserver import TemporalServer
from sandbox import Workbench
from sandbox.cluster import server_requests, temporal_dispatcher
from sandbox.errors import ErrorCode
from sandbox.models.operations import OperationAnswer, OperationName, TaskOperation
from sandbox.store.home import Home
from tests.e2e.clusters import Cluster, cluster_of, connected, until
from tests.unit.conftest import refused
from tests.unit.receipt_samples import Signer

pytestmark = [pytest.mark.xdist_group("temporal"), pytest.mark.thorough]
HOWS: list[How] = ["reset", "stall"]


@dataclass
class Site:
    """A cluster whose server can be killed, with ways to it and to the hub that can be cut."""

    cluster: Cluster
    temporal: TemporalServer
    to_server: Tunnel
    to_hub: Tunnel

    def start_worker(self, name: str) -> str:
        """One that is reached, and reaches the hub, through the tunnels."""
        cluster = self.cluster
        hub = cluster.hub.replace(str(cluster.server.https_port), str(self.to_hub.port))
        ways = {
            "SANDBOX_CLUSTER_ADDRESS": f"127.0.0.1:{self.to_server.port}",
            "SANDBOX_CLUSTER_HUB": hub,
            "SANDBOX_REMOTES_TIMEOUT_S": "4",
        }
        return cluster.start_worker(name, settings=ways)


@pytest.fixture(scope="module")
def site(git_server: GitServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    base = tmp_path_factory.mktemp("failures")
    hosts = base / "hosts"
    hosts.mkdir()
    with ExitStack() as stack:
        temporal = stack.enter_context(TemporalServer(base / "log", database=base / "database"))
        to_server = stack.enter_context(Tunnel(temporal.port))
        to_hub = stack.enter_context(Tunnel(git_server.https_port))
        cluster = stack.enter_context(cluster_of(temporal.address, git_server, hosts))
        yield Site(cluster, temporal, to_server, to_hub)


@pytest.fixture
def cluster(site: Site) -> Iterator[Cluster]:
    yield site.cluster
    site.cluster.kill_all()


def begin_check(cluster: Cluster, task: str, key: str = "check") -> TaskOperation:
    """A check that runs until `Cluster.let_go`."""
    cluster.write(task, "", "pause")
    check = TaskOperation(id=key, task_id=task, name=OperationName.CHECK, arguments={"check_ids": ["test"]})
    cluster.dispatcher.submit(check)
    until(lambda: cluster.has_begun(task))
    return check


def edit(cluster: Cluster, task: str, content: str = "right\n") -> TaskOperation:
    """A change of the file `answer` that only the first of two can make."""
    sha256 = cluster.ask(task, OperationName.READ_FILE, {"path": "answer"}).value["sha256"]
    encoded = base64.b64encode(content.encode()).decode()
    arguments = {"path": "answer", "content": encoded, "expected_sha256": sha256}
    return TaskOperation(id="edit", task_id=task, name=OperationName.WRITE_FILE, arguments=arguments)


def read(cluster: Cluster, task: str) -> str:
    return str(cluster.ask(task, OperationName.READ_FILE, {"path": "answer"}).value["content"])


def has_guest(cluster: Cluster, name: str, task: str) -> bool:
    """Whether a container of a task runs on the worker with this home."""
    guest = name_guest(cluster, name, task)
    with closing(docker.from_env()) as engine:
        return any(one["Names"] == [f"/{guest}"] for one in engine.api.containers())


def name_guest(cluster: Cluster, name: str, task: str) -> str:
    return f"sandbox-{Home(cluster.base / name).instance_id}-{task.removeprefix('task-')}"


def let_go_everywhere(cluster: Cluster, task: str) -> None:
    for worktree in cluster.base.glob(f"*/repositories/worktrees/*/{task}"):
        (worktree / "go").touch()


def wait_for_answer(cluster: Cluster, task: str, waiting: Future[OperationAnswer | None]) -> OperationAnswer | None:
    """What a caller of a check gets. Lets the check end again and again: if its worker is lost before it has sent the
    state with the file for that, the check begins anew without the file.
    """

    def is_answered() -> bool:
        let_go_everywhere(cluster, task)
        return waiting.done()

    until(is_answered, within_s=120)
    return waiting.result()


def find_answer(cluster: Cluster, task: str, check: TaskOperation) -> OperationAnswer | None:
    """As above, for a caller that asks now."""
    with callers(1) as pool:
        return wait_for_answer(cluster, task, pool.submit(cluster.dispatcher.result, check))


@contextlib.contextmanager
def callers(count: int) -> Iterator[ThreadPoolExecutor]:
    """Threads for callers. A test that failed does not wait for them: they end with their connection."""
    pool = ThreadPoolExecutor(count)
    try:
        yield pool
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def list_verdicts(answer: OperationAnswer | None) -> list[str]:
    assert answer is not None
    assert answer.error is None, answer.error
    return [run["verdict"] for run in answer.value]


def test_callers_of_a_server_that_is_killed_and_comes_back_get_the_one_answer(site: Site, cluster: Cluster) -> None:
    """One waits for a check, one sends an edit meanwhile. The control: neither is answered while the server is away."""
    cluster.start_worker("one")
    task = cluster.begin()
    wish = edit(cluster, task)
    check = begin_check(cluster, task)
    with callers(2) as pool:
        waiting = pool.submit(cluster.dispatcher.result, check)
        site.temporal.kill()
        sending = pool.submit(cluster.dispatcher.submit, wish)
        let_go_everywhere(cluster, task)
        with pytest.raises(FuturesTimeoutError):
            waiting.result(1.0)
        assert not sending.done()
        site.temporal.start()
        verdicts = list_verdicts(wait_for_answer(cluster, task, waiting))
        sending.result(60)
    assert verdicts == ["passed", "failed"]
    again = cluster.dispatcher.result(check)
    assert again == cluster.dispatcher.result(check) == waiting.result()
    made = cluster.dispatcher.result(wish)
    assert made is not None
    assert made.error is None, made.error
    cluster.dispatcher.submit(wish)
    assert cluster.dispatcher.result(wish) == made
    assert read(cluster, task) == "right\n"


def test_a_server_that_does_not_come_back_is_an_error_that_says_what_to_do(
    site: Site, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker ends when it is told to. The control: the same question is answered when the server is there again."""
    worker = cluster.start_worker("one")
    task = cluster.begin()
    check = begin_check(cluster, task)
    asked = TaskOperation(id="status", task_id=task, name=OperationName.STATUS)
    site.temporal.kill()
    try:
        with monkeypatch.context() as soon:
            soon.setattr(server_requests, "SERVER_S", 1.0)
            for question in (
                lambda: cluster.dispatcher.result(check),
                lambda: cluster.dispatcher.submit(asked),
                lambda: cluster.dispatcher.place(cluster.url, {}),
                cluster.dispatcher.workers,
            ):
                with refused(ErrorCode.NETWORK_ERROR) as error:
                    question()
                assert (error.value.reason, bool(error.value.hint)) == ("server_lost", True)
        cluster.drain(worker)
        let_go_everywhere(cluster, task)
        assert cluster.wait_for_end(worker) == 0
    finally:
        site.temporal.start()
    site.temporal.wait_until_open()  # a worker that finds no server ends
    cluster.start_worker("one")
    assert list_verdicts(find_answer(cluster, task, check)) == ["passed", "failed"]


def test_s176_a_check_that_was_stopped_because_the_server_was_away_has_no_verdict_of_that(
    site: Site, cluster: Cluster
) -> None:
    """Its worker is there all the time, and tries to send what it has when the server comes back. The control: the
    check was stopped, which of a caller's cancellation is the verdict `killed`.
    """
    worker = cluster.start_worker("one")
    task, other = cluster.begin(), cluster.begin()
    cancelled = begin_check(cluster, other)
    until(lambda: has_guest(cluster, "one", other))
    cluster.dispatcher.cancel(cancelled)
    assert list_verdicts(cluster.dispatcher.result(cancelled)) == ["killed"]
    check = begin_check(cluster, task)
    until(lambda: has_guest(cluster, "one", task))
    site.temporal.kill()
    try:
        until(lambda: not has_guest(cluster, "one", task))
    finally:
        site.temporal.start()
    answer = find_answer(cluster, task, check)
    assert list_verdicts(answer) == ["passed", "failed"]
    assert answer is not None
    assert (answer.worker, answer.epoch) == (worker, 2)


def test_a_caller_is_told_when_the_server_comes_back_and_the_worker_does_not(
    site: Site, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: the caller had found the server away."""
    worker = cluster.start_worker("one")
    task = cluster.begin()
    check = begin_check(cluster, task)
    with callers(1) as pool, monkeypatch.context() as soon:
        soon.setattr(temporal_dispatcher, "BUSY_S", 1.0)
        soon.setattr(temporal_dispatcher, "NO_WORKER_S", 4.0)
        waiting = pool.submit(cluster.dispatcher.result, check)
        site.temporal.kill()
        cluster.kill(worker)
        until(lambda: cluster.dispatcher._requests.is_away)
        site.temporal.start()
        with refused(ErrorCode.ENGINE_UNAVAILABLE) as error:
            waiting.result(60)
    assert error.value.reason == "no_worker"
    let_go_everywhere(cluster, task)


@pytest.mark.parametrize("how", HOWS)
def test_a_worker_that_was_cut_off_from_the_server_is_replaced_and_gives_up(
    site: Site, cluster: Cluster, how: How
) -> None:
    """Its container is gone, and the hub refuses what it still sends. The control: it is the worker's own network; the
    other one has the task and the verdict.
    """
    first = site.start_worker("one")
    task = cluster.begin()
    second = cluster.start_worker("two")
    check = begin_check(cluster, task)
    until(lambda: has_guest(cluster, "one", task))
    with site.to_server.breaking(how):
        until(lambda: has_guest(cluster, "two", task))
    assert_went_on(cluster, task, check, (first, second))


@pytest.mark.parametrize("how", HOWS)
def test_a_worker_that_does_not_reach_the_hub_answers_so_and_goes_on_when_it_does(
    site: Site, cluster: Cluster, how: How
) -> None:
    """An answer would be lost with the worker. The control: the hub has the state of what is answered later."""
    site.start_worker("one")
    task = cluster.begin()
    wish = edit(cluster, task)
    check = TaskOperation(id="check", task_id=task, name=OperationName.CHECK, arguments={"check_ids": ["test"]})

    def find_state() -> str:
        return cluster.server.client().run("ls-remote", cluster.hub, f"refs/space-sandbox/tasks/{task}/1")

    before = find_state()
    with site.to_hub.breaking(how):
        for asked in (wish, check):
            cluster.dispatcher.submit(asked)
            answer = cluster.dispatcher.result(asked)
            assert answer is not None
            assert answer.error is not None
            assert answer.error.code == ("timeout" if how == "stall" else "network_error")
            assert cluster.dispatcher.result(asked) == answer, "an id has one answer"
        assert cluster.ask(task, OperationName.STATUS).error is None, "what reads needs no hub"
    assert find_state() == before
    assert read(cluster, task) == "right\n", "the task has what the edit did"
    assert list_verdicts(cluster.ask(task, OperationName.CHECK, {"check_ids": ["test"]})) == ["passed", "passed"]
    assert find_state() != before


def test_a_push_to_the_hub_that_is_cut_before_its_answer_loses_nothing_and_is_not_repeated(
    site: Site, cluster: Cluster
) -> None:
    """The hub has the state, and its worker does not hear so. The controls: the answer says that it failed, for good,
    and the next operation, the next worker and the commit have the edit once.
    """
    first = site.start_worker("one")
    task = cluster.begin()
    wish = edit(cluster, task)
    client, ref = cluster.server.client(), f"refs/space-sandbox/tasks/{task}/1"
    before = client.run("ls-remote", cluster.hub, ref)
    until_removed = 'while [ -e "$0" ]; do sleep 0.1; done'
    with ExitStack() as stack:
        with cluster.server.hook(cluster.hub.split("/")[-2], "hub", "post-receive", until_removed):
            cluster.dispatcher.submit(wish)
            until(lambda: client.run("ls-remote", cluster.hub, ref) != before)
            cut = stack.enter_context(site.to_hub.breaking("reset"))
        assert cut.tripped.wait(60)
        answer = cluster.dispatcher.result(wish)
    assert answer is not None
    assert answer.error is not None
    assert answer.error.code in {"network_error", "timeout"}
    assert cluster.dispatcher.result(wish) == answer
    assert read(cluster, task) == "right\n"
    committed = cluster.ask(task, OperationName.COMMIT, {"message": "Answer"})
    assert (committed.error, committed.epoch) == (None, 1)
    second = cluster.start_worker("two")
    cluster.kill(first)
    assert read(cluster, task) == "right\n"
    diff = cluster.ask(task, OperationName.DIFF)
    assert (diff.worker, diff.epoch) == (second, 2)
    assert [one["path"] for one in diff.value["files"]] == ["answer"]


@pytest.mark.parametrize("how", HOWS)
def test_a_caller_that_was_cut_off_gets_its_answers_when_it_is_back(site: Site, cluster: Cluster, how: How) -> None:
    """The control: while it is cut off, another caller is answered and this one is not."""
    cluster.start_worker("one")
    task = cluster.begin()
    wish = edit(cluster, task)
    check = begin_check(cluster, task)
    with connected(f"127.0.0.1:{site.to_server.port}", cluster.name) as far, callers(2) as pool:
        waiting = pool.submit(far.result, check)
        with site.to_server.breaking(how) as cut:
            sending = pool.submit(far.submit, wish)
            assert cut.tripped.wait(60)
            assert read(cluster, task) == "wrong\n"
            assert not waiting.done()
            assert not sending.done()
        assert list_verdicts(wait_for_answer(cluster, task, waiting)) == ["passed", "failed"]
        sending.result(120)
        made = far.result(wish)
    assert made is not None
    assert made.error is None, made.error
    assert read(cluster, task) == "right\n"


def test_the_check_of_a_killed_worker_ends_with_the_lease_of_its_guest(cluster: Cluster) -> None:
    """Its deadline is far away. The control: PID 1 says why it ended, and the same check goes on elsewhere."""
    first = cluster.start_worker("one", settings={"SANDBOX_CONTAINER_IDLE_S": "10"})
    task = cluster.begin()
    second = cluster.start_worker("two")
    check = begin_check(cluster, task)
    until(lambda: has_guest(cluster, "one", task))
    with closing(docker.from_env()) as engine:
        guest = name_guest(cluster, "one", task)
        until(lambda: len(engine.api.top(guest)["Processes"]) > 1)  # the check has begun in it
        cluster.kill(first)
        until(lambda: not has_guest(cluster, "one", task), within_s=120)  # the lease of a check is a minute at least
        assert engine.api.inspect_container(guest)["State"]["ExitCode"] == 75
    until(lambda: has_guest(cluster, "two", task))
    assert_went_on(cluster, task, check, (first, second))


def test_a_worker_that_hung_is_replaced_and_gives_up_when_it_goes_on(cluster: Cluster) -> None:
    first = cluster.start_worker("one", forked=False)
    task = cluster.begin()
    second = cluster.start_worker("two")
    check = begin_check(cluster, task)
    until(lambda: has_guest(cluster, "one", task))
    cluster.workers[first].send_signal(signal.SIGSTOP)
    try:
        until(lambda: has_guest(cluster, "two", task))
        assert has_guest(cluster, "one", task), "control: nothing else ends it"
    finally:
        cluster.workers[first].send_signal(signal.SIGCONT)
    assert_went_on(cluster, task, check, (first, second))


def assert_went_on(cluster: Cluster, task: str, check: TaskOperation, workers: tuple[str, str]) -> None:
    """The second worker has the task, and the first one has no container of it and is refused by the hub."""
    first, second = workers
    until(lambda: not has_guest(cluster, "one", task))
    answer = find_answer(cluster, task, check)
    assert list_verdicts(answer) == ["passed", "failed"]
    assert answer is not None
    assert (answer.worker, answer.epoch, first in (answer.lost or "")) == (second, 2, True)
    with Workbench(cluster.base / "one") as bench, refused(ErrorCode.CONFLICT) as late:
        bench.send_task_state(cluster.hub, task, 1)
    assert late.value.reason == "epoch_ended"


def test_a_creation_that_is_interrupted_leaves_no_task_that_is_not_named(cluster: Cluster, tmp_path: Path) -> None:
    """Both creations are held at the hub. One command is interrupted once, the other one, the control, twice: it names
    its task, which is there.
    """
    cluster.start_worker("one", slots=2)
    sandbox = Command(introduce(tmp_path / "agent", cluster.server), cluster.settings)
    repository = sandbox.ok("repo", "clone", cluster.url)["repository"]["id"]
    client, known = cluster.server.client(), set(list_tasks(cluster, "one"))
    until_removed = 'while [ -e "$0" ]; do sleep 0.1; done'
    with cluster.server.hook(cluster.hub.split("/")[-2], "hub", "post-receive", until_removed):
        once, twice = [sandbox.start("task", "create", repository, "--json") for _ in range(2)]
        until(lambda: len(set(list_tasks(cluster, "one")) - known) == 2)
        once.send_signal(signal.SIGINT)
        twice.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            twice.wait(3.0)
        twice.send_signal(signal.SIGINT)
        stdout, stderr = twice.communicate(timeout=60)
        error = Ended(twice.returncode, stdout, stderr).error
    once.communicate(timeout=60)
    assert once.returncode == 130
    task = json.loads(stdout)["error"]["data"]["task_id"]
    assert task in error["hint"]
    assert set(list_tasks(cluster, "one")) - known == {task}
    assert cluster.ask(task, OperationName.STATUS).error is None
    assert client.run("ls-remote", cluster.hub, f"refs/space-sandbox/tasks/{task}/*")


def list_tasks(cluster: Cluster, name: str) -> list[str]:
    """Those that are open on a worker."""
    found = [
        json.loads(path.read_bytes()) for path in (cluster.base / name / "repositories" / "tasks").glob("task-*.json")
    ]
    return [task["id"] for task in found if task["status"] != "closed"]


def test_a_worker_whose_disk_is_full_refuses_by_type_takes_no_task_and_its_task_can_be_moved(
    cluster: Cluster, tmp_path: Path
) -> None:
    """The control: it has a task, and would get the next one, because it has the clone."""
    with small_file_system(tmp_path / "disk", 128 * 1024**2) as disk:
        home = introduce(disk / "home", cluster.server)
        small = {"SANDBOX_HOME": str(home), "SANDBOX_DISK_MIN_FREE_BYTES": "20000000"}
        full = cluster.start_worker("full", settings={**small, "SANDBOX_DISK_RESERVE_BYTES": "2000000"})
        task, other = cluster.begin(), cluster.begin()
        wish = edit(cluster, task)
        fill(disk)
        for asked in (
            wish,
            TaskOperation(id="c", task_id=task, name=OperationName.CHECK, arguments={"check_ids": ["test"]}),
        ):
            cluster.dispatcher.submit(asked)
            answer = cluster.dispatcher.result(asked)
            assert answer is not None
            assert answer.error is not None
            assert (answer.error.code, bool(answer.error.hint)) == ("quota_exceeded", True)
        assert read(cluster, task) == "wrong\n"
        second = cluster.start_worker("two")
        assert cluster.dispatcher.find_placement(cluster.begin())["worker"] == second
        assert cluster.ask(other, OperationName.CLOSE, {"delete_worktree": True, "discard": True}).error is None
        assert cluster.dispatcher.drain(full).worker == full
        assert cluster.wait_for_end(full) == 0
        again = cluster.ask(task, OperationName.WRITE_FILE, wish.arguments)
        assert (again.error, again.worker) == (None, second)
        assert read(cluster, task) == "right\n"


def fill(disk: Path) -> None:
    """Leave no room for a byte."""
    with (disk / "filling").open("wb", buffering=0) as stream, contextlib.suppress(OSError):
        while stream.write(bytes(1024**2)):
            pass


def test_s177_workers_whose_clocks_are_an_hour_off_give_right_answers_and_hand_over_a_task(
    cluster: Cluster, tmp_path: Path
) -> None:
    """One is ahead, the other behind, and their files have the times of the kernel. They share verdicts. The controls:
    their runs have their own times; a verdict that was signed two hours from now is used, and one whose signature is
    somebody else's is not.
    """
    store = share_verdicts(tmp_path)
    ahead, behind = ({**make_clock(tmp_path, hours), **store} for hours in (1, -1))
    first = cluster.start_worker("ahead", settings=ahead)
    task = cluster.begin()
    cluster.dispatcher.submit(wish := edit(cluster, task))
    made = cluster.dispatcher.result(wish)
    assert made is not None
    assert made.error is None, made.error
    before = cluster.ask(task, OperationName.CHECK, {"check_ids": ["test"]})
    assert cluster.ask(task, OperationName.COMMIT, {"message": "Answer"}).error is None
    assert find_cached(cluster.ask(task, OperationName.VERIFY)) == [False, False]
    entries = {path: path.read_bytes() for path in Path(store["SANDBOX_CACHE_URL"]).glob("*.json")}
    assert len(entries) == 2
    second = cluster.start_worker("behind", settings=behind)
    for name, clock in (("ahead", ahead), ("behind", behind)):
        hub = {**cluster.settings, **clock, "SANDBOX_KEEP_QUARANTINE_DAYS": "0.02"}
        Command(cluster.base / name, hub).ok("gc")
    assert read(cluster, task) == "right\n"
    assert find_cached(cluster.ask(task, OperationName.VERIFY)) == [True, True], "gc kept the verdicts of its home"
    cluster.kill(first)
    assert read(cluster, task) == "right\n"
    after = cluster.ask(task, OperationName.CHECK, {"check_ids": ["test"]})
    assert list_verdicts(before) == list_verdicts(after) == ["passed", "passed"]
    assert (before.worker, after.worker, after.epoch) == (first, second, 2)
    assert find_cached(cluster.ask(task, OperationName.VERIFY)) == [True, True], "of the store"
    off = [datetime.fromisoformat(one.value[-1]["started_at"]) - datetime.now(UTC) for one in (before, after)]
    off += [find_signed_at(entry) - datetime.now(UTC) for entry in entries.values()]
    assert min(off[0], *off[2:]) > timedelta(minutes=30)
    assert off[1] < timedelta(minutes=-30)
    for path, entry in entries.items():
        path.write_bytes(Signer().sign(read_payload(entry)))
    assert find_cached(cluster.ask(task, OperationName.VERIFY)) == [False, False]


def share_verdicts(folder: Path) -> dict[str, str]:
    """Variables of workers that share a store and a key."""
    signer = Signer()
    (folder / "private.pem").write_bytes(signer.pem)
    (folder / "public.pem").write_bytes(signer.public_pem)
    (folder / "private.pem").chmod(0o600)
    return {
        "SANDBOX_CACHE_URL": str(folder / "store"),
        "SANDBOX_RECEIPTS_SIGNING_KEY": str(folder / "private.pem"),
        "SANDBOX_RECEIPTS_TRUSTED_KEYS": str(folder / "public.pem"),
    }


def read_payload(entry: bytes) -> bytes:
    return base64.b64decode(json.loads(entry)["payload"])


def find_signed_at(entry: bytes) -> datetime:
    (product, *_) = json.loads(read_payload(entry))["predicate"]["configuration"]
    return datetime.fromisoformat(product["annotations"]["signed_at"])


def find_cached(answer: OperationAnswer) -> list[bool]:
    """Of a verification that passed, whether each of its checks was answered without a run."""
    assert answer.error is None, answer.error
    assert answer.value["verified"] is True
    return [bool(run["cached"]) for run in answer.value["runs"]]


_CLOCK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
int clock_gettime(clockid_t id, struct timespec *at)
{
    int (*real)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(id, at);
    if (!failed && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE))
        at->tv_sec += atol(getenv("CLOCK_OFFSET_S"));
    return failed;
}
time_t time(time_t *at)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return at ? (*at = now.tv_sec) : now.tv_sec;
}
int gettimeofday(struct timeval *at, void *zone)
{
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    *at = (struct timeval){now.tv_sec, now.tv_nsec / 1000};
    return 0;
}
"""


def make_clock(folder: Path, hours: int) -> dict[str, str]:
    """Variables of a process whose clock is wrong; not that of programs it starts without its variables."""
    library, source = folder / "clock.so", folder / "clock.c"
    source.write_text(_CLOCK)
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True, timeout=60)
    return {"LD_PRELOAD": str(library), "CLOCK_OFFSET_S": str(hours * 3600)}
