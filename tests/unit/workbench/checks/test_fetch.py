"""What leads package managers out of a guest that fetches, whatever its image and the policy say."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from sandbox.config import RegistrySettings, load_settings
from sandbox.dependencies.layer_plan import ANSWER, MISMATCHES
from sandbox.egress.client_settings import PUBLIC
from sandbox.egress.registries import find_registries
from sandbox.engine.create_options import CA_FILE_TARGET, is_protected_variable
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import CheckRun, EgressAccess, EgressRefusal, Verdict
from sandbox.workbench.checks.fetch import Fetched, build_environment

ROOT = Path(__file__).parents[4]
OFFLINE = {
    "python": {"PIP_NO_INDEX", "PIP_RETRIES", "UV_OFFLINE"},
    "node": {"npm_config_offline"},
    "rust": {"CARGO_NET_OFFLINE"},
    "go": {"GOPROXY"},
    "perl": set(),  # our own program, which has no such setting
}
"""Variables of the container policy that keep a package manager offline."""


def environment(which: Any) -> dict[str, str]:
    return build_environment(which, find_registries(which, RegistrySettings(), {}, Path("/nonexistent")))


@pytest.mark.parametrize("which", PUBLIC)
def test_package_manager_is_led_to_proxy_index_and_certificates(which: Any) -> None:
    env = environment(which)
    assert {env[name] for name in ("HTTPS_PROXY", "https_proxy", "http_proxy")} == {"http://127.0.0.1:3128"}
    assert env["SSL_CERT_FILE"] == CA_FILE_TARGET
    assert PUBLIC[which][0] in env.values() or which == "rust"  # cargo's own default
    assert [name for name in env if is_protected_variable(name)] == []


@pytest.mark.parametrize("which", PUBLIC)
def test_offline_setting_of_the_policy_is_switched_off(which: Any) -> None:
    policy = tomllib.loads((ROOT / "policies" / "container.toml").read_text())["env"]
    env = environment(which)
    for name in OFFLINE[which]:
        assert env[name] != policy[name]


def test_every_offline_setting_of_the_policy_is_known_here() -> None:
    policy = tomllib.loads((ROOT / "policies" / "container.toml").read_text())["env"]
    offline = {name for name in policy if any(word in name.lower() for word in ("offline", "no_index", "goproxy"))}
    assert offline <= set().union(*OFFLINE.values())


def ended(verdict: Verdict, stderr: str = "") -> CheckRun:
    """A run of which only this matters."""
    known: dict[str, Any] = {"verdict": verdict, "stderr_tail": stderr}
    return CheckRun.model_construct(**known)


def access(why: EgressRefusal | None, host: str = "a.example") -> EgressAccess:
    return EgressAccess(host=host, port=443 if host else 0, refused=why)


@pytest.mark.parametrize(
    ("accesses", "code", "brief"),
    [
        ([None, EgressRefusal.NOT_ALLOWED], ErrorCode.EGRESS_REFUSED, "egress_refused: a.example:443, asked by"),
        ([EgressRefusal.CONNECT_FAILED], ErrorCode.NETWORK_ERROR, "fetched: a.example:443 connect_failed"),
        ([EgressRefusal.IDLE, EgressRefusal.NOT_TLS], ErrorCode.EGRESS_REFUSED, "egress_refused: a.example:443"),
        ([None], ErrorCode.NETWORK_ERROR, "could not be fetched: ERROR: no matching distribution"),
    ],
    ids=["refused", "no answer", "both", "neither"],
)
def test_failed_fetch_names_what_was_refused(accesses: list[EgressRefusal | None], code: ErrorCode, brief: str) -> None:
    run = ended(Verdict.FAILED, "ERROR: no matching distribution")
    with pytest.raises(SandboxError) as raised:
        Fetched(run, Path(), tuple(map(access, accesses))).require_success("python")
    assert raised.value.code is code
    assert brief in raised.value.brief
    assert "no matching distribution" in raised.value.details
    assert ("sandbox doctor" in raised.value.hint) is (accesses == [EgressRefusal.CONNECT_FAILED])
    assert all(why.value in raised.value.details for why in accesses if why)


def test_a_fetch_that_named_a_wrong_archive_is_no_failure_of_the_network(tmp_path: Path) -> None:
    """Control: a link in the file's place says nothing, and is not followed."""
    fetched = Fetched(ended(Verdict.FAILED, "ERROR: another sha256"), tmp_path, ())
    (tmp_path / "other").write_text("A%2FA-1.tar.gz\n")
    (tmp_path / MISMATCHES).symlink_to("other")
    with pytest.raises(SandboxError) as raised:
        fetched.require_success("perl")
    assert raised.value.code is ErrorCode.NETWORK_ERROR
    (tmp_path / "other").rename(tmp_path / MISMATCHES)
    with pytest.raises(SandboxError, match=r"another hash than the registry says: A%2FA-1\.tar\.gz") as raised:
        fetched.require_success("perl")
    assert raised.value.code is ErrorCode.POLICY_VIOLATION


@pytest.mark.parametrize(
    ("line", "reason", "brief", "hint"),
    [
        ("401 one", "registry_credentials", "asked for one, the registry asks for credentials (HTTP 401)", "a mirror"),
        ("403 @s/a", "registry_forbidden", "asked for @s/a, the registry forbids it (HTTP 403)", "Its operator"),
        ("451 one", "registry_withheld", "the registry withholds it for legal reasons (HTTP 451)", "another package"),
        ("503 ", "registry_trouble", "asked for a package, the registry answers with an error (HTTP 503)", "again"),
        ("0 one", "registry_trouble", "asked for one, the registry does not answer", "sandbox doctor"),
        ("403 one; rm", None, "could not be fetched: failed", "[registries]"),
        ("4030 one", None, "could not be fetched: failed", "[registries]"),
        ("", None, "could not be fetched: failed", "[registries]"),
    ],
)
def test_what_a_registry_answered_instead_of_a_package_is_told(
    line: str, reason: str | None, brief: str, hint: str, tmp_path: Path
) -> None:
    """Control: a line of another form says nothing."""
    (tmp_path / ANSWER).write_text(f"{line}\n")
    with pytest.raises(SandboxError) as raised:
        Fetched(ended(Verdict.FAILED, "npm error"), tmp_path, (access(None),)).require_success("node")
    error = raised.value
    assert (error.code, error.reason) == (ErrorCode.NETWORK_ERROR, reason)
    assert error.brief.endswith(brief)
    first, _, rest = f"{error.details}\n".partition("\n")
    assert (first in error.brief, rest.strip()) == (True, "npm error")
    assert hint in error.hint


@pytest.mark.parametrize("status", ["0", "403"])
def test_the_proxy_knows_better_than_the_fetch_why_no_registry_answered(status: str, tmp_path: Path) -> None:
    """npm takes the answer of the proxy, 403, for one of the registry."""
    (tmp_path / ANSWER).write_text(f"{status} one\n")
    with pytest.raises(SandboxError, match=r"a\.example:443 connect_failed"):
        Fetched(ended(Verdict.FAILED), tmp_path, (access(EgressRefusal.CONNECT_FAILED),)).require_success("node")


@pytest.mark.parametrize("rest", ["", '[remotes]\nallow_file = true\n[profiles.make]\nimage = "x"\n'])
def test_a_registry_inside_the_network_is_answered_with_a_line_that_can_be_pasted(rest: str, tmp_path: Path) -> None:
    run, refused = ended(Verdict.FAILED), (access(EgressRefusal.ADDRESS_NOT_ALLOWED),)
    with pytest.raises(SandboxError) as raised:
        Fetched(run, Path(), refused, "https://a.example/simple").require_success("python")
    line = raised.value.hint.split("`")[1]
    (tmp_path / "config.toml").write_text(f"{line}\n{rest}")
    settings = load_settings(tmp_path, {})
    assert (settings.registries.python, settings.remotes.allow_file) == (("https://a.example/simple",), bool(rest))


@pytest.mark.parametrize(("reason", "says"), [("too_many_bytes", True), ("not_allowed", False)])
def test_a_fetch_that_reached_its_limit_is_not_told_to_name_a_registry(reason: str, says: bool) -> None:
    with pytest.raises(SandboxError) as raised:
        Fetched(ended(Verdict.FAILED), Path(), (access(EgressRefusal(reason)),)).require_success("node")
    assert ("limit" in raised.value.hint, "[registries]" in raised.value.hint) == (says, not says)


def test_malformed_request_is_refused_without_a_host() -> None:
    run = ended(Verdict.FAILED)
    with pytest.raises(SandboxError, match="a request that names no host"):
        Fetched(run, Path(), (access(EgressRefusal.BAD_REQUEST, ""),)).require_success("python")


def test_passed_fetch_raises_nothing_whatever_was_refused() -> None:
    run = ended(Verdict.PASSED)
    Fetched(run, Path(), (access(EgressRefusal.NOT_ALLOWED),)).require_success("python")
