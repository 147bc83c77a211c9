"""Which paths an edit may write: the shipped rules, what an operator may change of them, and what stays refused."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devtools.host_speed import slowness
from sandbox.config import find_resources
from sandbox.errors import ErrorCode, SandboxError
from sandbox.policy.globs import PatternSet, parse_pattern
from sandbox.policy.paths import LOOK_ALIKE, parse_repo_path
from sandbox.policy.writes import PathPolicy, find_flags, load_path_policy, parse_writable_path
from tests.unit.conftest import refused

SHIPPED = find_resources("policies") / "paths.toml"
REPO = "github.com-owner-name"


@pytest.fixture(scope="module")
def shipped() -> PathPolicy:
    return load_path_policy(SHIPPED, Path("/nonexistent"))


def refusing_rule(text: str, policy: PathPolicy, repo_id: str = REPO) -> str | None:
    """Name of the rule that refuses a path, as callers see it."""
    try:
        parse_writable_path(text, policy, repo_id)
    except SandboxError as error:
        return error.brief.split("'")[1] if error.code is ErrorCode.UNSAFE_PATH else error.code.value
    return None


DENIED = {
    ".gitattributes": "git-control",
    "sub/dir/.gitattributes": "git-control",
    ".gitmodules": "git-control",
    ".lfsconfig": "git-control",
    ".mailmap": "git-control",
    ".github/workflows/ci.yml": "ci",
    ".github/workflows/a/b.yml": "ci",
    ".gitlab-ci.yml": "ci",
    "azure-pipelines.yaml": "ci",
    ".tekton/push.yaml": "ci",
    "Jenkinsfile": "ci",
    "CODEOWNERS": "review",
    "docs/CODEOWNERS": "review",
    ".pre-commit-config.yaml": "hooks",
    ".husky/pre-commit": "hooks",
    ".githooks/pre-push": "hooks",
    ".vscode/tasks.json": "hooks",
    "deep/.envrc": "hooks",
    ".zed/tasks.json": "hooks",
}


@pytest.mark.parametrize(("path", "rule"), DENIED.items())
def test_j31_a_control_file_is_refused_by_a_named_rule(path: str, rule: str, shipped: PathPolicy) -> None:
    assert parse_repo_path(path) == path, "the grammar alone lets it through"
    with refused(ErrorCode.UNSAFE_PATH) as caught:
        parse_writable_path(path, shipped, REPO)
    assert f"'{rule}'" in caught.value.brief
    assert caught.value.hint


FOLDED = [
    ".GitAttributes", ".gitattributes.", ".gitattributes ", ".gitattributes::$DATA", ".git\u200cattributes",
    ".git\u00admodules", "\uff0egitmodules", ".GITHUB/Workflows/x.yml",
    ".github /workflows/x", ".github/workflow\uff53/x",
    "codeowners", ".Husky/x",
]  # fmt: skip


@pytest.mark.parametrize("path", FOLDED, ids=ascii)
def test_j31_a_name_that_some_file_system_takes_for_a_control_file_is_one(path: str, shipped: PathPolicy) -> None:
    assert refusing_rule(path, shipped) in {"git-control", "ci", "review", "hooks"}


@pytest.mark.parametrize("path", ["GITATT~1", "gitmod~1", "gi7eba~1", "GITHUB~1/WORKFL~1/x.yml", "a/codeow~1", "x~1.c"])
def test_a_short_name_of_windows_is_refused(path: str, shipped: PathPolicy) -> None:
    assert refusing_rule(path, shipped) == "short-name"


LOOK_ALIKES = [
    "\u2024", "\u2024\u2024/x", "\u2025", "\u2026", "\uff0e\uff0e/x", "d/\u3002\u3002", "\u00b7", ".\u2024/x",
    ".\u200b./x",
    "a\u2215b", "a\u2044b", "a\uff0fb", "a\u29f8b", "a\uff3cb", "a\u2216b", "a\u29f5b", "\ufe68", "\u2105.txt",
    "\u3002git/config", "\u00b7git", "\u200b", "d/\u3164/x", "\u2800", "\u3000", "\u00a0.", "\u1680",
    "\u0701\u0702", "\ua60e", "\U00010a50.", "a\u2041b", "a\u1735b", "a\u31d3b", "a\U0001d23ab", "a\u31d4b",
    "a\U0001d20fb",
]  # fmt: skip


@pytest.mark.parametrize("path", LOOK_ALIKES, ids=ascii)
def test_s13_a_name_that_only_looks_like_another_is_refused_flagged_and_readable(
    path: str, shipped: PathPolicy
) -> None:
    assert refusing_rule(path, shipped) == LOOK_ALIKE
    assert LOOK_ALIKE in find_flags(parse_repo_path(path), shipped, REPO)


@pytest.mark.parametrize(
    "path",
    [
        "a\u2026b.txt", "\u4e2d\u3002md", "\u30a2\u30fb\u30a4", "x\u00b7y", "\u00bd.md", "caf\u00e9/\u00e9", "...",
        " x",
        "x\u202egnp", "\u2764\ufe0f.md", "a\u00a0b", "\u0628\u200c\u0628", "%FF", "\u2260",
    ],
    ids=ascii,
)  # fmt: skip
def test_a_name_of_another_script_is_written(path: str, shipped: PathPolicy) -> None:
    assert parse_writable_path(path, shipped, REPO) == path
    assert find_flags(parse_repo_path(path), shipped, REPO) == ()


@pytest.mark.parametrize(
    "path",
    [
        "src/main.c", "README.md", "workflows/x.yml", "uv.lock",
        "a/.github/workflows/x.yml", "gitattributes", ".gitattributes.md",
        "x.gitmodules", "CODEOWNERS.md", "a~1long.c", "longer-name~1", "backup~", "%FF", "Makefile", ".gitignore",
    ],
)  # fmt: skip
def test_other_files_are_written(path: str, shipped: PathPolicy) -> None:
    assert parse_writable_path(path, shipped, REPO) == path


@pytest.mark.parametrize(
    ("path", "rule"),
    [
        ("../x", "traversal"), ("/etc/passwd", "absolute"), ("", "empty"), (".git/config", "dotgit"),
        (".g\u00adit/config", "dotgit"), ("a\nb", "control"), ("%2e", "escape"), (".sandbox-write-0", "reserved"),
        ("a/.sandbox-write-x/b", "reserved"), ("x/" * 64 + "x", "depth"), ("/".join(["n" * 100] * 11), "length"),
        ("n" * 256, "length"),
    ],
)  # fmt: skip
def test_h01_j32_what_no_operator_can_allow_stays_refused(path: str, rule: str, shipped: PathPolicy) -> None:
    open_wide = PathPolicy.model_validate({"repository": [{"match": ["*"], "allow": ["*", "**/*", "/*"]}]})
    assert refusing_rule(path, shipped) == rule
    assert refusing_rule(path, shipped.merge_operator_policy(open_wide)) == rule


@pytest.mark.parametrize(
    ("path", "flags"),
    [
        ("src/main.c", ()),
        ("Makefile", ("build",)),
        ("sub/CMakeLists.txt", ("build",)),
        ("setup.PY", ("build",)),
        ("requirements-dev.txt", ("lock",)),
        (".pnpmfile.cjs", ("build",)),
        (".pnpmfile.mjs", ("build",)),
        ("native/binding.gyp", ("build",)),
        (".yarn/plugins/x.cjs", ("build",)),
        ("bunfig.toml", ("build",)),
        ("package-lock.json", ("lock",)),
        (".gitignore", ("ignored",)),
        (".github/workflows/x.yml", ("ci",)),
        (".husky/pre-commit", ("hooks",)),
        ("AGENTS.md", ("agents",)),
        (".codex/config.toml", ("agents",)),
        (".gemini/settings.json", ("agents",)),
        (".github/workflows/package.json", ("ci", "build")),
    ],
)
def test_what_a_push_has_to_name_carries_the_names_of_its_rules(
    path: str, flags: tuple[str, ...], shipped: PathPolicy
) -> None:
    assert find_flags(parse_repo_path(path), shipped, REPO) == flags


# --- the operator's own file


def with_own(tmp_path: Path, text: str) -> PathPolicy:
    own = tmp_path / "paths.toml"
    own.write_text(text)
    return load_path_policy(SHIPPED, own)


EXCEPTIONS = """
[[repository]]
match = ["github.com-owner-*"]
allow = ["/.github/workflows/*.yml", ".gitattributes"]
deny = ["/vendor/", "/.github/workflows/release.yml"]

[[repository]]
match = ["*"]
deny = ["*.pem"]
"""


@pytest.mark.parametrize(
    ("path", "repo", "rule"),
    [
        (".github/workflows/ci.yml", REPO, None),
        (".github/workflows/ci.yml", "github.com-other-name", "ci"),
        (".github/workflows/release.yml", REPO, "repository"),
        (".github/workflows/RELEASE.yml", REPO, "repository"),
        (".github/workflows/sub/ci.yml", REPO, "ci"),
        (".GITHUB/workflows/ci.yml", REPO, "ci"),
        (".gitmodules", REPO, "git-control"),
        ("a/.gitattributes", REPO, None),
        ("vendor/x/y.c", REPO, "repository"),
        ("Vendor/x", REPO, "repository"),
        ("vendor/x", "gitlab.com-a-b", None),
        ("keys/server.pem", REPO, "repository"),
        ("keys/server.pem", "gitlab.com-a-b", "repository"),
    ],
)
def test_exceptions_hold_for_their_repositories_and_no_other_spelling(
    path: str, repo: str, rule: str | None, tmp_path: Path
) -> None:
    policy = with_own(tmp_path, EXCEPTIONS)
    assert refusing_rule(path, policy, repo) == rule


def test_an_allowed_control_file_is_still_named_before_a_push(tmp_path: Path) -> None:
    policy = with_own(tmp_path, EXCEPTIONS)
    path = parse_writable_path(".github/workflows/ci.yml", policy, REPO)
    assert find_flags(path, policy, REPO) == ("ci",)
    assert find_flags(parse_repo_path("vendor/x"), policy, REPO) == ("repository",)


def test_a_rule_of_the_operator_replaces_the_shipped_one_of_that_name(tmp_path: Path, shipped: PathPolicy) -> None:
    policy = with_own(tmp_path, '[[rule]]\nname = "ci"\naction = "deny"\nwhy = "ours"\npaths = ["/ci/"]\n')
    assert refusing_rule("ci/x", shipped) is None
    assert refusing_rule("ci/x", policy) == "ci"
    assert refusing_rule(".github/workflows/x.yml", policy) is None
    assert refusing_rule(".gitmodules", policy) == "git-control"


def test_limits_can_be_lowered_one_by_one(tmp_path: Path) -> None:
    policy = with_own(tmp_path, "[limits]\ndepth = 2\n")
    assert refusing_rule("a/b", policy) is None
    assert refusing_rule("a/b/c", policy) == "depth"
    assert policy.limits.path_bytes == 1024


@pytest.mark.parametrize(
    "text",
    [
        "[limits]\npath_byte = 1\n",
        "[limits]\npath_bytes = 5000\n",
        "[limits]\ndepth = 128\n",
        "[[repository]]\nallow = ['x']\n",
        "[[repository]]\nmatch = []\n",
        "[[repository]]\nmatch = ['a/b']\n",
        "[[repository]]\nmatch = ['[a']\n",
        "[[repository]]\nmatch = ['*']\nallow = ['!x']\n",
        "[[repository]]\nmatch = ['*']\nallow = ['# x']\n",
        *(
            f"[[repository]]\nmatch = ['*']\n{kind} = ['{glob}']\n"
            for kind in ("allow", "deny")
            for glob in ("./secrets/", "/secrets//", "..", ".", "a//b", "a/../b", "/./x", "//x", "**/./x")
        ),
        "[[repository]]\nmatch = ['*']\ndeny = ['']\n",
        "[[repository]]\nmatch = ['*']\ndeny = ['a[b']\n",
        "[[repository]]\nmatch = ['*']\ndeny = ['a\\']\n",
        "[[repository]]\nmatch = ['*']\ngrant = ['a']\n",
        "[[rule]]\nname = 'x'\naction = 'ask'\nwhy = ''\npaths = []\n",
        "[[rule]]\nname = 'X y'\naction = 'deny'\nwhy = ''\npaths = []\n",
        "[[rule]]\nname = 'x'\naction = 'deny'\nwhy = ''\npaths = []\n" * 2,
        "nonsense",
        "deny = ['x']\n",
    ],
)
def test_a_policy_with_a_mistake_is_refused_not_half_used(text: str, tmp_path: Path) -> None:
    with refused(ErrorCode.INVALID_INPUT) as caught:
        with_own(tmp_path, text)
    assert str(tmp_path) in caught.value.brief


@pytest.mark.parametrize("glob", ["secrets/", "/secrets/", "..x", "...", ".x", "a/**/b", "**", "[.]x"])
def test_a_glob_that_can_match_is_no_mistake(glob: str, tmp_path: Path) -> None:
    policy = with_own(tmp_path, f"[[repository]]\nmatch = ['*']\ndeny = ['{glob}']\n")
    assert policy.repositories


def test_a_shipped_policy_that_cannot_be_used_is_a_policy_violation(tmp_path: Path) -> None:
    with refused(ErrorCode.POLICY_VIOLATION):
        load_path_policy(tmp_path / "none.toml", tmp_path / "own.toml")


@pytest.mark.parametrize("glob", ["*a" * 100 + "b", "**/" * 300 + "x", "*" * 500 + "b", "[a]*" * 100 + "b"])
def test_i07_no_glob_can_hang_a_check(glob: str, tmp_path: Path) -> None:
    policy = with_own(tmp_path, f'[[repository]]\nmatch = ["*"]\ndeny = ["{glob}"]\nallow = ["{glob}"]\n')
    started = time.monotonic()
    assert refusing_rule("/".join(["a" * 200] * 5), policy) is None
    assert time.monotonic() - started < 1 * slowness()


@given(
    st.text(max_size=40) | st.lists(st.sampled_from(["a", "..", "/", ".git", "modules", "~1", "%FF", "."])).map("".join)
)
def test_what_may_be_written_obeys_the_grammar_too(shipped: PathPolicy, text: str) -> None:
    if refusing_rule(text, shipped) is None:
        path = parse_writable_path(text, shipped, REPO)
        assert parse_repo_path(text) == path == parse_writable_path(path, shipped, REPO)


GLOBS = ["a", "/a", "a/", "a/b", "**/a", "**/a/b", "a/**", "a/**/b", "*.py", "/*.py", "[ab]", "**", "\\a", "b/", "/b/*"]
NAMES = st.lists(st.sampled_from(["a", "b", "a.py", "c", "**", "\\a"]), min_size=1, max_size=4)


@given(globs=st.lists(st.sampled_from(GLOBS), max_size=6), parts=NAMES)
def test_patterns_asked_together_cover_what_one_of_them_covers(globs: list[str], parts: list[str]) -> None:
    patterns = [p for glob in globs if (p := parse_pattern(glob)) is not None]
    assert PatternSet(patterns).covers(parts) == any(pattern.covers(parts) for pattern in patterns)
