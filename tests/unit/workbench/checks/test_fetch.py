"""What leads package managers out of a guest that fetches, whatever its image and the policy say."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from sandbox.config import RegistrySettings
from sandbox.egress.registries import PUBLIC, find_registries
from sandbox.engine.create_options import CA_FILE_TARGET, is_protected_variable
from sandbox.workbench.checks.fetch import build_environment

ROOT = Path(__file__).parents[4]
OFFLINE = {
    "python": {"PIP_NO_INDEX", "PIP_RETRIES", "UV_OFFLINE"},
    "node": {"npm_config_offline"},
    "rust": {"CARGO_NET_OFFLINE"},
    "go": {"GOPROXY"},
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
