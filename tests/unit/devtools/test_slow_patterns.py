"""Each regular expression of the product is linear, or reads only what is short: hostile texts reach many of them."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from devtools import slow_patterns
from devtools.slow_patterns import METHODS, UsedPattern, find_patterns, find_slow, find_untried

BOUNDED = {
    "sandbox.attack.suites.misleading_reports:CARELESS": "what an attack's control shows, with 1,600 blanks",
    "sandbox.edits.patch_paths:_TIMESTAMP": "_TIMESTAMP_BYTES",
}
"""Patterns that grow as the square of what they read, with what keeps that short."""

pytestmark = pytest.mark.xdist_group("patterns")  # they are recorded once


@pytest.fixture(scope="module", autouse=True)
def forgotten() -> Iterator[None]:
    """Millions of nodes of syntax trees, through which each garbage collection of the process would go later."""
    yield
    slow_patterns._read_trees.cache_clear()
    slow_patterns._find_unrecorded.cache_clear()


@pytest.mark.slow
def test_s188_no_pattern_takes_long_for_a_long_text() -> None:
    assert len(find_patterns()) > 550
    slow = {found.place: str(found) for used in find_patterns() if (found := find_slow(used))}
    assert slow.keys() <= BOUNDED.keys(), "\n".join(text for place, text in slow.items() if place not in BOUNDED)
    assert BOUNDED.keys() == slow.keys(), "one of these is quick now: remove it"


UNTRIED = {
    "sandbox.capabilities:_read_debian_version": "a file of the host",
    "sandbox.checks.parameters:_list_others": "a profile's pattern, of which the form is looked at first",
    "sandbox.daemon.place:is_of_homes_user": "a file of the kernel",
    "sandbox.dependencies.perl_words:_find_marks": "three alternatives of one or two characters",
    "sandbox.engine.cgroups:_read_keyed_number": "a file of the kernel",
    "sandbox.forges.gitlab_answers:is_job": "a fixed text",
    "sandbox.git.grep:list_files_over": "each record begins with a zero byte, which no part of it has",
    "sandbox.git.push.rejection:_find_status": "from the start of a line, up to a fixed text",
    "sandbox.models.checks:_require_expression": "made to see whether it is valid",
    "sandbox.models.checks:_require_group": "made to see whether it is valid",
    "sandbox.models.checks:shuffle_seed": "a fixed text and a number of nine digits",
    "sandbox.models.definitions:_validate_pattern": "made to see whether it is valid",
    "sandbox.policy.globs:_expression": "pieces of fixed length in atomic groups",
    "sandbox.profiles.broken_detection:_is_pattern": "made to see whether it is valid",
    "sandbox.profiles.profile_matches:_match_marker": "a profile's pattern, MARKER_BYTES",
    "sandbox.profiles:_validate_pattern": "made to see whether it is valid",
    "sandbox.workbench.reconciling.remove_repository:_list_folders": "names of folders that the product made",
    "sandbox.workbench.tasks.branch_names:is_branch_of": "one repetition, at the end",
    "sandbox.workspaces.acquired:__init__": "a fixed text and digits of a fixed number",
}
"""Functions that make patterns of what they are given, so none of these is tried, with why they are linear."""


@pytest.mark.slow
def test_s188_each_pattern_is_tried_or_is_one_that_is_known() -> None:
    """A place without a function is a pattern of a module that was not found."""
    assert find_untried() == UNTRIED.keys()


@pytest.mark.slow
def test_patterns_are_found_wherever_a_module_keeps_them_and_with_their_flags() -> None:
    """In objects of a tuple, in a dict, of an f-string, of literals in a function, and of a table that is made late."""
    found = {used.place: used for used in find_patterns()}
    assert sum(place.startswith("sandbox.checks.symptoms:") for place in found) > 10
    assert found["sandbox.text:_PIECE"].pattern.groupindex.keys() == {"undecided", "osc", "string"}
    [in_a_dict] = [place for place in found if re.fullmatch(r"sandbox\.text:[0-9]+", place)]
    assert found[in_a_dict].methods < METHODS, "only those that the module calls"
    rules = [used for place, used in found.items() if re.fullmatch(r"sandbox\.git\.failures:[0-9]+", place)]
    flags = re.IGNORECASE | re.MULTILINE
    assert [used.pattern.flags & flags for used in rules[:1]] == [flags]
    (umask,) = (used for used in found.values() if used.pattern.pattern == r"^Umask:\s*([0-7]+)$")
    assert umask.pattern.flags & re.MULTILINE


SLOW = {
    "cubic": (r"^\s*#?\s*(?:---|type:.*)?\s*$", "match"),
    "a number that is searched": (r"(\d+)\.(\d+)", "search"),
    "blanks at the end": (rb"(?<!\\)((?:\\\\)*) +\Z", "sub"),
    "nested": (r"(?:a|b+)+c", "fullmatch"),
    "in a branch": (r"x|y(?:\d*)*\d+z", "match"),
    "behind a text": (r"error: (\S+\s*)+;", "search"),
}


@pytest.mark.parametrize("name", SLOW)
def test_slow_patterns_are_found(name: str) -> None:
    pattern, method = SLOW[name]
    assert find_slow(UsedPattern(name, re.compile(pattern), frozenset({method}))) is not None


@pytest.mark.parametrize(
    "pattern", [r"\d+\.\d+\Z", r"[a-z]++:", r"(?>\s+)x", r"(?P<q>['\"])a*(?P=q)", r"[^\n]*\n?", r"(?=a)b*(?!c)"]
)
def test_linear_patterns_are_not_taken_for_slow(pattern: str) -> None:
    assert find_slow(UsedPattern("linear", re.compile(pattern), METHODS & {"match", "fullmatch"})) is None
