"""The story: each project checked with one command, one of them changed step by step. Every step is asserted."""

from __future__ import annotations

import difflib
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from demo.command import Answer, DemoError
from demo.inputs import Edit, Project
from demo.narrator import Narrator, Row
from demo.stage import OWNER, Stage


def play(stage: Stage, projects: tuple[Project, ...], narrator: Narrator) -> list[Row]:
    """The whole story. The one-command runs go on in the background while one project is changed step by step."""
    narrator.chapter("1. Is this code any good? One command, nothing trusted")
    narrator.say("Each project is cloned, checked out into a fresh container without network, built and tested.")
    narrator.say("They take a few seconds; meanwhile we go on. Commands may share one home.")
    with ThreadPoolExecutor(len(projects)) as pool:
        pending = {project.name: pool.submit(stage.sandbox.run, "run", stage.url(project)) for project in projects}
        for project in projects:
            narrator.command(stage.sandbox.line("run", stage.url(project)))
        changed = [row for p in projects if p.edit is not None for row in change_project(stage, p, narrator)]
        narrator.chapter("3. What the first commands found")
        checked = [_checked(stage, project, pending[project.name].result(), narrator) for project in projects]
    return checked + changed


def _checked(stage: Stage, project: Project, answer: Answer, narrator: Narrator) -> Row:
    summary = answer.expect(0)
    _expect(summary["verified"], f"{project.name} is verified")
    _expect(summary["profile"] == project.profile, f"{project.name} is recognised as {project.profile}")
    _expect(summary["commit"] == stage.commits[project.name], "the commit that ran is the one on the server")
    _expect(len(summary["runs"]) > 0, "at least one check ran")
    checks = ", ".join(_check_text(run) for run in summary["runs"])
    narrator.answer(answer, f"{project.name} {project.version}, {project.about}: {checks}", "passed")
    return _row(project, checks, "passed", answer.wall_time_s)


def change_project(stage: Stage, project: Project, narrator: Narrator) -> list[Row]:
    """Break, see it fail, repair, verify, commit, push."""
    if project.edit is None:
        raise DemoError(f"{project.name} has no edit in inputs.toml")
    return _Change(stage, project, project.edit, narrator).play()


class _Change:
    """One task from start to close; `_task` is its id."""

    def __init__(self, stage: Stage, project: Project, edit: Edit, narrator: Narrator) -> None:
        self._stage = stage
        self._project = project
        self._edit = edit
        self._narrator = narrator
        self._task = ""
        self._branch = ""

    def play(self) -> list[Row]:
        self._narrator.chapter(f"2. Change {self._project.name}, step by step")
        self._open_task()
        content, seen = self._read()
        broken = self._break(content, seen)
        rows = [self._see_it_fail()]
        self._write_on_stale_content(content, seen)
        self._repair(broken)
        started = time.monotonic()
        commit = self._commit()
        self._verify()
        self._push(commit)
        rows.append(_row(self._project, "repaired, verified, pushed", "pushed", time.monotonic() - started))
        self._close()
        return rows

    def _open_task(self) -> None:
        cloned, answer = self._do(0, "repo", "clone", self._stage.url(self._project))
        repository, context = cloned["repository"], cloned["context"]
        _expect(repository["profile"] == self._project.profile, "the profile is recognised")
        self._narrator.answer(answer, f"{context['tree_total']} files, profile {repository['profile']}")
        self._narrator.say("A task has its own branch and its own files.")
        created, answer = self._do(0, "task", "create", repository["id"], "--prompt", self._edit.message)
        self._task, self._branch = created["task"]["id"], created["task"]["branch"]
        self._narrator.answer(answer, f"branch {self._branch}")

    def _read(self) -> tuple[str, str]:
        file, answer = self._do(0, "file", "read", self._task, self._edit.path)
        _expect(self._edit.before in file["content"] and not file["truncated"], f"{self._edit.path} is as pinned")
        self._narrator.answer(answer, f"{file['total_lines']} lines, {file['sha256'][:19]}…")
        return file["content"], file["sha256"]

    def _break(self, content: str, seen: str) -> tuple[str, str]:
        self._narrator.say(f"Now {self._edit.about}. The edit names the content it was made for.")
        broken = content.replace(self._edit.before, self._edit.broken)
        return broken, self._patch("break.patch", content, broken, seen)

    def _see_it_fail(self) -> Row:
        run, answer = self._do(1, "check", "run", self._task, self._edit.check)
        report = run["report"]
        _expect(run["verdict"] == "failed", "the check fails")
        _expect(report is not None and len(report["failed"]) > 0, "the report names the failing tests")
        bad = report["failures"] + report["errors"]
        self._narrator.answer(answer, f"{bad} of {report['tests']} tests, says their report:", "failed")
        self._narrator.quote("\n".join(failure["name"] for failure in report["failed"]), limit=4)
        return _row(self._project, f"{self._edit.check}, mistake in it", "failed", answer.wall_time_s)

    def _write_on_stale_content(self, content: str, seen: str) -> None:
        self._narrator.say(
            "A second writer, who still has the old content in mind, is refused: nothing is overwritten."
        )
        patch = self._write_patch("stale.patch", content, content.replace(self._edit.before, self._edit.repaired))
        refused, answer = self._do(4, "file", "patch", self._task, patch, "--expect", f"{self._edit.path}={seen}")
        _expect(refused["error"]["code"] == "stale_hash", "the refusal says stale_hash")
        self._narrator.answer(answer, refused["error"]["brief"], "refused")

    def _repair(self, broken: tuple[str, str]) -> None:
        self._narrator.say("The repair, made for the content as it is now:")
        content, seen = broken
        self._patch("repair.patch", content, content.replace(self._edit.broken, self._edit.repaired), seen)

    def _commit(self) -> str:
        made, answer = self._do(0, "commit", self._task, "-m", self._edit.message)
        _expect([file["path"] for file in made["files"]] == [self._edit.path], "the change is this one file")
        self._narrator.answer(answer, f"commit {made['commit'][:12]}: {self._edit.path}")
        return str(made["commit"])

    def _verify(self) -> None:
        self._narrator.say("The commit is verified in a clean room: a fresh checkout in a fresh container.")
        verified, answer = self._do(0, "verify", self._task)
        _expect(verified["verified"], "the committed tree is verified")
        checks = ", ".join(_check_text(run) for run in verified["runs"])
        self._narrator.answer(answer, f"tree {verified['tree'][:12]}: {checks}", "verified")

    def _push(self, commit: str) -> None:
        pushed, answer = self._do(0, "push", self._task)
        _expect(pushed["commit"] == commit, "the pushed commit is the committed one")
        self._narrator.answer(answer, f"{pushed['branch']}", "pushed")
        server, name = self._stage.server, self._project.name
        branches = server.branches(OWNER, name)
        _expect(branches.get(self._branch) == commit, "the server holds the branch")
        _expect(branches["main"] == self._stage.commits[name], "main did not move")
        self._narrator.say("The server's own view, `git for-each-ref` in its repository:")
        self._narrator.quote("\n".join(f"{oid[:12]} {branch}" for branch, oid in sorted(branches.items())))

    def _close(self) -> None:
        closed, answer = self._do(0, "task", "close", self._task, "--delete")
        _expect(closed["task"]["status"] == "closed", "the task is closed")
        self._narrator.answer(answer, "closed; the branch on the server stays")

    def _patch(self, name: str, old: str, new: str, seen: str) -> str:
        patch = self._write_patch(name, old, new)
        done, answer = self._do(0, "file", "patch", self._task, patch, "--expect", f"{self._edit.path}={seen}")
        after = str(done["files"][0]["sha256_after"])
        self._narrator.answer(answer, f"{self._edit.path} is now {after[:19]}…")
        return after

    def _write_patch(self, name: str, old: str, new: str) -> str:
        path = self._edit.path
        lines = difflib.unified_diff(
            old.splitlines(keepends=True), new.splitlines(keepends=True), f"a/{path}", f"b/{path}"
        )
        target = self._stage.folder / name
        target.write_text("".join(lines))
        return str(target)

    def _do(self, status: int, *arguments: str) -> tuple[dict[str, Any], Answer]:
        self._narrator.command(self._stage.sandbox.line(*arguments))
        answer = self._stage.sandbox.run(*arguments)
        return answer.expect(status), answer


def _check_text(run: dict[str, Any]) -> str:
    tests = f" {run['report']['tests']} tests" if run["report"] else ""
    cached = " (cached)" if run["cached"] else ""
    return f"{run['check_id']} {run['verdict']}{tests}{cached}"


def _row(project: Project, checks: str, verdict: str, wall_time_s: float) -> Row:
    source = {"pypi": "PyPI", "debian": "Debian"}[project.source]
    return Row(f"{project.name} {project.version}", source, project.profile, checks, verdict, wall_time_s)


def _expect(holds: bool, claim: str) -> None:
    if not holds:
        raise DemoError(f"This does not hold: {claim}")
