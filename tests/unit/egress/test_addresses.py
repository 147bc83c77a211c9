"""Which addresses a fetch may connect to."""

from __future__ import annotations

import ipaddress

import pytest

from sandbox.egress.addresses import is_allowed_address

PUBLIC = ["1.1.1.1", "93.184.215.14", "199.232.0.1", "2606:4700::1111", "2a04:4e42::223"]
INTERNAL = ["127.0.0.1", "127.9.9.9", "10.1.2.3", "172.16.0.1", "192.168.1.1", "100.64.0.1", "198.18.0.1",
            "192.0.2.1", "203.0.113.9", "::1", "fd12::1", "fc00::1", "2001:db8::1"]  # fmt: skip
NEVER = [
    str(ipaddress.IPv4Address(0)), "0.1.2.3", "169.254.169.254", "169.254.0.1", "168.63.129.16",
    "100.100.100.200", "192.0.0.192",
    "224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255", "192.88.99.1",
    "::", "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1", "fd00:ec2::254",
    "fd20:ce::254", "fd00:42::42", "fd00:c1::a9fe:a9fe",
    "::ffff:10.0.0.1", "::ffff:1.1.1.1", "::ffff:7f00:1", "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b:1::1",
    "2002:7f00:1::", "2001:0:1::1",
    "", "localhost", "127.1", "0x7f.1", "2130706433", "1.1.1.1 ", "1.1.1.1/32",
]  # fmt: skip


@pytest.mark.parametrize("address", PUBLIC)
def test_public_address_is_allowed(address: str) -> None:
    assert is_allowed_address(address, may_be_internal=False)
    assert is_allowed_address(address, may_be_internal=True)


@pytest.mark.parametrize("address", INTERNAL)
def test_internal_address_is_allowed_for_a_named_host_only(address: str) -> None:
    assert not is_allowed_address(address, may_be_internal=False)
    assert is_allowed_address(address, may_be_internal=True)


@pytest.mark.parametrize("address", NEVER)
def test_other_addresses_are_never_allowed(address: str) -> None:
    assert not is_allowed_address(address, may_be_internal=False)
    assert not is_allowed_address(address, may_be_internal=True)
