"""Tunnels that the kernel makes in each network: out of use they are no network, in use they are refused.

`lo` is as captured in a new network of Linux 6.18; what a device that is up adds was captured there, too.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from sandbox.engine.fallback_tunnels import FALLBACK_TUNNELS, find_idle_tunnels, select_idle_tunnels
from sandbox.engine.posture import find_posture_faults, list_interfaces
from tests.unit.engine.test_posture import captured, options

IGMP = """Idx\tDevice    : Count Querier\tGroup    Users Timer\tReporter
1\tlo        :     1      V3
\t\t\t\t010000E0     1 0:00000000\t\t0
"""
INET6 = "00000000000000000000000000000001 01 80 10 80       lo\n"
TRIE = """Main:
  +-- 0.0.0.0/0 3 0 5
     +-- 127.0.0.0/8 2 0 2
        |-- 127.0.0.0
           /8 host LOCAL
        |-- 127.0.0.1
           /32 host LOCAL
        |-- 127.255.255.255
           /32 link BROADCAST
"""
UP = "3\ttunl0     :     1      V3\n\t\t\t\t010000E0     1 0:00000000\t\t0\n"
ADDRESS = "fe800000000000000000000000000001 03 40 20 80    tunl0\n"
LOCAL = "     |-- 10.1.2.3\n        /32 host LOCAL\n"
BOTH = {"lo", "tunl0", "sit0"}


def test_tunnels_that_are_down_and_have_no_address_are_idle() -> None:
    assert select_idle_tunnels(BOTH, IGMP, INET6, TRIE) == {"tunl0", "sit0"}
    assert select_idle_tunnels(FALLBACK_TUNNELS, IGMP, INET6, TRIE) == FALLBACK_TUNNELS
    assert select_idle_tunnels(BOTH, IGMP, "", TRIE) == {"tunl0", "sit0"}  # no IPv6


@pytest.mark.parametrize("name", ["eth0", "tunl1", "sit", "veth0", "wg0", "TUNL0", "docker0"])
def test_another_device_is_no_such_tunnel(name: str) -> None:
    assert select_idle_tunnels({"lo", name}, IGMP, INET6, TRIE) == frozenset()


@pytest.mark.parametrize(
    ("texts", "idle"),
    [
        ((IGMP + UP, INET6, TRIE), {"sit0"}),
        ((IGMP, INET6 + ADDRESS, TRIE), {"sit0"}),
        ((IGMP, INET6, TRIE + LOCAL), set()),
        (("", INET6, TRIE), set()),
        ((IGMP, INET6, ""), set()),
    ],
    ids=["up", "address-6", "address-4", "no-igmp", "no-trie"],
)
def test_a_tunnel_that_may_be_in_use_is_not_idle(texts: tuple[str, str, str], idle: set[str]) -> None:
    assert select_idle_tunnels(BOTH, *texts) == idle


def test_a_guest_with_idle_tunnels_is_as_it_was_asked_for_and_with_others_not(tmp_path: Path) -> None:
    found = captured("runc", interfaces=("    lo:", " tunl0: 0 0\n  sit0: 0 0\n    lo:"))
    folder = tmp_path / "7" / "net"
    folder.mkdir(parents=True)
    for name, text in {"igmp": IGMP, "if_inet6": INET6, "fib_trie": TRIE}.items():
        (folder / name).write_text(text)
    idle = find_idle_tunnels(list_interfaces(found), 7, tmp_path)
    assert find_posture_faults(found, options("runc"), idle_tunnels=idle) == []
    (folder / "igmp").write_text(IGMP + UP)
    idle = find_idle_tunnels(list_interfaces(found), 7, tmp_path)
    (fault,) = find_posture_faults(found, options("runc"), idle_tunnels=idle)
    assert fault == "it has the network interfaces tunl0"
    assert find_idle_tunnels(list_interfaces(found), 8, tmp_path) == frozenset()  # no such process


def test_the_texts_are_those_of_this_kernel() -> None:
    """In a network of its own, with `lo` up and without a driver of tunnels."""
    argv = ["unshare", "--user", "--map-root-user", "--net", "sh", "-c"]
    script = "cd /proc/self/net && ip link set lo up && cat igmp && echo == && cat if_inet6 && echo == && cat fib_trie"
    done = subprocess.run([*argv, script], capture_output=True, text=True, check=False, timeout=60)
    if done.returncode:
        pytest.skip(f"no network of its own: {done.stderr}")
    texts = re.split(r"^==\n", done.stdout, flags=re.MULTILINE)
    assert select_idle_tunnels(BOTH, *texts) == {"tunl0", "sit0"}
