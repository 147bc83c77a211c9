"""File, then variables, then flags; and every mistake named."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from sandbox.config import Settings, describe_ignored_variables, find_resources, load_settings
from sandbox.environment_names import HOOK_FACTS, may_be_setting
from sandbox.errors import ErrorCode
from sandbox.git.describe import CommitDescription
from sandbox.models.checks import Check, Limits
from sandbox.workbench.checks.git_facts import list_variables
from tests.unit.conftest import refused


def config(home: Path, text: str) -> Path:
    (home / "config.toml").write_text(text)
    return home


def test_nothing_configured_denies_files_and_plain_http(tmp_path: Path) -> None:
    settings = load_settings(tmp_path, {})
    assert (settings.remotes.allow_file, settings.remotes.allow_http) == (False, False)
    assert (settings.container.runtime, settings.gate.require) == ("runc", "pr-ready")


@pytest.mark.parametrize(
    ("text", "environ", "flags", "host"),
    [
        ("", {}, {}, ""),
        ('engine.host = "file"', {}, {}, "file"),
        ('engine.host = "file"', {"SANDBOX_ENGINE_HOST": "variable"}, {}, "variable"),
        ('engine.host = "file"', {"SANDBOX_ENGINE_HOST": "variable"}, {"engine": {"host": "flag"}}, "flag"),
        ("", {}, {"engine": {"host": "flag"}}, "flag"),
    ],
    ids=["default", "file", "variable-over-file", "flag-over-variable", "flag-alone"],
)
def test_flags_beat_variables_beat_the_file(
    tmp_path: Path, text: str, environ: dict[str, str], flags: dict[str, dict[str, str]], host: str
) -> None:
    assert load_settings(config(tmp_path, text), environ, flags).engine.host == host


def test_a_layer_overrides_single_keys_and_keeps_the_others(tmp_path: Path) -> None:
    settings = load_settings(
        config(tmp_path, '[engine]\nhost = "file"\ntimeout_s = 7\n'), {"SANDBOX_ENGINE_HOST": "variable"}
    )
    assert (settings.engine.host, settings.engine.timeout_s) == ("variable", 7.0)


def test_a_profile_image_can_come_from_a_variable(tmp_path: Path) -> None:
    environ = {"SANDBOX_PROFILES_PYTHON_IMAGE": "mine:1", "SANDBOX_PROFILES_MY_OWN_IMAGE": "mine:2"}
    profiles = load_settings(tmp_path, environ).profiles
    assert {name: p.image for name, p in profiles.items()} == {"python": "mine:1", "my-own": "mine:2"}


def test_keys_of_two_words_come_from_variables(tmp_path: Path) -> None:
    settings = load_settings(tmp_path, {"SANDBOX_REMOTES_ALLOW_FILE": "true", "SANDBOX_IMAGES_BUILD_NETWORK": "none"})
    assert (settings.remotes.allow_file, settings.images.build_network) == (True, "none")


@pytest.mark.parametrize(
    ("text", "environ", "key"),
    [
        ("surprise = 1", {}, "surprise"),
        ("[engine]\nhots = 1", {}, "engine.hots"),
        ("[engine]\ntimeout_s = -1", {}, "engine.timeout_s"),
        ('[gate]\nrequire = "sometimes"', {}, "gate.require"),
        ("engine = 3", {}, "engine"),
        ("[profiles.python]\nimages = 'x'", {}, "profiles.python.images"),
        ("", {"SANDBOX_ENGINE_HOTS": "x"}, "engine.hots"),
        ("", {"SANDBOX_ENGINE_TIMEOUT_S": "soon"}, "engine.timeout_s"),
        ("", {"SANDBOX_REMOTES_ALLOW_FILE": "perhaps"}, "remotes.allow_file"),
        ("", {"SANDBOX_PROFILES_PYTHON_IMAGES": "x"}, "profiles.python.images"),
    ],
    ids=["section", "key", "range", "choice", "type", "profile-key", "variable", "variable-type", "bool", "profile"],
)
def test_a_wrong_key_is_named(tmp_path: Path, text: str, environ: dict[str, str], key: str) -> None:
    with refused(ErrorCode.INVALID_INPUT) as caught:
        load_settings(config(tmp_path, text), environ)
    assert f"'{key}'" in caught.value.brief


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        ("SANDBOX_ENGINE_HOTS", "x", "there is no such key"),
        ("SANDBOX_ENGINE_TIMEOUT_S", "soon", "should be a valid number, not 'soon'"),
        ("SANDBOX_PROFILES_PYTHON_IMAGES", "x", "there is no such key"),
    ],
)
def test_a_wrong_variable_is_named_and_not_the_file(tmp_path: Path, variable: str, value: str, expected: str) -> None:
    with refused(ErrorCode.INVALID_INPUT) as caught:
        load_settings(config(tmp_path, "[engine]\ntimeout_s = 7\n"), {variable: value})
    assert expected in caught.value.brief
    assert caught.value.details == f"Set by {variable}"


@pytest.mark.parametrize(
    "settings", [{"zz": {"a": 1}}, {"engine": 5}, {"engine": {"timeout_s": "soon"}}, {"container": {"parallel": "x"}}]
)
def test_a_wrong_setting_of_a_call_names_no_file(tmp_path: Path, settings: dict[str, object]) -> None:
    """Also beside a file and a variable, which it overrides."""
    for home, environ in (
        (tmp_path, {}),
        (config(tmp_path, "[engine]\nhost = ''\n"), {"SANDBOX_ENGINE_TIMEOUT_S": "7"}),
    ):
        with refused(ErrorCode.INVALID_INPUT) as caught:
            load_settings(home, environ, settings)
        assert caught.value.details == "Set by the settings of this call"


def test_a_wrong_key_of_the_file_is_not_of_the_call(tmp_path: Path) -> None:
    with refused(ErrorCode.INVALID_INPUT) as caught:
        load_settings(config(tmp_path, "[engine]\ntimeout_s = 0\n"), {}, {"engine": {"host": "x"}})
    assert caught.value.details == f"Set by {tmp_path / 'config.toml'}"


def test_a_wrong_key_of_the_file_names_the_file_beside_variables(tmp_path: Path) -> None:
    with refused(ErrorCode.INVALID_INPUT) as caught:
        load_settings(config(tmp_path, "[engine]\ntimeout_s = 0\n"), {"SANDBOX_ENGINE_HOST": "x"})
    assert caught.value.details == f"Set by {tmp_path / 'config.toml'}"


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("SANDBOX_ENGIN_HOST", "SANDBOX_ENGINE_HOST"),
        ("SANDBOX_IMAGE_BASE", "SANDBOX_IMAGES_BASE"),
        ("SANDBOX_HOMES", "SANDBOX_HOME"),
        ("SANDBOX_LIMITS_MEMORY_BYTES", "docs/profiles.md"),
        ("SANDBOX_PROFILE_PYTHON_IMAGE", "SANDBOX_PROFILES_<NAME>_IMAGE"),
        ("SANDBOX_PROFILES_IMAGE", "SANDBOX_PROFILES_<NAME>_IMAGE"),
    ],
)
def test_a_variable_that_is_nearly_ours_is_refused(tmp_path: Path, variable: str, meant: str) -> None:
    with refused(ErrorCode.INVALID_INPUT) as caught:
        load_settings(tmp_path, {variable: "x"})
    assert variable in caught.value.brief
    assert meant in caught.value.details


def test_an_unknown_key_is_called_one(tmp_path: Path) -> None:
    with refused(ErrorCode.INVALID_INPUT) as caught:
        load_settings(config(tmp_path, "[remotes]\nallow_fil = true"), {})
    assert caught.value.brief.endswith("there is no such key; did you mean allow_file?")


@pytest.mark.parametrize(
    ("text", "environ"),
    [("engine = 3", {"SANDBOX_ENGINE_HOST": "x"}), ("profiles = [1]", {"SANDBOX_PROFILES_PYTHON_IMAGE": "x"})],
)
def test_a_section_that_is_no_table_is_invalid_input_under_a_variable(
    tmp_path: Path, text: str, environ: dict[str, str]
) -> None:
    with refused(ErrorCode.INVALID_INPUT):
        load_settings(config(tmp_path, text), environ)


@pytest.mark.parametrize(
    "content",
    [b"[engine", b"\xff\xfe", b"a = 1\na = 2", b"a = " + b"[" * 5000, b"a = " + b"9" * 5000],
    ids=["cut", "no-utf-8", "twice", "nested", "digits"],
)
def test_a_file_that_is_no_toml_is_invalid_input(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "config.toml").write_bytes(content)
    with refused(ErrorCode.INVALID_INPUT) as caught:
        load_settings(tmp_path, {})
    assert "config.toml" in caught.value.brief


def test_variables_of_other_programs_and_the_home_are_no_settings(tmp_path: Path) -> None:
    environ = {"SANDBOX_HOME": "/x", "SANDBOX_DEBUG": "1", "ENGINE_HOST": "x", "SANDBOX_OTHER_THING": "1"}
    assert load_settings(tmp_path, environ) == load_settings(tmp_path, {})


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["SANDBOX_HOME", "SANDBOX_LOG", "SANDBOX_ENGINE_HOST", "PATH"], ""),
        (["SANDBOX_WORKSPACE_ID", "SANDBOX_WORKSPACE_ROOT", "SANDBOX_COMMIT"], ""),
        (["SANDBOX_NOPE", "SANDBOX_A"], "SANDBOX_A, SANDBOX_NOPE: no setting has this name, so it is ignored"),
        (
            ["SANDBOX_TIMEOUT_S"],
            "SANDBOX_TIMEOUT_S: no setting has this name, so it is ignored; similar: SANDBOX_ENGINE_TIMEOUT_S",
        ),
    ],
    ids=["settings", "given to programs", "others", "similar"],
)
def test_variables_that_set_nothing_are_named(names: list[str], said: str) -> None:
    assert describe_ignored_variables(dict.fromkeys(names, "x")) == said


def test_a_hook_or_a_check_may_run_the_sandbox(tmp_path: Path) -> None:
    """Variables of hooks are similar to settings, and that would be an error. Control: one that we do not give.

    What a real hook has is in tests/contract/test_workspaces.py.
    """
    of_checks = list_variables(CommitDescription("c" * 40, "v1-0-gccc", "1", 1))
    assert [name for name in of_checks if may_be_setting(name)] == []
    environ = dict.fromkeys(HOOK_FACTS.values(), "x") | of_checks
    assert load_settings(tmp_path, environ) == load_settings(tmp_path, {})
    with refused(ErrorCode.INVALID_INPUT):
        load_settings(tmp_path, environ | {"SANDBOX_WORKSPACE_DISK": "x"})


def test_what_programs_of_our_images_read_is_no_setting() -> None:
    programs = [path for path in find_resources("images").rglob("*") if path.is_file()]
    names = {name for path in programs for name in re.findall(r"SANDBOX_[A-Z_]+", path.read_text(errors="replace"))}
    assert "SANDBOX_NODE_LAYER" in names
    assert {name for name in names if may_be_setting(name)} == set()


def test_the_shipped_folders_are_found() -> None:
    assert (find_resources("policies") / "container.toml").is_file()
    assert (find_resources("images") / "base").is_dir()


@pytest.mark.parametrize("url", ["http://user:pass@proxy:1", "file:///etc", "http://proxy/ -x", "proxy:3128"])
def test_a_proxy_with_a_password_or_another_scheme_is_refused(url: str, tmp_path: Path) -> None:
    with refused(ErrorCode.INVALID_INPUT) as caught:
        load_settings(tmp_path, {}, {"remotes": {"proxy": url}})
    assert "remotes.proxy" in caught.value.brief


def test_patterns_of_what_is_published_are_separated_by_commas_in_a_variable(tmp_path: Path) -> None:
    environ = {"SANDBOX_CLUSTER_PUBLISHES": "github.com/acme/*, git.example.org:8443/team/*"}
    found = load_settings(tmp_path, environ).cluster.publishes
    assert found == ("github.com/acme/*", "git.example.org:8443/team/*")


@pytest.mark.parametrize("pattern", ["acme", "https://github.com/acme/*", "github.com/", "github.com/a b"])
def test_what_is_no_pattern_of_repositories_is_refused(tmp_path: Path, pattern: str) -> None:
    with refused(ErrorCode.INVALID_INPUT):
        load_settings(tmp_path, {"SANDBOX_CLUSTER_PUBLISHES": pattern})


@pytest.mark.parametrize(
    "address",
    ["temporal:x", "127.0.0.1:99999", "127.0.0.1:0", ":7233", "a b:1", "127.0.0.1", "http://a:1", "a:1:2", "[::1"],
)
def test_what_is_no_host_and_port_of_a_server_is_refused(tmp_path: Path, address: str) -> None:
    with refused(ErrorCode.INVALID_INPUT) as caught:
        load_settings(tmp_path, {"SANDBOX_CLUSTER_ADDRESS": address})
    assert "SANDBOX_CLUSTER_ADDRESS" in caught.value.details
    assert "host:port" in caught.value.brief


@pytest.mark.parametrize("address", ["", "temporal:7233", "temporal_1.example.org.:65535", "10.0.0.1:1", "[::1]:7233"])
def test_a_host_and_a_port_are_taken_as_they_are(tmp_path: Path, address: str) -> None:
    assert load_settings(tmp_path, {"SANDBOX_CLUSTER_ADDRESS": address}).cluster.address == address


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[repositories.r.checks.test]\nlimits = { memory_bytes = 1 }\n", "memory_bytes must be at least 6,291,456"),
        ("[[repositories.r.project]]\nname = 'a'\nsubpath = ''\nlimits = { cpus = 0.001 }\n", "cpus must be at least"),
        (f"[[repositories.r.project]]\nname = 'a'\nsubpath = ''\nenv.A = '{'x' * 200_000}'\n", "variable 'A' cannot"),
    ],
    ids=["check", "project", "variable"],
)
def test_what_no_guest_starts_with_is_named(tmp_path: Path, text: str, named: str) -> None:
    with refused(ErrorCode.INVALID_INPUT) as caught:
        load_settings(config(tmp_path, text), {})
    assert named in caught.value.brief
    assert len(caught.value.brief) < 300


NUMBERS = [
    *(
        f"{section}.{key}"
        for section, of_section in Settings.model_fields.items()
        for key, field in getattr(of_section.annotation, "model_fields", {}).items()
        if type(field.default) in {int, float}
    ),
    "profiles.p.timeout_factor",
    "repositories.r.max_bytes",
    "repositories.r.checks.t.timeout_s",
    "repositories.r.checks.t.jobs",
    *(f"repositories.r.checks.t.limits.{name}" for name in Limits.model_fields),
]


@pytest.mark.parametrize("value", ["nan", "-1"])
@pytest.mark.parametrize("key", NUMBERS)
def test_a_number_below_its_bound_is_refused(tmp_path: Path, key: str, value: str) -> None:
    with refused(ErrorCode.INVALID_INPUT) as caught:
        load_settings(config(tmp_path, f"{key} = {value}\n"), {})
    assert key.rpartition(".")[2] in caught.value.brief
    assert len(caught.value.brief) < 300
    unlimited = key.startswith(("keep.", "storage.")) or key == "repositories.r.max_bytes"
    assert ("0 means no limit" in caught.value.hint) is unlimited


CHOICES = {
    "profiles.p.timeout_factor",
    "container.idle_s",
    "agent.result_bytes",
    "agent.sessions",
    "cluster.lost_after_s",
}
"""Numbers of which a larger one means something else than `practically for ever`."""


@pytest.mark.parametrize("value", ["inf", "1e300", "9" * 300])
@pytest.mark.parametrize("key", [key for key in NUMBERS if ".limits." not in key])
def test_every_number_has_an_upper_bound(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, key: str, value: str
) -> None:
    if key in CHOICES:
        with refused(ErrorCode.INVALID_INPUT) as caught:
            load_settings(config(tmp_path, f"{key} = {value}\n"), {})
        assert key.rpartition(".")[2] in caught.value.brief
        return
    found: Any = load_settings(config(tmp_path, f"{key} = {value}\n"), {}).model_dump()
    for part in key.split("."):
        found = found[part]
    (warning,) = [record.getMessage() for record in caplog.records]
    assert f"'{key}'" in warning
    assert f" counts as {int(found)} " in warning


def test_a_home_with_numbers_for_ever_loads_as_before(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    text = """
        engine.timeout_s = 1000000
        layers.keep_days = 99999
        [keep]
        closed_tasks_days = inf
        runs = 10_000_000_000
        [storage]
        max_bytes = 9223372036854775807
    """
    variables = {"SANDBOX_KEEP_ARTIFACTS_DAYS": "inf", "SANDBOX_CONTAINER_PARALLEL": "20000"}
    found = load_settings(config(tmp_path, text), variables, {"remotes": {"timeout_s": 1e6}})
    assert (found.engine.timeout_s, found.remotes.timeout_s) == (604_800, 604_800)
    assert (found.keep.closed_tasks_days, found.keep.artifacts_days, found.layers.keep_days) == (36_500,) * 3
    assert (found.keep.runs, found.storage.max_bytes, found.container.parallel) == (10**9, 2**60, 10_000)
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 8
    assert f"configuration key 'keep.runs': more than {10**9} counts as {10**9} (set by {tmp_path}/config.toml)" in said
    assert any("SANDBOX_KEEP_ARTIFACTS_DAYS" in line for line in said)
    assert any("the settings of this call" in line for line in said)


def test_a_wrong_value_beside_a_number_for_ever_is_refused(tmp_path: Path) -> None:
    with refused(ErrorCode.INVALID_INPUT) as caught:
        load_settings(config(tmp_path, "[keep]\nclosed_tasks_days = inf\nruns = nan\n"), {})
    assert "keep.runs" in caught.value.brief


def test_numbers_at_their_bounds_are_accepted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A time that many days ago can be computed."""
    text = "keep.approvals_days = 36500\nengine.timeout_s = 604800\nremotes.max_fetch_bytes = 0x1000000000000000\n"
    found = load_settings(config(tmp_path, text), {})
    assert datetime.now(UTC) - timedelta(days=found.keep.approvals_days)
    assert not caplog.records


@pytest.mark.parametrize("name", Limits.model_fields)
def test_limits_that_no_host_can_give_are_the_largest_possible_ones(tmp_path: Path, name: str) -> None:
    for value in (2**62, 10**13):
        limits = {name: value}
        text = f"[repositories.r.checks.test]\nlimits = {{ {name} = {value!r} }}\n"
        chosen = load_settings(config(tmp_path, text), {}).repositories["r"].checks["test"].limits
        check = Check(id="t", label="t", argv=("true",), limits=Limits.model_validate(limits))
        most = {"cpus": 10_000, "pids": 2**22, "open_files": 2**30, "disk_files": 10**12}.get(name, 2**60)
        assert chosen[name] == getattr(check.limits, name) == min(value, most)
        assert getattr(Limits.model_validate(limits), name) == value, "records are read as they are"


def test_limits_with_which_a_check_of_an_earlier_version_ran_are_no_error(tmp_path: Path) -> None:
    limits = "{ disk_bytes = 500000, open_files = 12, tmp_bytes = 1 }"
    found = load_settings(config(tmp_path, f"[repositories.r.checks.test]\nlimits = {limits}\n"), {})
    assert found.repositories["r"].checks["test"].limits["disk_bytes"] == 500_000


@pytest.mark.parametrize(
    ("text", "environ", "meant"),
    [
        ("[gate]\nrequier = 'off'\n", {}, "require"),
        ("[gat]\nrequire = 'off'\n", {}, "gate"),
        ("", {"SANDBOX_GATE_REQUIER": "off"}, "require"),
        ("", {"SANDBOX_CACHE_URLL": "x"}, "url"),
    ],
    ids=["key", "table", "variable", "another variable"],
)
def test_an_unknown_key_is_answered_with_the_one_that_was_meant(
    tmp_path: Path, text: str, environ: dict[str, str], meant: str
) -> None:
    with refused(ErrorCode.INVALID_INPUT) as caught:
        load_settings(config(tmp_path, text), environ)
    assert f"there is no such key; did you mean {meant}?" in caught.value.brief
