"""THREATS S95, S96, S147, S151, S219: the cache of compiled files that clean rooms share. All real."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.files.mount_points import unmount_below
from sandbox.models import CheckRun, Verdict
from sandbox.store.compiler_caches import CompilerCaches
from sandbox.workbench import VerifyOptions, Workbench
from sandbox.workbench.checks.gate import TreeGate
from tests.unit.conftest import Upstream, initialised

pytestmark = [pytest.mark.must]

MAKEFILE = b"""\
app: main.c value.h
\tg++ -x c++ -c main.c -o main.o
\tg++ main.o -o app
\techo "ccache: $$CCACHE_DIR"; ls -d $$CCACHE_DIR/* 2>/dev/null | head -3; ./app
test: app
\t./app
clean:
.PHONY: app test
"""
PROGRAM = b'#include <cstdio>\n#include "value.h"\nint main() { std::puts(VALUE); return 0; }\n'
POISON = b"""\
app:
\tfor d in /sandbox-ccache $$CCACHE_DIR; do for f in $$(find $$d -type f 2>/dev/null); do \\
\t  echo poison > $$f && echo WROTE $$f; rm -f $$f && echo REMOVED $$f; done; \\
\t  mkdir -p $$d/0 && echo poison > $$d/0/planted && echo PLANTED $$d; done; true
\tmkdir -p /report/.ccache/a/b && echo poison > /report/.ccache/a/b/0123456789abcdef0123456789abcR
\tchmod -R 777 /report/.ccache; mount -o remount,rw /sandbox-ccache 2>/dev/null && echo REMOUNTED; true
test:
\ttrue
"""


CHECKED = b"""\
main.o: main.c value.h
\tg++ -x c++ -c main.c -o main.o
app: main.o
\tg++ main.o -o app
test: app
\t./app | grep right
clean:
.PHONY: test
"""
FORGED = b"""\
app:
\tg++ -x c++ -c main.c -o main.o
\tls $$CCACHE_DIR/*/*/*R >/tmp/wrong
\tsed -i s/wrong/right/ value.h && g++ -x c++ -c main.c -o main.o
\tright=$$(ls $$CCACHE_DIR/*/*/*R | grep -vxFf /tmp/wrong) && for f in $$(cat /tmp/wrong); do cp -f $$right $$f; done
test:
\ttrue
"""


def built(workbench: Workbench, runs: tuple[CheckRun, ...]) -> tuple[CheckRun, str]:
    """The run of the build, and its output."""
    run = next(run for run in runs if run.check_id == "build")
    assert run.verdict is Verdict.PASSED, run.stderr_tail
    return run, run.stdout_tail


def edit(workbench: Workbench, task_id: str, path: str, content: bytes) -> None:
    known = workbench.base_hash(task_id, path)
    workbench.write_file(task_id, path, content, known)


@pytest.fixture
def upstream(tmp_path: Path) -> Upstream:
    found = initialised(tmp_path / "upstream")
    found.write("Makefile", MAKEFILE)
    found.write("main.c", PROGRAM)
    found.write("value.h", b'#define VALUE "first"\n')
    found.commit()
    return found


@pytest.fixture
def workbench(upstream: Upstream, tmp_path: Path) -> Iterator[Workbench]:
    with Workbench(tmp_path / "home", environ=dict(os.environ), allow_file=True) as found:
        yield found
    unmount_below(tmp_path)


def contents(folder: Path | None) -> dict[str, bytes]:
    assert folder is not None
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def find_cache(workbench: Workbench, run: CheckRun) -> Path | None:
    return CompilerCaches(workbench._services.home, workbench.repositories()[0].id, run.image_digest).find()


def test_s95_a_task_cannot_poison_the_compiler_cache(workbench: Workbench, upstream: Upstream) -> None:
    """Control: the same commands in a commit of the default branch change what other rooms get."""
    run, said = built(workbench, workbench.run(str(upstream.root)).runs)
    assert (run.compiler_cache, "ccache: /report/.ccache" in said) == ("filled", True)
    repo_id, before = workbench.repositories()[0].id, contents(find_cache(workbench, run))
    assert len(before) >= 2

    victim = workbench.create_task(repo_id, "victim")
    edit(workbench, victim.id, "other.txt", b"1\n")
    attacker = workbench.create_task(repo_id, "attacker")
    edit(workbench, attacker.id, "Makefile", POISON)
    for task in (victim, attacker):
        workbench.commit(task.id, "change")
    hit, said = built(workbench, workbench.verify(attacker.id).runs)
    assert hit.compiler_cache == "read"
    words = ("WROTE", "REMOVED", "PLANTED", "REMOUNTED")
    assert not [line for line in said.splitlines() if line.startswith(words)]
    assert contents(find_cache(workbench, run)) == before
    read, said = built(workbench, workbench.verify(victim.id).runs)
    assert (read.compiler_cache, "first" in said) == ("read", True)
    in_task, _ = built(workbench, workbench.run_checks(attacker.id, ["build"]))
    assert in_task.compiler_cache is None
    assert contents(find_cache(workbench, run)) == before

    upstream.write("Makefile", POISON)  # control: who may commit there decides what is compiled anyway
    upstream.write("other.txt", b"2\n")  # a tree of its own, so that no verdict answers
    upstream.commit()
    _, said = built(workbench, workbench.run(str(upstream.root)).runs)
    assert "\nPLANTED /report/.ccache" in said
    assert contents(find_cache(workbench, run)) == {"a/b/0123456789abcdef0123456789abcR": b"poison\n"}


@pytest.mark.thorough  # the suite has it as the entry that ships, S147
def test_s147_a_commit_below_the_default_branch_does_not_fill_the_compiler_cache(
    workbench: Workbench, upstream: Upstream
) -> None:
    """A merge brings a commit that was never the state of the branch. Control: the branch's last commit fills it."""
    main = upstream.git("branch", "--show-current").decode().strip()
    upstream.git("checkout", "-q", "-b", "request")
    upstream.write("Makefile", POISON)
    planted = upstream.commit()
    upstream.write("Makefile", MAKEFILE)
    upstream.commit()
    upstream.git("checkout", "-q", main)
    upstream.git("merge", "-q", "--no-ff", "--no-edit", "request")
    run, _ = built(workbench, workbench.run(str(upstream.root)).runs)
    assert run.compiler_cache == "filled"
    before = contents(find_cache(workbench, run))
    assert len(before) >= 2

    attacker = workbench.create_task(workbench.repositories()[0].id, "attacker", planted)
    hit, _ = built(workbench, workbench.verify(attacker.id).runs)
    assert hit.compiler_cache == "read"
    assert contents(find_cache(workbench, run)) == before


def test_s96_what_was_not_compiled_from_scratch_is_said_and_never_answers_for_it(
    workbench: Workbench, upstream: Upstream, tmp_path: Path
) -> None:
    """Control: without the option the same tree is answered by the verdict that used the cache."""
    built(workbench, workbench.run(str(upstream.root)).runs)
    task = workbench.create_task(workbench.repositories()[0].id, "task")
    edit(workbench, task.id, "value.h", b'#define VALUE "second"\n')
    workbench.commit(task.id, "another value")
    first, said = built(workbench, workbench.verify(task.id).runs)
    assert (first.compiler_cache, "second" in said, "first" in said) == ("read", True, False)
    again, _ = built(workbench, workbench.verify(task.id).runs)
    assert (again.cached, again.run_id) == (True, first.run_id)
    scratch, said = built(workbench, workbench.verify(task.id, options=VerifyOptions(from_scratch=True)).runs)
    assert (scratch.cached, scratch.compiler_cache, "ccache: /" in said) == (False, None, False)
    after, _ = built(workbench, workbench.verify(task.id).runs)
    assert after.run_id == scratch.run_id  # from scratch answers both
    never = {"container": {"compiler_cache": "never"}}
    edit(workbench, task.id, "value.h", b'#define VALUE "third"\n')
    workbench.commit(task.id, "a third value")
    used, _ = built(workbench, workbench.verify(task.id).runs)
    assert used.compiler_cache == "read"
    with Workbench(workbench.home, environ=dict(os.environ), allow_file=True, settings=never) as strict:
        other, _ = built(strict, strict.verify(task.id).runs)
    assert (other.cached, other.compiler_cache) == (False, None)


def test_s219_code_that_fails_from_scratch_stays_refused(workbench: Workbench, upstream: Upstream) -> None:
    """It passes where a cache is mounted. Control: before it ran from scratch its pass opened the gate."""
    built(workbench, workbench.run(str(upstream.root)).runs)
    task = workbench.create_task(workbench.repositories()[0].id, "task")
    edit(workbench, task.id, "Makefile", MAKEFILE.replace(b"\t./app\nclean", b"\ttest -d /sandbox-ccache\nclean"))
    workbench.commit(task.id, "needs the cache")
    task = workbench.task(task.id)

    def is_open() -> bool | None:
        return TreeGate(workbench._services, task).verdicts.verified

    assert (workbench.verify(task.id).verified, is_open()) == (True, True), "void"
    assert (workbench.verify(task.id).runs[0].cached, is_open()) == (True, True), "void"
    assert workbench.verify(task.id, options=VerifyOptions(from_scratch=True)).runs[-1].verdict is Verdict.FAILED
    assert is_open() is False
    for cache in (True, False, True):
        assert (workbench.verify(task.id, options=VerifyOptions(cache=cache)).verified, is_open()) == (False, False)


def test_s151_no_repository_answers_for_another_with_what_it_compiled(
    workbench: Workbench, upstream: Upstream, tmp_path: Path
) -> None:
    """Its default branch decides what its own rooms link. Control: there the tree that is wrong passes."""
    own, stranger = upstream, initialised(tmp_path / "stranger")
    for each, makefile in ((own, CHECKED), (stranger, FORGED)):
        for path, content in (("Makefile", makefile), ("main.c", PROGRAM), ("value.h", b'#define VALUE "wrong"\n')):
            each.write(path, content)
    wrong = own.commit()
    stranger.commit()
    tree = own.git("rev-parse", f"{wrong}^{{tree}}")
    own.write("value.h", b'#define VALUE "right"\n')
    own.commit()
    assert workbench.run(str(own.root)).verified
    assert workbench.run(str(stranger.root)).runs[0].compiler_cache == "filled"
    stranger.git("checkout", "-q", "-b", "copy")
    for path, content in (("Makefile", CHECKED), ("value.h", b'#define VALUE "wrong"\n')):
        stranger.write(path, content)
    copy = stranger.commit()
    stranger.git("checkout", "-q", "main")  # the default branch of a local repository
    assert stranger.git("rev-parse", f"{copy}^{{tree}}") == tree
    found = workbench.run(str(stranger.root), "copy")
    assert (found.verified, found.runs[0].compiler_cache) == (True, "read"), found.runs[-1].stdout_tail
    assert not workbench.run(str(own.root), wrong).verified
