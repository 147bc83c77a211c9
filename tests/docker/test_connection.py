"""What goes to the engine with each question."""

from __future__ import annotations

import os
from pathlib import Path

import docker
import pytest

from sandbox.engine.connection import connect


@pytest.mark.usefixtures("engine")
def test_nobodys_password_goes_to_a_unix_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: the HTTP library reads ~/.netrc by itself, and to it the socket is `localhost`."""
    netrc = tmp_path / "netrc"
    netrc.write_text("machine localhost login operator password secret\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    found = connect("", os.environ, 60.0)
    if not found.endpoint.url.startswith("unix://"):
        pytest.skip("the engine is not on a unix socket")
    sent = []
    sdk: docker.APIClient = found.api._sdk  # type: ignore[attr-defined]  # of the `SocketApi`, which sends no headers
    for trusting in (True, sdk.trust_env):
        sdk.trust_env = trusting
        sent.append("Authorization" in sdk.get(f"{sdk.base_url}/_ping").request.headers)
    found.close()
    assert sent == [True, False]
