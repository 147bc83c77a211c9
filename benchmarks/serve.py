"""What the daemon changes: S32 commands through it, S33 many clients at once, S34 ten readers of a loud check, S36 its
memory at rest and after many calls.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import httpx2

from benchmarks import startup
from benchmarks._harness import compare, judge, timed
from devtools.command import SANDBOX
from devtools.daemon import RunningDaemon, serving
from sandbox.daemon.api_client import post

GOAL_MB = 120
CLIENTS, READERS, CALLS, LOUD_ROUNDS = 50, 10, 10_000, 5
SETTLE_S = 12.0
HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
LOUD = """[[check]]
id = "loud"
label = "writes 10 MB/s for four seconds"
argv = ["sh", "-c", "for i in $(seq 40); do yes 0123456789 | head -c 1000000; sleep 0.09; done"]
"""


def main() -> None:
    startup.TASKS = 20
    startup.PROFILE += LOUD
    with startup.site() as at, serving(at.home, "--http", "127.0.0.1:0") as daemon:
        at.run("check", "run", at.task_id, "true")
        report_memory(daemon, "at rest, before anything connected over HTTP", f"{GOAL_MB} MB")
        commands(at)
        many_clients(at)
        loud_check(at)
        call(daemon, 1)
        report_memory(daemon, "after commands, pages, events and a call of a tool", f"{GOAL_MB} MB")
        call(daemon, CALLS)
        report_memory(daemon, f"after {CALLS:,} calls more", "no more")
        speak_mcp(daemon)
        report_memory(daemon, "after an agent spoke MCP at its address", "")


def commands(at: startup.Site) -> None:
    floor = partial(startup.run, startup.PYTHON)
    for command in ("task list", f"status {at.task_id}", f"file read {at.task_id} README.md"):
        words = command.split()
        name = f"S32 {' '.join(w for w in words if w != at.task_id)}"
        compare(name, partial(at.run, *words), floor, floor_name="python -c pass", target="5x")
        alone = partial(at.run, "--no-daemon", *words)
        compare(f"{name}, in process", alone, floor, floor_name="python -c pass", target="")
    compare(
        "S32 check run true",
        lambda: at.run("check", "run", at.task_id, "true"),
        lambda: startup.run(["docker", "run", "--rm", "--network", "none", startup.IMAGE, "true"]),
        floor_name="docker run --rm --network none",
        target="0.5x",
    )


def many_clients(at: startup.Site) -> None:
    """All at once: each is a process of its own, and so is the command that the daemon forks for it."""
    with ThreadPoolExecutor(CLIENTS) as threads:

        def together(argv: list[str]) -> None:
            for done in [threads.submit(startup.run, argv) for _ in range(CLIENTS)]:
                done.result()

        compare(
            f"S33 {CLIENTS} clients at once, status",
            partial(together, [*SANDBOX, *at.arguments("status", at.task_id)]),
            partial(together, startup.PYTHON),
            floor_name=f"{CLIENTS} times python -c pass at once",
            target="5x",
        )


def loud_check(at: startup.Site) -> None:
    """The time of a check that writes much, while ten follow its output in the dashboard, and while none does."""
    argv = [*SANDBOX, *at.arguments("--no-daemon", "check", "run", at.task_id, "loud")]
    read: list[int] = []

    def with_readers() -> float:
        with following(at) as counts:
            took = timed(lambda: startup.run(argv))  # not what it takes them to come and go
        read.append(min(counts.values()))
        return took

    pairs = [(with_readers(), timed(lambda: startup.run(argv))) for _ in range(LOUD_ROUNDS + 1)][1:]
    name = f"S34 a check that writes 40 MB, {READERS} readers"
    judge(name, pairs, floor_name="the same without readers", target="1.1x")
    print(f"S34 the slowest reader got {min(read) / 1e6:.1f} MB", flush=True)


@contextmanager
def following(at: startup.Site) -> Iterator[dict[int, int]]:
    """Ten sessions that follow the task's output; the bytes that each has read."""
    counts, over = dict.fromkeys(range(READERS), 0), threading.Event()
    clients = [httpx2.Client(timeout=30) for _ in range(READERS)]
    ready = threading.Barrier(READERS + 1, timeout=60)

    def follow(number: int, url: str) -> None:
        client, link = clients[number], httpx2.URL(url)
        here = link.copy_with(host="127.0.0.1")  # only browsers know that names below localhost are this host
        client.headers["host"] = link.netloc.decode()
        client.headers["cookie"] = client.get(here).headers["set-cookie"].partition(";")[0]
        with client.stream("GET", here.copy_with(path=f"/tasks/{at.task_id}/events", query=None)) as answer:
            assert answer.status_code == 200
            ready.wait()
            for chunk in answer.iter_raw():
                counts[number] += len(chunk)
                if over.is_set():
                    return

    urls = [str(post(at.home, "/dashboard/link")["url"]) for _ in range(READERS)]
    threads = [threading.Thread(target=follow, args=(n, url), daemon=True) for n, url in enumerate(urls)]
    for thread in threads:
        thread.start()
    ready.wait()
    try:
        yield counts
    finally:
        over.set()
        at.run("check", "run", at.task_id, "true")  # each reader gets an event, and leaves
        for thread in threads:
            thread.join(30)
        for client in clients:
            client.close()


def call(daemon: RunningDaemon, times: int) -> None:
    """Call a cheap tool through the JSON API, as agents and scripts do."""
    with connect(daemon) as client:
        for _ in range(times):
            assert client.post("http://localhost/api/v1/space_repo_list", json={}).status_code == 200


def speak_mcp(daemon: RunningDaemon) -> None:
    """List the tools, with the schemas of all of them."""
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    accept = {"accept": "application/json, text/event-stream"}
    with connect(daemon) as client:
        hello = {**body, "method": "initialize", "params": HELLO}
        answer = client.post("http://localhost/mcp", json=hello, headers=accept)
        assert answer.status_code == 200, answer.text
        session = {**accept, "mcp-session-id": answer.headers["mcp-session-id"]}
        assert "space_repo" in client.post("http://localhost/mcp", json=body, headers=session).text


def connect(daemon: RunningDaemon) -> httpx2.Client:
    """A client of the Unix socket."""
    return httpx2.Client(transport=httpx2.HTTPTransport(uds=str(daemon.home / "serve" / "api.sock")), timeout=60)


def report_memory(daemon: RunningDaemon, when: str, target: str) -> None:
    """Print it, once what was freed is given back."""
    time.sleep(SETTLE_S)
    found = measure_memory(daemon.process.pid)
    print(f"S36 memory {when}: {found:.0f} MB{target and f'; target {target}'}", flush=True)


def measure_memory(process: int) -> float:
    """What the daemon's processes hold together, in MB: a page that they share counts once (PSS)."""
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    found = [Path(f"/proc/{one}/smaps_rollup").read_text() for one in (str(process), *children)]
    lines = [line.split() for text in found for line in text.splitlines()]
    return sum(int(line[1]) for line in lines if line[0] == "Pss:") / 1024


if __name__ == "__main__":
    main()
