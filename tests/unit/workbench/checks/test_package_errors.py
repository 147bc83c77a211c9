"""Captured from npm 9 and uv 0.8 to 0.9 in guests of a fetch, cargo 1.85 and go 1.24."""

from __future__ import annotations

import pytest

from sandbox.workbench.checks.package_errors import MOST_CHARS, describe_failure, keep_whole_lines

NPM_404 = """run can be found in:
npm ERR!     /workspace/cache/_logs/2026-11-30T22_55_17_685Z-debug-0.log

npm ERR! code E404
npm ERR! 404 Not Found - GET https://registry.npmjs.org/definitely-not-pkg-xyz-123
npm ERR! 404 
npm ERR! 404  'definitely-not-pkg-xyz-123@^1.0.0' is not in this registry.
npm ERR! 404 
npm ERR! 404 Note that you can also install from a
npm ERR! 404 tarball, folder, http url, or git url.

npm ERR! A complete log of this run can be found in:
npm ERR!     /workspace/cache/_logs/2026-11-30T22_55_18_885Z-debug-0.log

Error: no versions fit together
    at main (/workspace/node_fetch.js:314:22)
    at process.processTicksAndRejections (node:internal/process/task_queues:95:5)
"""
NPM_TARGET = """npm error code ETARGET
npm error notarget No matching version found for ms@^99.0.0.
npm error notarget In most cases you or one of your dependencies are requesting
npm error notarget a package version that doesn't exist.
npm error A complete log of this run can be found in: /workspace/cache/_logs/1.log
"""
NPM_PEERS = """npm ERR! code ERESOLVE
npm ERR! ERESOLVE could not resolve
npm ERR!
npm ERR! While resolving: project@0.0.0
npm ERR! Could not resolve dependency:
npm ERR! peer react@"^16" from enzyme-adapter@1.0.0
npm ERR! node_modules/enzyme-adapter
npm ERR! Fix the upstream dependency conflict, or retry
"""
UV_PLAIN = """error: No solution found when resolving dependencies
  cause: Because absent was not found in the package registry and you require absent>=1, we can conclude that your \
requirements are unsatisfiable.
"""
UV_TREE = """  \u00d7 No solution found when resolving dependencies:
  \u2570\u2500\u25b6 Because there is no version of one==9 and you require one==9, we can
      conclude that your requirements are unsatisfiable.

      hint: Pre-releases are available for one
"""
CARGO = """    Updating crates.io index
error: no matching package named `absent` found
location searched: crates.io index
required by package `space-sandbox-fetch v0.0.0 (/workspace/project)`
"""
GO = """go: example.org/absent@v1.0.0: reading https://proxy.example/absent/@v/v1.0.0.mod: 404 Not Found
"""

NPM_REPOSITORY = """Error: a package asks for a repository: not fetched
npm ERR! code EUNKNOWN
npm ERR! no program is started in a fetch: git ls-remote http://localhost/evil.git
npm ERR! A complete log of this run can be found in: /workspace/cache/_logs/1.log
"""


@pytest.mark.parametrize(
    ("tail", "said"),
    [
        (
            NPM_REPOSITORY,
            "a package asks for a repository: not fetched; no program is started in a fetch: git ls-remote "
            "http://localhost/evil.git",
        ),
        (NPM_404, "'definitely-not-pkg-xyz-123@^1.0.0' is not in this registry"),
        (NPM_404 + NPM_404, "'definitely-not-pkg-xyz-123@^1.0.0' is not in this registry"),
        (NPM_TARGET, "No matching version found for ms@^99.0.0"),
        (NPM_PEERS, 'Could not resolve dependency: peer react@"^16" from enzyme-adapter@1.0.0'),
        (
            UV_PLAIN,
            "Because absent was not found in the package registry and you require absent>=1, we can conclude that your "
            "requirements are unsatisfiable",
        ),
        (
            UV_TREE,
            "Because there is no version of one==9 and you require one==9, we can conclude that your requirements are "
            "unsatisfiable",
        ),
        (CARGO, "error: no matching package named `absent` found"),
        (GO, "go: example.org/absent@v1.0.0: reading https://proxy.example/absent/@v/v1.0.0.mod: 404 Not Found"),
        (
            "one\n\nTypeError: x is not a function\n    at main (/workspace/a.js:1:2)\n",
            "TypeError: x is not a function",
        ),
        ("", ""),
    ],
    ids=["repository", "absent", "twice", "version", "peers", "uv", "uv in a tree", "cargo", "go", "other", "silence"],
)
def test_the_lines_that_say_why_are_found_whole(tail: str, said: str) -> None:
    assert describe_failure(tail) == said


def test_a_long_reason_is_cut_and_says_so() -> None:
    said = describe_failure(f"  cause: Because {'a ' * 4000}\n")
    assert len(said) <= MOST_CHARS
    assert said.endswith("...")


@pytest.mark.parametrize(
    ("text", "most", "kept"),
    [("one\ntwo\n", 6, "two\n"), ("one\ntwo\n", 4, "two\n"), ("one\n", 10, "one\n"), ("x" * 9, 4, "xxxx")],
    ids=["within a line", "at its start", "short", "a single line"],
)
def test_a_tail_begins_with_a_whole_line(text: str, most: int, kept: str) -> None:
    assert keep_whole_lines(text, most) == kept
