"""Which processes the daemon may stand in for."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable

import pytest

from sandbox.daemon import peers
from sandbox.daemon.peers import PeerProcess, find_difference

ROOT = {
    "Uid": "0\t0\t0\t0",
    "Gid": "0\t0\t0\t0",
    "Groups": "",
    **dict.fromkeys(("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"), "0000000000000000"),
}
WAKE_ALARM = "0000000800000000"
RAW = "0000000000002000"
Compare = Callable[[dict[str, str], dict[str, str]], str]


@pytest.fixture
def compare(monkeypatch: pytest.MonkeyPatch) -> Compare:
    """The difference from a peer with these fields of /proc/PID/status to a daemon with those; all else is ours."""

    def find(theirs: dict[str, str], ours: dict[str, str]) -> str:
        statuses = iter([{**ROOT, **theirs}, {**ROOT, **ours}])
        monkeypatch.setattr(peers, "read_status", lambda _pid: next(statuses))
        one, other = socket.socketpair()
        with one, other:
            return find_difference(one, PeerProcess(os.getpid(), os.geteuid()))

    return find


@pytest.mark.parametrize(
    ("theirs", "ours", "difference"),
    [
        ("0", "", ""),
        ("", "0", ""),
        ("4 0", "0 4", ""),
        ("", "4", "its Groups"),
        ("4", "", "its Groups"),
    ],
    ids=["login and unit of systemd", "the reverse", "another order", "a group less", "a group more"],
)
def test_the_effective_group_counts_as_one_of_the_others(
    compare: Compare, theirs: str, ours: str, difference: str
) -> None:
    """systemd 257 starts a service of root without groups; a login of root has its own among them."""
    assert compare({"Groups": theirs}, {"Groups": ours}) == difference


@pytest.mark.parametrize(
    ("theirs", "ours", "difference"),
    [
        ({}, {"CapInh": WAKE_ALARM}, ""),
        (dict.fromkeys(("CapInh", "CapPrm", "CapEff", "CapAmb"), WAKE_ALARM), {"CapInh": WAKE_ALARM}, ""),
        ({}, {"CapPrm": WAKE_ALARM}, "its CapPrm"),
        ({}, {"CapInh": RAW}, "its CapInh"),
        ({"CapPrm": RAW}, {}, "its CapPrm"),
    ],
    ids=["over ssh", "at a seat", "it would gain an alarm", "it would gain another", "it would lose another"],
)
def test_what_systemd_gives_its_user_manager_is_no_difference(
    compare: Compare, theirs: dict[str, str], ours: dict[str, str], difference: str
) -> None:
    assert compare(theirs, ours) == difference
