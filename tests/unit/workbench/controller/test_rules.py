"""What an operator's container and commit policies may say, what is in force, and where it comes from."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from devtools.command import Command
from sandbox.config import find_resources
from sandbox.engine.create_options import PROTECTED_ENV, is_protected_variable
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import Check, Limits, PolicyRule, Risk
from sandbox.policy import commit, container
from sandbox.profiles import load_profiles
from sandbox.workbench import Workbench
from sandbox.workbench.checks.guest_setup import GuestSetup
from sandbox.workbench.checks.verdict_keys import build_bindings
from sandbox.workbench.controller.services import build_services
from tests.unit.conftest import Upstream, refused
from tests.unit.desk import Desk

SHIPPED = container.load_container_policy(find_resources("policies"))
COMMIT = commit.load_commit_policy(find_resources("policies"))


@pytest.fixture
def desk(upstream: Upstream, tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(upstream, tmp_path / "sandbox-home")
    with desk.workbench:
        yield desk


def written(folder: Path, name: str, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(text)
    return path


def opened(home: Path, **environ: str) -> Workbench:
    return Workbench(home, environ={"PATH": os.environ["PATH"], **environ}, allow_file=True)


# --- the container policy


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("tmp_inodes = 1000", lambda p: p.tmp_inodes == 1000),
        ("shm_bytes = 1", lambda p: p.shm_bytes == 1),
        ("[ceiling]\nmemory_bytes = 1000000", lambda p: p.ceiling.memory_bytes == 1000000),
        ("[ceiling]\nmemory_bytes = 99999999999", lambda p: p.ceiling.memory_bytes == 99999999999),
        ("[ceiling]\npids = 9", lambda p: p.ceiling.cpus == SHIPPED.container.ceiling.cpus),
        ('runtimes = ["runsc"]', lambda p: p.runtimes == ("runsc",)),
        ('runtimes = ["runc", "kata"]', lambda p: p.runtimes == ("runc", "kata")),
        ("[ulimits]\nmemlock_bytes = 0", lambda p: (p.ulimits.memlock_bytes, p.ulimits.core) == (0, 0)),
        ('[env]\nTZ = "UTC"', lambda p: p.env == {**SHIPPED.container.env, "TZ": "UTC"}),
        ("cpu_shares = 2\noom_score_adj = 1000", lambda p: (p.cpu_shares, p.oom_score_adj) == (2, 1000)),
    ],
)
def test_an_operators_values_replace_the_shipped_ones_by_key(tmp_path: Path, text: str, found: Any) -> None:
    policy = container.merge_operator_container_policy(
        SHIPPED, written(tmp_path, "container.toml", text), is_protected_variable
    )
    assert found(policy.container)
    assert policy.seccomp_json == SHIPPED.seccomp_json
    assert policy.container.user == SHIPPED.container.user


LOOSENING = [
    "user = {uid = 1000}", "user = 0", 'seccomp = "unconfined"', 'seccomp = "seccomp.json"', "network = true",
    'network = "host"', 'cap_add = ["SYS_ADMIN"]', "capabilities = []", "privileged = false",
    "no_new_privileges = false",
    "no-new-privileges = false", "read_only = false", "read_only_root = false", 'devices = ["/dev/kvm"]',
    'volumes = ["/"]', 'seccomp_allow = ["mount"]', 'apparmor = "unconfined"', '[mounts]\nworkspace = "/etc"',
    "[ulimits]\nrtprio = 99", "[ulimits]\ncore = 1", "[ulimits]\nmsgqueue_bytes = 1", '[env]\nLD_PRELOAD = "/x.so"',
    '[env]\nGIT_DIR = "/x"', '[env]\n"A B" = "1"', "NETWORK = true",
]  # fmt: skip


@pytest.mark.parametrize("text", LOOSENING)
def test_what_holds_for_every_guest_cannot_be_loosened_and_is_named(tmp_path: Path, text: str) -> None:
    path = written(tmp_path, "container.toml", text)
    with refused(ErrorCode.POLICY_VIOLATION) as caught:
        container.merge_operator_container_policy(SHIPPED, path, is_protected_variable)
    first, _, rest = text.partition("\n")
    table, key = first.strip("[]"), (rest or first).partition(" = ")[0].strip('"')
    assert (
        f"'{key}'" in caught.value.brief
        or f"'{table}.{key}'" in caught.value.brief
        or f"'{table}'" in caught.value.brief
    )
    assert str(path) in caught.value.brief


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("tmp_inode = 1", "tmp_inode"),
        ("[ceiling]\nmemory = 1", "ceiling.memory"),
        ("tmp_inodes = 0", "tmp_inodes"),
        ("tmp_inodes = {a = 1}", "tmp_inodes"),
        ("ceiling = 3", "ceiling"),
        ("env = 'x'", "env"),
        ("cpu_shares = 4096", "cpu_shares"),
        ("oom_score_adj = -1", "oom_score_adj"),
        ("runtimes = []", "runtimes"),
        ('runtimes = ["-x"]', "runtimes"),
        ('seccomp_deny = ["no_such_call"]', "seccomp_deny"),
        ("not toml", "TOML"),
    ],
)
def test_a_file_with_a_mistake_is_refused_by_file_and_key(tmp_path: Path, text: str, key: str) -> None:
    path = written(tmp_path, "container.toml", text)
    with refused(ErrorCode.INVALID_INPUT) as caught:
        container.merge_operator_container_policy(SHIPPED, path, is_protected_variable)
    assert key in caught.value.details
    assert str(path) in caught.value.brief


def test_seccomp_is_made_narrower_only(tmp_path: Path) -> None:
    def allowed(text: str) -> set[str]:
        rules = json.loads(text)["syscalls"]
        return {name for rule in rules if rule["action"] == "SCMP_ACT_ALLOW" for name in rule["names"]}

    own = written(tmp_path, "container.toml", 'seccomp_deny = ["ptrace", "socket", "io_setup"]')
    narrowed = container.merge_operator_container_policy(SHIPPED, own, is_protected_variable).seccomp_json
    assert allowed(SHIPPED.seccomp_json) - allowed(narrowed) == {"ptrace", "socket"}
    assert not allowed(narrowed) - allowed(SHIPPED.seccomp_json)
    assert json.loads(narrowed)["defaultAction"] == "SCMP_ACT_ERRNO"


def test_guests_are_not_told_to_print_without_colors() -> None:
    """Tests of colors would fail; a pipe gets none. What prints them into one is told by its profile."""
    assert "NO_COLOR" not in SHIPPED.container.env
    node = load_profiles([find_resources("policies") / "profiles"], PurePosixPath("/workspace"))["node"]
    assert all(check.env["NO_COLOR"] == "1" for check in node.checks)


def test_no_protected_variable_is_shipped() -> None:
    assert not PROTECTED_ENV & SHIPPED.container.env.keys()


CHECK = Check(
    id="test", label="t", argv=("true",), cwd=".", env={}, timeout_s=9, limits=Limits(), requires=(), risk=Risk.SHELL
)


def test_another_policy_is_another_question(tmp_path: Path) -> None:
    """A verdict is not answered from the cache of another container policy; the control: the same one asks the same."""
    keys = []
    for text in ("", "", "shm_bytes = 1", 'seccomp_deny = ["ptrace"]', "[env]\nTZ = 'UTC'"):
        written(tmp_path / "home" / "policies", "container.toml", text)
        services = build_services(tmp_path / "home", {}, allow_file=True)
        asked = build_bindings(services.policies, GuestSetup("sha256:1", "runc"), "0" * 40, [CHECK])
        keys.append(asked["test"].key)
        services.close()
    assert keys[0] == keys[1]
    assert len(set(keys)) == 4
    (tmp_path / "home" / "policies" / "container.toml").unlink()
    services = build_services(tmp_path / "home", {}, allow_file=True)
    assert build_bindings(services.policies, GuestSetup("sha256:1", "runc"), "0" * 40, [CHECK])["test"].key == keys[0]


def test_a_repository_has_no_say(upstream: Upstream, tmp_path: Path) -> None:
    for folder in ("", ".sandbox/", "policies/", ".sandbox/policies/"):
        upstream.write(f"{folder}container.toml", b"shm_bytes = 1\n")
        upstream.write(f"{folder}commit.toml", b'[without]\nsuffixes = [".o"]\n')
    desk = Desk(upstream, tmp_path / "sandbox-home")
    with desk.workbench:
        assert {rule.origin for rule in desk.workbench.policy("container")} == {"built-in"}
        assert {rule.origin for rule in desk.workbench.policy("commit")} == {"built-in"}
    written(desk.home / "policies", "container.toml", "shm_bytes = 1\n")
    with opened(desk.home) as later:
        assert [r.key for r in later.policy("container") if r.origin == "operator"] == ["shm_bytes"], "the control"


def test_a_bad_container_policy_stops_what_depends_on_it_and_nothing_else(desk: Desk) -> None:
    written(desk.home / "policies", "container.toml", "network = true\n")
    with opened(desk.home) as later:
        task = later.create_task(desk.repo_id).id
        later.write_file(task, "x", "1", None)
        later.commit(task, "x")
        assert later.profiles()
        assert later.status(task).ahead == 1
        with refused(ErrorCode.POLICY_VIOLATION):
            later.policy("container")
        assert later.policy("approvals")


# --- the commit policy


def test_an_operator_adds_to_the_commit_policy_and_takes_out_of_it(tmp_path: Path) -> None:
    own = written(
        tmp_path,
        "commit.toml",
        'suffixes = [".BLEND"]\nfolders = ["Cache"]\n[magic]\n"a picture" = "89504e47"\n'
        '[without]\nsuffixes = [".jar"]\nfolders = [".venv"]\nmagic = ["a zip archive"]\n',
    )
    policy = commit.merge_operator_commit_policy(COMMIT, own)
    suspicious = {
        path: policy.find_suspicion(commit.AddedFile(path, 9, content), 10_000) is not None
        for path, content in {
            "x.blend": b"", "cache/x": b"", "x.png": b"\x89PNG\0", "x.o": b"", "x.jar": b"", ".venv/x": b"",
            "x.bin": b"PK\x03\x04\0",
        }.items()
    }  # fmt: skip
    assert suspicious == {
        "x.blend": True, "cache/x": True, "x.png": True, "x.o": True, "x.jar": False, ".venv/x": False, "x.bin": False,
    }  # fmt: skip
    assert COMMIT.find_suspicion(commit.AddedFile("x.jar", 0, b""), 10_000), "the control"


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("suffix = ['.x']", "suffix"),
        ("[without]\nsuffixes = ['.nonsense']", "without.suffixes"),
        ("[without]\nmagick = []", "without.magick"),
        ("[magic]\nx = 'zz'", "magic.x"),
        ("[magic]\nx = ''", "magic.x"),
        ("suffixes = ['']", "suffixes"),
        ("max_file_bytes = 3", "max_file_bytes"),
        ("=", "TOML"),
    ],
)
def test_a_commit_policy_with_a_mistake_is_refused_by_file_and_key(desk: Desk, text: str, key: str) -> None:
    path = written(desk.home / "policies", "commit.toml", text)
    with opened(desk.home) as later:
        later.write_file(desk.task.id, "x", "1", None)
        with refused(ErrorCode.INVALID_INPUT) as caught:
            later.commit(desk.task.id, "x")
    assert key in caught.value.details
    assert str(path) in caught.value.brief


def test_a_commit_goes_by_the_operators_policy(desk: Desk) -> None:
    desk.workbench.write_file(desk.task.id, "a.jar", "1", None)
    with refused(ErrorCode.POLICY_VIOLATION):
        desk.workbench.commit(desk.task.id, "x")
    written(desk.home / "policies", "commit.toml", "[without]\nsuffixes = ['.jar']\n")
    with opened(desk.home) as later:
        assert [c.path for c in later.commit(desk.task.id, "x").files] == ["a.jar"]


# --- what is in force


def rule(found: tuple[PolicyRule, ...], policy: str, key: str) -> PolicyRule:
    (one,) = [r for r in found if (r.policy, r.key) == (policy, key)]
    return one


def test_every_rule_says_where_it_comes_from(desk: Desk) -> None:
    written(desk.home / "policies", "container.toml", "[ceiling]\npids = 9\n")
    written(desk.home / "policies", "commit.toml", "names = ['notes']\n")
    written(
        desk.home / "policies", "paths.toml", "[limits]\ndepth = 3\n[[repository]]\nmatch = ['x*']\nallow = ['/a']\n"
    )
    written(desk.home / "policies", "approvals.toml", "[tools]\nspace_repo_snapshot = 'ask'\n")
    written(desk.home, "config.toml", "[images]\nmirror = 'http://user:secret@mirror/'\n[gate]\nrequire = 'push'\n")
    with opened(desk.home, SANDBOX_CONTAINER_IDLE_S="60") as later:
        found = later.policy()
    policies = str(desk.home / "policies")
    expected = {
        ("container", "ceiling.pids"): (9, "operator", f"{policies}/container.toml"),
        ("container", "ceiling.cpus"): (16.0, "built-in", str(find_resources("policies") / "container.toml")),
        ("container", "network"): ("none", "built-in", ""),
        ("paths", "limits.depth"): (3, "operator", f"{policies}/paths.toml"),
        ("paths", "repository.x*.allow"): (("/a",), "operator", f"{policies}/paths.toml"),
        ("approvals", "tools.space_repo_snapshot"): ("ask", "operator", f"{policies}/approvals.toml"),
        ("approvals", "risk.shell"): ("allow", "built-in", str(find_resources("policies") / "approvals.toml")),
        ("settings", "gate.require"): ("push", "config", str(desk.home / "config.toml")),
        ("settings", "container.idle_s"): (60, "environment", "SANDBOX_CONTAINER_IDLE_S"),
        ("settings", "container.keep"): (True, "built-in", ""),
        ("commit", "max_file_bytes"): (5242880, "built-in", ""),
    }
    for (policy, key), (value, origin, source) in expected.items():
        one = rule(found, policy, key)
        assert (one.value, one.origin, one.source) == (value, origin, source), key
    assert [r.value for r in found if r.policy == "commit" and r.origin == "operator"] == ["notes"]
    assert rule(found, "settings", "images.mirror").value == "http://***@mirror/"


def test_the_command_prints_the_rules_of_one_policy(desk: Desk) -> None:
    sandbox = Command(desk.home)
    rules = sandbox.ok("policy", "show", "container")["rules"]
    assert {rule["policy"] for rule in rules} == {"container"}
    assert set(rules[0]) == {"policy", "key", "value", "origin", "source"}
    assert "ceiling.memory_bytes" in sandbox("policy", "show", "container").stdout
    wrong = sandbox("policy", "show", "contaner")
    assert (wrong.code, "Did you mean: container" in wrong.stderr) == (2, True)


@pytest.mark.parametrize("text", ["[tools", "tools = " + "[" * 5000, "expires_s = " + "9" * 5000])
@pytest.mark.parametrize("name", ["approvals", "commit", "container", "paths"])
def test_a_policy_that_is_no_toml_is_an_error_of_its_file(tmp_path: Path, name: str, text: str) -> None:
    """Also where the rules of all policies are listed."""
    path = written(tmp_path / "home" / "policies", f"{name}.toml", text)
    with opened(tmp_path / "home") as workbench:
        for list_rules in (workbench.policy, lambda: workbench.policy(name), workbench.policy_differences):
            with pytest.raises(SandboxError) as caught:
                list_rules()
            assert caught.value.code in {ErrorCode.INVALID_INPUT, ErrorCode.POLICY_VIOLATION}
            assert str(path) in caught.value.brief
            assert "It is not TOML" in caught.value.details


def test_a_credential_that_is_not_utf_8_is_bad_input(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as workbench:
        for fields in ({"secret": "s\udcff"}, {"secret": "s", "username": "\udcff"}, {"ssh_key": Path("/k\udcff")}):
            with refused(ErrorCode.INVALID_INPUT) as caught:
                workbench.set_credential("github.com", **fields)
            assert "\udcff" not in str(caught.value)
        assert workbench.credentials() == ()
