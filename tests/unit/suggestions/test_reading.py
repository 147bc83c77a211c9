"""Each kind of file, as projects write them: what it suggests, and what it cannot have."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from string import ascii_lowercase

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.engine.create_options import is_protected_variable
from sandbox.errors import SandboxError
from sandbox.models import Check, SuggestedPart, SuggestionKind
from sandbox.profiles import Profile
from sandbox.profiles.suggested_checks import add_suggested_parts
from sandbox.suggestions import draft
from sandbox.suggestions.draft import MAX_SCRIPT_CHARS
from sandbox.suggestions.reading import MAX_BYTES, Suggestions, read_suggestions
from sandbox.suggestions.suggesting_files import MAX_WORKFLOWS, SUGGESTING_FILES, select_workflows

WORKFLOW = ".github/workflows/ci.yml"


def read(path: str, text: str) -> Suggestions:
    return read_suggestions({path: text.encode()}, is_protected_variable)


def part(found: Suggestions, kind: SuggestionKind) -> SuggestedPart:
    return next(part for part in found.parts if part.kind is kind)


def packages(found: Suggestions) -> list[str]:
    return [name for part in found.parts for name in part.packages]


def commands(found: Suggestions) -> list[str]:
    return [" ".join(check.argv) for part in found.parts for check in part.checks]


def refused(found: Suggestions) -> list[str]:
    return [note.text for note in found.notes]


def test_a_workflow_gives_packages_and_the_commands_of_its_jobs_in_order() -> None:
    found = read(
        WORKFLOW,
        """
on: push
env: {A: "1", TOKEN: "${{ secrets.T }}"}
jobs:
  test:
    runs-on: ${{ matrix.os }}
    container: {image: "gcc:13"}
    services: {db: {image: postgres}}
    defaults: {run: {working-directory: lib}}
    steps:
      - uses: actions/checkout@v4
      - uses: other/action@v1
      - run: |
          sudo apt-get update
          sudo apt-get install -y libpng-dev \\
            $MORE
          make
          make check
      - {run: make docs, working-directory: doc, env: {B: "2"}}
      - {run: make deploy, if: "github.ref == 'x'"}
      - {run: Get-Item, shell: pwsh}
      - {run: make evil, working-directory: ../..}
  mac: {runs-on: macos-latest, steps: [{run: make mac}]}
  other: {uses: ./x.yml}
""",
    )
    assert packages(found) == ["libpng-dev"]
    checks = part(found, SuggestionKind.CHECKS).checks
    assert [(c.id, " ".join(c.argv), c.cwd, c.env, c.requires) for c in checks] == [
        ("ci-test-1", "make", "lib", {"A": "1"}, ()),
        ("ci-test-2", "make check", "lib", {"A": "1"}, ("ci-test-1",)),
        ("ci-test-3", "make docs", "doc", {"A": "1", "B": "2"}, ("ci-test-2",)),
    ]
    assert refused(found) == [
        "TOKEN", "job test: image gcc:13", "job test: services", "uses other/action@v1", "$MORE", "make deploy",
        "Get-Item", "../..", "job mac", "job other: ./x.yml",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("make\ncd x\nmake test", ["make"]),
        ("if x; then\nmake\nfi", []),
        ("for i in 1 2; do\n  make\ndone", []),
        ("cat <<EOF\nmake\nEOF", []),
        ('python -c "\nmake\n"', []),
        ("make &&\nmake test", []),
        ("f() {\nmake\n}", []),
        ("A=b\nmake", []),
        ("LD_PRELOAD=/x make", []),
        ("A=b make", ["make"]),
    ],
)
def test_a_line_is_taken_only_if_it_can_stand_alone(script: str, expected: list[str]) -> None:
    text = "j:\n  script: |\n" + "".join(f"    {line}\n" for line in script.split("\n"))
    assert commands(read(".gitlab-ci.yml", text)) == expected


def test_gitlab_jobs_share_what_is_before_them() -> None:
    found = read(
        ".gitlab-ci.yml",
        """
image: debian
variables: {A: "1", B: {value: "2"}, C: $A}
include: x.yml
.base: &base {script: [make base]}
before_script: [apt-get install -y bc]
unit:
  script: [[make], make unit]
  variables: {D: "4"}
like: {<<: *base}
ref: {script: [!reference [.base, script]]}
hand: {script: [make hand], when: manual}
""",
    )
    assert (packages(found), commands(found)) == (["bc"], ["make", "make unit", "make base"])
    assert part(found, SuggestionKind.CHECKS).checks[0].env == {"A": "1", "B": "2", "D": "4"}
    assert refused(found) == ["include", "default: image debian", "C", "job ref", "job hand"]


def test_a_devcontainer_gives_packages_variables_and_commands_and_nothing_of_its_container() -> None:
    found = read(
        ".devcontainer/devcontainer.json",
        """{ // as editors write it
  "build": {"dockerfile": "Dockerfile"}, "runArgs": ["--privileged"], "mounts": ["source=/,target=/host"],
  "initializeCommand": "touch /tmp/x", "secrets": {}, "capAdd": ["SYS_ADMIN"],
  "features": {"ghcr.io/rocker-org/devcontainer-features/apt-packages:1": {"packages": "bc,tree,--evil"},
               "ghcr.io/devcontainers/features/docker-in-docker:2": {}},
  "containerEnv": {"MODE": "dev", "LD_PRELOAD": "/x", "GIT_DIR": "x", "T": "${localEnv:TOKEN}", "N": 1},
  "postCreateCommand": ["make", "deps"], "onCreateCommand": {"a": "make a", "b": "npm ci"},
}""",
    )
    assert packages(found) == ["bc", "tree"]
    assert part(found, SuggestionKind.ENVIRONMENT).env == {"MODE": "dev"}
    assert commands(found) == ["make a", "make deps"]
    assert {"build", "runArgs", "mounts", "initializeCommand", "secrets", "capAdd", "--evil", "LD_PRELOAD"} <= set(
        refused(found)
    )
    assert {"GIT_DIR", "T", "N", "npm ci", "feature ghcr.io/devcontainers/features/docker-in-docker:2"} <= set(
        refused(found)
    )


def test_tools_are_named_and_tasks_of_mise_are_commands() -> None:
    assert refused(read(".tool-versions", "python 3.12.1 # x\nnodejs 20\n")) == ["python 3.12.1", "nodejs 20"]
    found = read(
        "mise.toml",
        '[tools]\ngo = "1.22"\n[env]\nA = "1"\n_.file = ".env"\n[tasks.lint]\n'
        'run = ["make lint", "make $X"]\ndir = "d"\n',
    )
    (check,) = part(found, SuggestionKind.CHECKS).checks
    assert (check.id, check.argv, check.cwd) == ("mise-lint-1", ("make", "lint"), "d")
    assert part(found, SuggestionKind.ENVIRONMENT).env == {"A": "1"}
    assert refused(found) == ["go 1.22", "env._", "make $X"]


def test_build_dependencies_of_debian_are_those_of_a_usual_build_on_this_platform() -> None:
    found = read(
        "debian/control",
        """# comment
Source: x
Build-Depends: debhelper-compat (= 13), dh-python, libpng-dev (>= 1.6) | libpng12-dev,
# within
 g++:native, python3:any <!nocheck>, mingw [i386], valgrind [amd64 arm64], x32 [!amd64], crossy <cross>, ${y}, -o
Build-Depends-Indep: doxygen

Package: x
Depends: evil
Build-Depends: evil2
""",
    )
    assert packages(found) == ["doxygen", "g++", "libpng-dev", "python3", "valgrind"]
    assert refused(found) == ["${y}", "-o"]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (WORKFLOW, "jobs: ["),
        (WORKFLOW, "- a"),
        (WORKFLOW, "jobs: {a: {steps: {run: x}}, b: 1}"),
        (".gitlab-ci.yml", "a: &a [*a]"),
        (".devcontainer.json", "[]"),
        ("mise.toml", "= 1"),
        ("debian/control", "x" * (MAX_BYTES + 1)),
    ],
)
def test_a_file_that_cannot_be_read_suggests_nothing(path: str, text: str) -> None:
    assert read(path, text).parts == ()


def test_a_hash_is_of_what_is_shown() -> None:
    first = read(WORKFLOW, "jobs: {a: {steps: [{run: make}]}}")
    assert read(WORKFLOW, "# a remark\njobs: {a: {steps: [{run: make}]}}\n") == first
    hashes = {
        read(path, text).parts[0].sha256
        for path, text in [
            (WORKFLOW, "jobs: {a: {steps: [{run: make}]}}"),
            (WORKFLOW, "jobs: {a: {steps: [{run: make x}]}}"),
            (".github/workflows/other.yml", "jobs: {a: {steps: [{run: make}]}}"),
            (WORKFLOW, "jobs: {a: {env: {A: b}, steps: [{run: make}]}}"),
            (WORKFLOW, "jobs: {a: {steps: [{run: apt-get install make}]}}"),
        ]
    }
    assert len(hashes) == 5


def test_only_workflows_of_the_repository_itself_are_read_and_not_too_many() -> None:
    names = [f".github/workflows/{number:03}.yml" for number in range(MAX_WORKFLOWS + 5)]
    others = [".github/workflows/a/b.yml", "x/.github/workflows/a.yml", ".github/workflows/readme.md"]
    assert select_workflows([*names, *others]) == tuple(names[:MAX_WORKFLOWS])
    many = {name: b"jobs: {a: {steps: [{run: make}]}}" + b" " * 30_000 for name in names}
    found = read_suggestions(many, is_protected_variable)
    assert 0 < len(found.parts) < 10
    assert all("larger than" in note.reason for note in found.notes)


# fmt: off
WORDS = st.sampled_from([
    "jobs", "steps", "run", "uses", "env", "if", "shell", "services", "container", "image", "working-directory",
    "script", "before_script", "variables", "value", "default", "features", "packages", "containerEnv", "tools",
    "postCreateCommand", "tasks", "dir", "make", "", "$", "&&", "#", ";", "[", "]", "\ud800", "\0", "A",
])
# fmt: on
DOCUMENTS = st.recursive(
    WORDS | st.text(max_size=5) | st.none(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=5),
    max_leaves=30,
)


@settings(max_examples=150, deadline=None)
@given(path=st.sampled_from(sorted({WORKFLOW, *SUGGESTING_FILES})), content=DOCUMENTS.map(json.dumps) | st.text())
def test_no_content_is_more_than_a_note(path: str, content: str) -> None:
    found = read_suggestions({path: content.encode("utf-8", "surrogatepass")}, is_protected_variable)
    assert Suggestions.model_validate(found.model_dump()) == found


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (".gitlab-ci.yml", r'"\ud800 job": {script: "make check"}'),
        (".gitlab-ci.yml", r'"\ud800 job": {when: manual}'),
        (".devcontainer.json", r'{"image": "\ud800", "features": {"\ud800": {}}, "containerEnv": {"\ud800": "x"}}'),
    ],
)
def test_s189_half_a_character_does_not_reach_a_result(path: str, text: str) -> None:
    """Such a text cannot be encoded, so the result could be neither stored nor shown."""
    found = read(path, text)
    assert found.notes or found.parts
    assert Suggestions.model_validate_json(found.model_dump_json()) == found


def test_s188_a_script_that_each_job_repeats_is_read_a_few_times_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: with short scripts all jobs are read."""
    read_scripts: list[str] = []

    def join_lines(script: str) -> Iterator[str]:
        read_scripts.append(script)
        return iter(())

    monkeypatch.setattr(draft, "join_lines", join_lines)
    jobs = "".join(f"j{number}: {{script: make test}}\n" for number in range(50))
    for length, times in ((1000, 50), (50_000, MAX_SCRIPT_CHARS // 50_000)):
        read_scripts.clear()
        read(".gitlab-ci.yml", f"default: {{before_script: [{'a' * length}]}}\n{jobs}")
        assert len(read_scripts) == times


def test_s188_scripts_of_all_files_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """26 files of 3 KB took 19 seconds. Control: what fits is read, in whichever files it is."""
    read_scripts: list[str] = []

    def join_lines(script: str) -> Iterator[str]:
        read_scripts.append(script)
        return iter(())

    monkeypatch.setattr(draft, "join_lines", join_lines)
    for length, scripts in ((1000, 26 * 5), (5_000, MAX_SCRIPT_CHARS // 5_000)):
        read_scripts.clear()
        text = f"x: &x {'a' * length}\njobs:\n" + "".join(f" j{n}: {{steps: [{{run: *x}}]}}\n" for n in range(5))
        files = {f"{WORKFLOWS}{name}.yml": text.encode() for name in ascii_lowercase}
        found = read_suggestions(files, is_protected_variable)
        assert len(read_scripts) == scripts
        assert any("more than 262144 characters" in note.reason for note in found.notes) is (length > 1000)


MAKE_TEST = b"jobs: {test: {steps: [{run: make test}, {run: make more}]}}\n"
GITLAB = b"test: {script: [make test]}\n"
WORKFLOWS = ".github/workflows/"
LONG = f"{WORKFLOWS}continuous-integration-on-linux-x86-"


@pytest.mark.parametrize(
    ("files", "plain"),
    [
        ({f"{WORKFLOWS}ci.yml": MAKE_TEST, f"{WORKFLOWS}ci.yaml": MAKE_TEST}, f"{WORKFLOWS}ci.yml"),
        ({f"{WORKFLOWS}gitlab.yml": MAKE_TEST, ".gitlab-ci.yml": GITLAB}, ".gitlab-ci.yml"),
        ({f"{LONG}32.yml": MAKE_TEST, f"{LONG}64.yml": MAKE_TEST}, f"{LONG}32.yml"),
    ],
    ids=["yaml", "gitlab", "long"],
)
def test_trusted_checks_of_two_files_get_different_ids_and_keep_their_hash(files: dict[str, bytes], plain: str) -> None:
    found = read_suggestions(files, is_protected_variable)
    assert [part.path for part in found.parts] == sorted(files)
    for path, content in files.items():
        (alone,) = read_suggestions({path: content}, is_protected_variable).parts
        assert alone in found.parts, "one more file changes neither ids nor hash"
        assert [check.id for check in combine(alone)] == [check.id for check in alone.checks]
    (own,) = (part for part in found.parts if part.path == plain)
    checks = combine(*found.parts)
    assert [check.argv for check in checks] == [check.argv for part in found.parts for check in part.checks]
    assert [check for check in checks if check in own.checks] == list(own.checks)
    others = [check for check in checks if check not in own.checks]
    assert [check.requires for check in others] == [(), *((check.id,) for check in others[:-1])]


def combine(*parts: SuggestedPart) -> tuple[Check, ...]:
    """The checks of a profile that these parts are added to."""
    return add_suggested_parts(Profile(name="generic", label="label", image="image"), parts).checks


def test_only_jobs_with_the_same_id_are_renamed() -> None:
    ci = b"jobs: {lint: {steps: [{run: make lint}]}, test: {steps: [{run: make test}]}}\n"
    found = read_suggestions({f"{WORKFLOWS}ci.yml": MAKE_TEST, f"{WORKFLOWS}ci.yaml": ci}, is_protected_variable)
    lint, renamed, *own = combine(*found.parts)
    assert [lint.id, *(check.id for check in own)] == ["ci-lint-1", "ci-test-1", "ci-test-2"]
    assert re.fullmatch(r"ci-test-[0-9a-f]{8}-1", renamed.id)
    assert renamed.label == "test of .github/workflows/ci.yaml"


OWN = Check(id="ci-test-1", label="label", argv=("true",))


def test_a_check_of_the_profile_keeps_its_id_and_refuses_a_part_with_the_same() -> None:
    """Control: two parts give up a name to each other, not to what the operator wrote."""
    (found,) = read(WORKFLOW, MAKE_TEST.decode()).parts
    profile = Profile(name="generic", label="label", image="image", check=(OWN,))
    with pytest.raises(SandboxError, match=r"ci\.yml cannot be used"):
        add_suggested_parts(profile, [found])


@pytest.mark.parametrize(
    ("path", "text", "sha256"),
    [
        (
            f"{LONG}64-and-more.yml",
            "jobs: {lint: {steps: [{run: make a}, {run: make b}]}, test: {steps: [{run: make c}]}}",
            "sha256:8f350863728ab415aa3a1fbfa07f1201c0526a138ea788a0470d8dc91b1e9bf2",
        ),
        (
            ".gitlab-ci.yml",
            "äö: {script: [make a, make b]}\nöä: {script: [make c]}\n",
            "sha256:ee2ed3c695c365ff6f0c2fa1a391b2949b3de3970beedeb29803066c56e26c75",
        ),
    ],
    ids=["long", "letters"],
)
def test_jobs_whose_names_give_the_same_id_do_not_require_each_other(path: str, text: str, sha256: str) -> None:
    """Their hash is the one over plain numbers, to which operators gave their trust."""
    found = part(read(path, text), SuggestionKind.CHECKS)
    first, second, other = found.checks
    assert [check.requires for check in found.checks] == [(), (first.id,), ()]
    assert len({first.id, second.id, other.id}) == 3
    assert found.sha256 == sha256
