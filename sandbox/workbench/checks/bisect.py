"""Use-case: find the first commit on which a check, or one test of it, fails.

Theory. The commits are those along first parents: each is a state that the branch had. Like any bisection it takes for
granted that what is bad stays bad. A round judges as many commits as rooms may run in parallel, at even distances, so
n rooms cut the range into n + 1 parts. A commit that cannot be judged is passed over; where such commits lie beside the
first bad one, the answer is the range.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from sandbox.checks.comparison import tally_results
from sandbox.errors import ErrorCode, SandboxError
from sandbox.git import cache_clones, objects
from sandbox.git.log import list_first_parents
from sandbox.git.shallow import CUT_HINT, is_shallow, require_not_cut
from sandbox.models import Bisection, BisectQuery, CheckRun, JudgedCommit, Verdict
from sandbox.store.home import Home
from sandbox.text import one_line
from sandbox.workbench.checks.callbacks import Watch, label_checks, share_watch
from sandbox.workbench.checks.commit_rooms import run_commit_check
from sandbox.workbench.checks.compared_sides import load_side
from sandbox.workbench.checks.verify_options import VerifyOptions
from sandbox.workbench.controller.services import Services

_NOT_OURS = frozenset(
    {ErrorCode.NOT_FOUND, ErrorCode.INVALID_INPUT, ErrorCode.UNSAFE_PATH, ErrorCode.UNSAFE_REPOSITORY}
)
"""Errors about what a commit contains: it cannot be judged, and others can."""


@dataclass(frozen=True)
class BisectQuestion:
    """A query about a repository."""

    repo_id: str
    query: BisectQuery


_ENDS_HINT = "Name an older commit that is good and a newer one that is bad, on one branch."
Judge = Callable[[Sequence[int]], Mapping[int, JudgedCommit]]
"""Judges commits by their places in the range, all at once."""


def bisect(services: Services, question: BisectQuestion, watch: Watch, options: VerifyOptions) -> Bisection:
    """Raises: `not_found` for a name; `invalid_input` if `good` is not before `bad`, or either is not as it is called;
    `conflict` if it was cancelled; as `run_in_rooms`.
    """
    repository, git = services.repositories.open(question.repo_id)
    query, default = question.query, repository.default_branch
    good, bad = (cache_clones.resolve_commit(git, name, default) for name in (query.good, query.bad))
    if good == bad or not objects.is_ancestor(git, good, bad):
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            f"{query.good[:100]} is not before {query.bad[:100]} in the history",
            hint=CUT_HINT if is_shallow(git.git_dir) else _ENDS_HINT,
        )
    after = list_first_parents(git, bad, f"^{good}")
    require_not_cut(git, [commit for commit, _ in after])
    commits = [*list_first_parents(git, good, limit=1), *reversed(after)]
    judge = _Judge(services, question, commits, watch, options)
    return _build_answer(question, [commit for commit, _ in commits], search(len(commits), judge.judge, options.jobs))


@dataclass
class BisectRange:
    """What a search has found. `good`, `bad`: places of the newest good and the oldest bad commit."""

    good: int
    bad: int
    judged: dict[int, JudgedCommit] = field(default_factory=dict)

    def open_places(self) -> list[int]:
        """Places between both that were not judged yet."""
        return [place for place in range(self.good + 1, self.bad) if place not in self.judged]

    def narrow(self) -> None:
        """Move both ends to what was judged."""
        bad = [place for place, one in self.judged.items() if one.outcome == "bad" and place < self.bad]
        self.bad = min(bad, default=self.bad)
        good = [place for place, one in self.judged.items() if one.outcome == "good" and place < self.bad]
        self.good = max(good, default=self.good)


def search(count: int, judge: Judge, jobs: int) -> BisectRange:
    """Find the first bad of `count` commits, of which the first is called good and the last bad. Pure but for `judge`.

    Raises: `invalid_input` if they are not.
    """
    found = BisectRange(0, count - 1)
    found.judged |= judge([0, count - 1])
    _require_ends(found.judged[0], found.judged[count - 1])
    while places := found.open_places():
        found.judged |= judge(_spread(places, jobs))
        found.narrow()
    return found


def _spread(places: Sequence[int], parts: int) -> list[int]:
    """At most `parts` of the places, at even distances."""
    return sorted({places[len(places) * number // (parts + 1)] for number in range(1, parts + 1)})


def _require_ends(good: JudgedCommit, bad: JudgedCommit) -> None:
    for name, end in (("good", good), ("bad", bad)):
        if end.outcome != name:
            raise SandboxError(
                ErrorCode.INVALID_INPUT,
                f"Commit {end.commit[:12]} was called {name}, and is {end.outcome}",
                details=end.reason or f"the verdict of {end.run_id} is {end.verdict}",
                hint="Name other commits, or another check: `sandbox history` shows what is known.",
            )


def _build_answer(question: BisectQuestion, commits: Sequence[str], found: BisectRange) -> Bisection:
    sure = found.good + 1 == found.bad
    return Bisection(
        repo_id=question.repo_id,
        check_id=question.query.check_id,
        test=question.query.test,
        good=commits[0],
        bad=commits[-1],
        between=len(commits) - 1,
        first_bad=found.judged[found.bad] if sure else None,
        candidates=() if sure else tuple(commits[found.good + 1 : found.bad + 1]),
        judged=tuple(one for _, one in sorted(found.judged.items())),
    )


@dataclass(frozen=True)
class _Judge:
    services: Services
    question: BisectQuestion
    commits: Sequence[tuple[str, str]]
    watch: Watch
    options: VerifyOptions

    def judge(self, places: Sequence[int]) -> dict[int, JudgedCommit]:
        """Judge these commits, `options.jobs` at a time."""
        with share_watch(self.watch) as (shared, cancellation), ThreadPoolExecutor(self.options.jobs, "bisect") as pool:
            started = {place: pool.submit(self._judge_one, place, shared) for place in places}
            try:
                return {place: one.result() for place, one in started.items()}
            except BaseException:
                cancellation.set()
                raise

    def _judge_one(self, place: int, watch: Watch) -> JudgedCommit:
        commit, subject = self.commits[place]
        _, git = self.services.repositories.open(self.question.repo_id)
        plain = {"commit": commit, "tree": objects.tree_of(git, commit), "subject": one_line(subject)}
        if watch.cancelled():
            raise SandboxError(ErrorCode.CONFLICT, "The search was stopped", hint="Verdicts found so far are cached.")
        try:
            runs = self._run(commit, label_checks(watch, f"{commit[:8]} "))
        except SandboxError as error:
            if error.code not in _NOT_OURS:
                raise
            return JudgedCommit(**plain, outcome="unknown", reason=error.brief)
        return judge_runs(self.services.home, runs, self.question.query, plain)

    def _run(self, commit: str, watch: Watch) -> tuple[CheckRun, ...]:
        question, one_room = self.question, replace(self.options, jobs=1, keep_going=False)
        return run_commit_check(self.services, question.repo_id, commit, question.query, watch, one_room)


def judge_runs(home: Home, runs: Sequence[CheckRun], query: BisectQuery, plain: Mapping[str, str]) -> JudgedCommit:
    """What the runs of a commit say. `plain`: its other fields."""
    run = next((run for run in runs if run.check_id == query.check_id), None)
    if run is None:
        last = f"{runs[-1].check_id}, which it requires, ended as {runs[-1].verdict.value}" if runs else ""
        return JudgedCommit(**plain, outcome="unknown", reason=last or "it did not run")
    fields = {**plain, "verdict": run.verdict, "run_id": run.run_id, "cached": run.cached}
    if run.verdict not in {Verdict.PASSED, Verdict.FAILED}:
        return JudgedCommit(**fields, outcome="unknown", reason=f"it ended as {run.verdict.value}")
    if query.test is None:
        return JudgedCommit(**fields, outcome="good" if run.verdict is Verdict.PASSED else "bad")
    tally = tally_results(load_side(home, run).results or ()).get(query.test)
    if tally is None or not tally.ran:
        lost = ", or it was lost as the results were read" if run.results_lost else ""
        reason = f"its report does not have this test, or it was skipped{lost}"
        return JudgedCommit(**fields, outcome="unknown", reason=reason)
    return JudgedCommit(**fields, outcome="bad" if tally.bad else "good")
