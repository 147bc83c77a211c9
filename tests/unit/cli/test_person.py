"""Who decided is told from the system's accounts, not from what the environment claims."""

from __future__ import annotations

import os
import pwd

import pytest

from sandbox.cli.person import describe_user


def test_the_environment_does_not_say_who_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.setenv(name, "somebody-else")
    monkeypatch.delenv("SUDO_USER", raising=False)
    assert describe_user() == f"{pwd.getpwuid(os.getuid()).pw_name} at the command line"


def test_a_uid_without_an_account_has_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container: the decision is not refused for it."""

    def nobody(*_: object) -> None:
        raise KeyError

    monkeypatch.setattr(pwd, "getpwuid", nobody)
    monkeypatch.setenv("SUDO_USER", "alice")
    assert describe_user() == f"uid {os.getuid()} (sudo by alice) at the command line"
