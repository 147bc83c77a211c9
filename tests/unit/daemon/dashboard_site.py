"""The dashboard on a home with one task, for tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from html.parser import HTMLParser
from typing import Any

import httpx2
from starlette.applications import Starlette
from starlette.exceptions import HTTPException

from sandbox.daemon.browser_sessions import COOKIE, Sessions
from sandbox.daemon.dashboard import Dashboard
from sandbox.daemon.guards import Network
from sandbox.daemon.routes import show_http_error
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import (
    ApprovalScope,
    ApprovalState,
    Check,
    CiCheck,
    CiState,
    CiVerdict,
    Delivery,
    FailedTest,
    GateState,
    Guest,
    GuestKind,
    GuestTable,
    LayerSummary,
    Leftover,
    LeftoverAction,
    Limits,
    Permission,
    Probe,
    ProbeLevel,
    PullRequestStatus,
    PullState,
    QueuedCheck,
    RepositoryStorage,
    Storage,
    StorageKind,
    StorageUse,
    Task,
    TaskEvent,
    TaskEventKind,
    TaskStorage,
    Usage,
    UsageSample,
    Verdict,
)
from sandbox.store.home import Home
from sandbox.store.records import save_run
from sandbox.store.usage_files import save_usage
from sandbox.workbench import Workbench
from tests.unit.agent.transports.test_http import listening
from tests.unit.desk import Desk
from tests.unit.store.test_verdicts import made as run_made


class Structure(HTMLParser):
    """The elements of a page with their attributes' names, and the values of those that a browser acts on."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[Any] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        kept = [(name, value) if name in {"href", "src", "action", "data-events"} else (name,) for name, value in attrs]
        self.found.append((tag, kept))

    def handle_comment(self, data: str) -> None:
        self.found.append(("comment", data))


class Site:
    """The dashboard's routes at TCP, with the rules of the network, on a home with one task."""

    def __init__(self, desk: Desk, person: Workbench, port: int) -> None:
        self.desk, self.person, self.sessions = desk, person, Sessions()
        self.url = f"http://127.0.0.1:{port}"
        dashboard = Dashboard(person, self.sessions, self.url)
        self.kept = dashboard.kept
        routes = Starlette(routes=dashboard.routes(), exception_handlers={HTTPException: show_http_error})
        self.app = Network(routes, [f"127.0.0.1:{port}"], "t" * 40, self.is_person)

    def is_person(self, scope: Any) -> bool:
        return self.sessions.find(dict(scope["headers"]).get(b"cookie", b"").decode()) is not None

    def log_in(self, client: httpx2.Client) -> str:
        """Open a session; returns its secret."""
        answer = client.get(f"{self.url}/login", params={"link": self.sessions.make_link()})
        assert answer.status_code == 303, answer.text
        return str(answer.cookies[COOKIE])


@contextmanager
def open_site(desk: Desk) -> Iterator[Site]:
    """Serve the dashboard of a desk's home."""
    places: list[Site] = []

    def make(port: int) -> Any:
        places.append(Site(desk, desk.workbench, port))
        return places[0].app

    with listening(make):
        yield places[0]


class FilledPages:
    """A new task with a text in every field that a guest, an agent, a remote or a forge controls: `FIELD` in the text
    becomes the field's name. Afterwards `desk.workbench` answers for the engine and the forge.
    """

    fields = frozenset(
        {
            "prompt", "path", "content", "label", "argument", "client", "test", "message", "stdout", "stderr", "probe",
            "hint", "owner", "service", "pull", "unseen", "check", "said", "url", "excerpt", "left", "why", "live",
            "remote", "base", "sent_remote", "sent_branch", "allowed_by", "decided_by", "brief", "details", "advice",
        }
    )  # fmt: skip

    def __init__(self, desk: Desk, text: str) -> None:
        self.desk, self.text = desk, text
        self.task: Task = desk.workbench.create_task(desk.repo_id, self._fill("prompt"))
        name = f"z{self._fill('path').replace('/', '_')[:80]}"
        agent = desk.workbench.caller.model_copy(update={"client": self._fill("client")})
        (desk.worktree(self.task) / name).write_text(f"{self._fill('content')}\n")
        printable = f"y{''.join(filter(str.isprintable, name))}"  # an agent writes no other names
        desk.workbench.acting(agent).write_file(self.task.id, printable, b"words\n", None)
        (desk.worktree(self.task) / "f").write_text(f"{self._fill('content')}\n")
        self.snapshot = desk.workbench.snapshot(self.task.id, self._fill("label")[:100])
        arguments = {"task_id": self.task.id, "label": self._fill("argument")}
        call = desk.workbench.approval_call("space_repo_snapshot", arguments)
        self.question = desk.workbench.acting(agent).request_approval(call)
        asked = desk.workbench.approval_call("space_repo_snapshot", {"task_id": self.task.id, "label": "asked"})
        self.approved = desk.workbench.request_approval(asked)
        desk.workbench.answer_approval(
            self.approved.id, approved=True, by=self._fill("decided_by"), scope=ApprovalScope.TASK
        )
        self.run_id = self._add_run()
        self._answer_for_others()
        self._change_answers()

    @property
    def paths(self) -> dict[str, str]:
        """All pages, by name."""
        task = f"/tasks/{self.task.id}"
        own = {"task": task, "pull_request": f"{task}/pull-request", "run": f"/runs/{self.run_id}"}
        return {
            "home": "/",
            "approvals": "/approvals",
            "host": "/host",
            "storage": "/storage",
            "api": "/api",
            **own,
            "error": "/runs/run-none",
        }

    def close(self) -> None:
        """End the question and the approval, and remove the task."""
        self.desk.workbench.deny_approvals(by="test")
        if self.desk.workbench.approval(self.approved.id).state is ApprovalState.APPROVED:
            self.desk.workbench.revoke_approval(self.approved.id, by="test")
        self.desk.workbench.close_task(self.task.id, delete_worktree=True, discard=True)

    def _fill(self, field: str) -> str:
        """Without NUL: with it a file is binary, and the page shows no lines of it."""
        assert field in self.fields
        return self.text.replace("FIELD", field).replace("\0", "")

    def _add_run(self) -> str:
        home, run_id = Home(self.desk.home), f"run-{self.task.id[5:].replace('-', '')}"
        folder = home.logs(self.task.id)
        folder.mkdir(exist_ok=True)
        for stream in ("stdout", "stderr"):
            (folder / f"{run_id}.{stream}").write_text(self._fill(stream))
        failure = FailedTest(test=self._fill("test"), message=self._fill("message"))
        used = Usage(pids_peak=3, limits=Limits())
        run = run_made(
            Verdict.FAILED, 1, run_id=run_id, task_id=self.task.id, failures=(failure,), usage=used, timeout_s=90.0
        )
        save_run(home, self.task.id, run)
        run_check = Check(id="test", label="test", argv=("true",), limits=Limits(memory_bytes=3 << 30))
        samples = [
            UsageSample(
                at_s=at / 4,
                cpu_time_s=at / 5,
                memory_bytes=at << 26,
                pids=at,
                disk_written_bytes=at << 20,
                disk_used_bytes=at << 18,
            )
            for at in range(40)
        ]
        save_usage(folder, run_id, run_check, samples)
        return run_id

    def _answer_for_others(self) -> None:
        fill, now = self._fill, datetime.now(UTC)
        guest = Guest(
            container="a", kind=GuestKind.SERVICE, busy=True, owner=fill("owner"), service=fill("service"),
            memory_bytes=1 << 20, cpus_used=0.25, cpus_limit=2.0, pids=3, pids_limit=64, age_s=5.0,
        )  # fmt: skip
        check = CiCheck(
            name=fill("check"), state=CiState.FAIL, url=fill("url"), said=fill("said"), excerpt=fill("excerpt")
        )
        answers: dict[str, Any] = {
            "doctor": (Probe(name="engine", level=ProbeLevel.WARN, value=fill("probe"), hint=fill("hint")),),
            "guests": GuestTable(
                at=now, guests=(guest,), waiting=1, memory_bytes=1 << 20, memory_limit_bytes=1 << 30,
                queue=(QueuedCheck(owner=self.task.id, memory_bytes=1 << 29),),
            ),
            "layers": (
                LayerSummary(
                    key="a" * 64, ecosystem="python", packages=3, bytes=1 << 24, built_at=now, used_at=now
                ),
            ),
            "pull_request_status": PullRequestStatus(
                url=fill("pull"), number=1, state=PullState.OPEN, draft=True, head_commit="a" * 40, current=False,
                verdict=CiVerdict.FAIL, checks=(check,), unseen=fill("unseen"),
            ),
        }  # fmt: skip
        answers["storage"] = self._build_storage(now)
        for name, answer in answers.items():
            setattr(self.desk.workbench, name, lambda *_, answer=answer: answer)

    def _change_answers(self) -> None:
        """Put text into what no test can make: a remote with such a URL, a push to it, output of a check that runs."""
        bench, fill, own = self.desk.workbench, self._fill, self.task.id
        repositories, task, log, past_run, look = (
            bench.repositories, bench.task, bench.log, bench.past_run, bench.look_at_task
        )  # fmt: skip
        gate = GateState(require="none", step="push", needed=False)
        sent = Delivery(remote=fill("sent_remote"), branch=fill("sent_branch"), commit="a" * 40, gate=gate)
        allowed = Permission(how="person", approval_id=self.approved.id, decided_by=fill("allowed_by"))

        def list_repositories() -> Any:
            return tuple(one.model_copy(update={"remote_url": fill("remote")}) for one in repositories())

        def find_task(task_id: str) -> Task:
            changed = {"base_branch": fill("base")} if task_id == own else {}
            return task(task_id).model_copy(update=changed)

        def read_log(task_id: str, **bounds: Any) -> Any:
            found = log(task_id, **bounds)
            pushed = found[-1].model_copy(update={"operation": "push", "sent": sent, "allowed": allowed})
            return (*found, pushed) if task_id == own else found

        def find_run(run_id: str) -> Any:
            if run_id == "run-none":
                raise SandboxError(ErrorCode.NOT_FOUND, fill("brief"), details=fill("details"), hint=fill("advice"))
            return past_run(run_id)

        def look_at_task(task_id: str) -> Any:
            kind, now = TaskEventKind.OUTPUT, datetime.now(UTC)
            yield TaskEvent(at=now, kind=kind, task_id=task_id, run_id=self.run_id, text=f"{fill('live')}\n")
            yield from look(task_id)

        changed: dict[str, Any] = {
            "repositories": list_repositories, "task": find_task, "log": read_log, "past_run": find_run,
            "look_at_task": look_at_task,
        }  # fmt: skip
        for name, answer in changed.items():
            setattr(bench, name, answer)

    def _build_storage(self, now: datetime) -> Storage:
        fill, repo_id = self._fill, self.desk.repo_id
        use = StorageUse(
            kind=StorageKind.LAYERS, repo_id=repo_id, bytes=1 << 24, files=1234, limit_bytes=20 << 30,
            limit="layers.max_bytes", removal="beyond a limit",
        )  # fmt: skip
        task = TaskStorage(
            task_id=self.task.id, repo_id=repo_id, status=self.task.status, worktree_bytes=5 << 20,
            disk_bytes=1 << 30, log_bytes=3 << 20,
        )  # fmt: skip
        left = Leftover(kind="ref", name=fill("left"), action=LeftoverAction.REMOVED, note=fill("why"), bytes=2 << 20)
        return Storage(
            measured_at=now, bytes=1 << 25, files=2345, max_bytes=1 << 30, only_here_bytes=1 << 20,
            free_bytes=1 << 33, free_files=3456, min_free_bytes=1 << 31, min_free_files=456, uses=(use,),
            repositories=(RepositoryStorage(repo_id=repo_id, bytes=1 << 24, files=3, max_bytes=1 << 26),),
            tasks=(task,), reclaimable=(left,), images_note="no engine",
        )  # fmt: skip
