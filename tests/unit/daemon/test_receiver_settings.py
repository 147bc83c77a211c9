"""A daemon whose receivers of events cannot be made does not start: HTTP would fail, and start again, for ever."""

from __future__ import annotations

import importlib.util
import json
import logging
from pathlib import Path

import pytest

from devtools.command import SANDBOX
from sandbox.cli.log_setup import configure_logs
from sandbox.config import ServeSettings
from sandbox.daemon import receiver_settings
from sandbox.daemon.receiver_settings import require_receivers
from sandbox.errors import ErrorCode, SandboxError
from tests.unit.conftest import run

COLLECTOR = ServeSettings.model_validate({"otlp_url": "http://127.0.0.1:4318"})
HOOK = '[[serve.webhook]]\nurl = "https://hooks.example/"\nsecret_file = "{}"\n'


@pytest.mark.parametrize(
    ("text", "code"),
    [("[serve]\nbogus = 1\n", 2), (HOOK.format("/nonexistent/secret"), 2), (HOOK.format("{secret}"), 3)],
    ids=["a key that is not known", "a secret that is missing", "a secret that others can read"],
)
def test_a_mistake_ends_it_at_once(tmp_path: Path, text: str, code: int) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s" * 40)
    secret.chmod(0o644)
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text(text.replace("{secret}", str(secret)))
    run([*SANDBOX, "--home", str(home), "serve"], code=code)
    assert sorted(path.name for path in (home / "serve").iterdir()) == ["lock"], "no socket stays"


@pytest.mark.parametrize("missing", ["opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"])
def test_without_the_extra_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    require_receivers(COLLECTOR)  # control

    def find(name: str) -> object:
        if name == missing:
            raise ModuleNotFoundError(name)
        return importlib.util.find_spec(name)

    monkeypatch.setattr(receiver_settings, "find_spec", find)
    require_receivers(ServeSettings())
    with pytest.raises(SandboxError) as caught:
        require_receivers(COLLECTOR)
    assert caught.value.code is ErrorCode.INVALID_INPUT
    assert "space-sandbox[otel]" in caught.value.hint


def test_a_line_of_the_log_has_the_trace_of_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    """Such as of the HTTP server of a daemon."""
    logger = logging.getLogger("sandbox")
    before = logger.handlers, logger.level, logger.propagate
    try:
        configure_logs(lambda text: text)
        try:
            raise ValueError("no such thing")
        except ValueError:
            logger.exception("it failed")
    finally:
        logger.handlers, logger.level, logger.propagate = before
    found = json.loads(capsys.readouterr().err)
    assert found["event"] == "it failed"
    assert found["exception"].splitlines()[-1] == "ValueError: no such thing"
